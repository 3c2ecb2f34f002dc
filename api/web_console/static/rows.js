// A long list of which only the rows in sight are elements. One stop of Tab; arrows move the choice.

import {windowOf} from './parts.js';
import {h} from './view.js';

export const ROW_PX = 28;
const PAGE_ROWS = 15;

/** What of a list is in sight, in pixels. @typedef {{top: number, height: number}} Sight */

/** @returns {Sight} */
export const atTop = () => ({top: 0, height: 480});

/** Bring a row into the middle of what is in sight, once it is there. @param {Element} view @param {number} index */
export function toRow(view, index) {
  requestAnimationFrame(() => {
    const list = view.querySelector('.list');
    if (list) list.scrollTop = Math.max(0, index * ROW_PX - list.clientHeight / 2);
  });
}

/** The id of a row's element: it has no blank, which would make two of it. @param {string} id */
const elementOf = (id) => encodeURIComponent(id);

/**
 * @template T
 * @param {{name: string, look?: string, items: T[], idOf: (item: T) => string, chosen: string | null, sight: import('./view.js').Signal<Sight>,
 *   cells: (item: T) => any[], choose: (item: T) => void, open?: (item: T) => void}} list
 */
export function rowList({name, look = '', items, idOf, chosen, sight, cells, choose, open = choose}) {
  const {top, height} = sight.value, {first, end} = windowOf(items.length, top, height, ROW_PX);
  const shown = items.slice(first, end);
  return h('div', {class: 'list', role: 'listbox', 'aria-label': name, tabindex: 0, key: 'list', 'aria-activedescendant': shown.some((each) => idOf(each) === chosen) ? elementOf(/** @type {string} */ (chosen)) : null,
    onscroll: (/** @type {any} */ event) => { sight.value = {top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight}; },
    onkeydown: (/** @type {KeyboardEvent} */ event) => step(event, items, items.findIndex((each) => idOf(each) === chosen), choose, open)},
  h('div', {style: {height: `${items.length * ROW_PX}px`}, role: 'presentation', class: 'rows'}, shown.map((each, index) => h('div', {key: idOf(each), id: elementOf(idOf(each)), class: `row ${look}`, role: 'option',
    'aria-selected': String(idOf(each) === chosen), 'aria-setsize': items.length, 'aria-posinset': first + index + 1, style: {top: `${(first + index) * ROW_PX}px`}, onclick: () => open(each)}, cells(each)))));
}

/**
 * @template T
 * @param {KeyboardEvent} event @param {T[]} items @param {number} now @param {(item: T) => void} choose @param {(item: T) => void} open
 */
function step(event, items, now, choose, open) {
  if (event.key === 'Enter' && items[now]) open(items[now]);
  const to = {ArrowDown: now + 1, ArrowUp: Math.max(0, now - 1), Home: 0, End: items.length - 1, PageDown: now + PAGE_ROWS, PageUp: Math.max(0, now - PAGE_ROWS)}[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const index = Math.min(to, items.length - 1), list = /** @type {HTMLElement} */ (event.currentTarget), top = index * ROW_PX;
  choose(items[index]);
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + ROW_PX > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW_PX - list.clientHeight;
}
