// The state of the console, which is all in its address: it can be kept, sent and gone back to.

import {signal} from './view.js';

/** The parameters of the address. */
export const params = signal(read());

/** Changes that wait until the choice rests. @type {Record<string, any> | null} */
let resting = null;
const RESTED_MS = 300;

/** @returns {Record<string, string>} */
function read() {
  return Object.fromEntries(new URLSearchParams(location.search));
}

/** How often another address was gone to. */
export const arrivals = signal(0);

addEventListener('popstate', arrive);

function arrive() {
  resting = null;
  params.value = read();
  arrivals.value += 1;
}

/**
 * The address with these parameters alone.
 * @param {Record<string, string | number | null | undefined>} wanted
 */
export function address(wanted) {
  const kept = Object.entries(wanted).filter(([, value]) => value !== null && value !== undefined && value !== '');
  const query = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  return query ? `?${query}` : './';
}

/** Go to the address with these parameters alone. @param {Record<string, any>} wanted */
export function go(wanted) {
  settle();
  history.pushState(null, '', address(wanted));
  arrive();
}

/** Change some parameters; without a step to go back to. @param {Record<string, any>} changes */
export function adjust(changes) {
  if (resting !== null) resting = Object.fromEntries(Object.entries(resting).filter(([name]) => !(name in changes)));
  history.replaceState(null, '', address({...params.current, ...changes}));
  params.value = read();
}

/** Change some parameters soon: who goes along a list by keys changes them with each of them. @param {Record<string, any>} changes */
export function adjustSoon(changes) {
  if (resting === null) setTimeout(settle, RESTED_MS);
  resting = {...resting, ...changes};
}

/** Change what waits now. */
function settle() {
  const changes = resting;
  resting = null;
  if (changes !== null) adjust(changes);
}

/** Follow links of the console within the page. @param {MouseEvent} event */
export function follow(event) {
  const link = /** @type {Element} */ (event.target).closest?.('a[href]');
  if (!link || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const href = link.getAttribute('href') ?? '';
  if (!(href.startsWith('?') || href === './') || link.hasAttribute('download')) return;
  event.preventDefault();
  go(Object.fromEntries(new URLSearchParams(href.startsWith('?') ? href : '')));
}
