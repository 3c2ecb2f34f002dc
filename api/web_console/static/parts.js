// Parts that all screens share: the four pictures of an answer, links, tables, windows of long lists.

import {clock} from './format.js';
import {address} from './route.js';
import {h} from './view.js';

/** @param {string} screen @param {Record<string, any>} [rest] */
export const to = (screen, rest = {}) => address({screen: screen === 'overview' ? null : screen, ...rest});

/** A link to a screen. @param {string} text @param {string} screen @param {Record<string, any>} [rest] */
export const link = (text, screen, rest) => h('a', {href: to(screen, rest)}, text);

/**
 * Show an answer: loading, refused, failed, or what `ready` makes of its data. What was there before
 * a failure stays, under a line that says since when it is old.
 * @param {import('./service.js').Shown} shown
 * @param {string} what is loaded
 * @param {(data: any) => any} ready
 * @param {() => void} [again] what asks once more, where that does not happen by itself
 */
export function answered(shown, what, ready, again) {
  if (shown.status === 'loading') return h('p', {class: 'picture loading', role: 'status', 'data-picture': 'loading'}, `Loading ${what}…`);
  const {problem} = shown;
  if (shown.status === 'refused') {
    const said = problem?.status === 401 || problem?.status === 403 ? 'You may not see this' : `The service has refused to show ${what}`;
    return h('div', {class: 'picture refused', role: 'alert', 'data-picture': 'refused'}, h('h2', null, said), h('p', null, problem?.message), h('p', {class: 'muted'}, `${problem?.code} (${problem?.status})`));
  }
  const since = clock(shown.sinceMs * 1000);
  if (shown.status === 'failed' && shown.data === null) {
    return h('div', {class: 'picture failed', role: 'alert', 'data-picture': 'failed'}, h('h2', null, `Loading ${what} failed`), again
      ? h('p', null, `${problem?.message}, at ${since} UTC. `, h('button', {type: 'button', onclick: again}, 'Try again'))
      : h('p', null, `${problem?.message}. It is tried again every few seconds, since ${since} UTC.`));
  }
  return [
    shown.status === 'failed' && h('div', {class: 'alert', role: 'alert', 'data-picture': 'failed', key: 'failed'}, h('b', null, 'This is old. '), `${problem?.message}, since ${since} UTC.`),
    ready(shown.data),
  ];
}

/** The picture of nothing. @param {string} title @param {...any} about */
export const empty = (title, ...about) => h('div', {class: 'picture empty', 'data-picture': 'empty'}, h('h2', null, title), h('p', null, ...about));

/**
 * A table. @param {string} caption @param {any[]} heads @param {any[]} rows
 */
export const table = (caption, heads, rows) => h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption},
  h('table', null, h('caption', {class: 'hidden'}, caption), h('thead', null, h('tr', null, heads.map((each) => (each?.tag ? each : h('th', {scope: 'col'}, each))))), h('tbody', null, rows)));

/** The rows of a long list that a window shows, and some beside it. @param {number} total @param {number} top @param {number} height @param {number} rowPx */
export function windowOf(total, top, height, rowPx) {
  const first = Math.max(0, Math.min(Math.floor(top / rowPx) - 10, total));
  return {first, end: Math.min(total, Math.ceil((top + height) / rowPx) + 10)};
}

/** A field with its name. @param {string} name @param {any} field */
export const field = (name, field) => h('label', {class: 'field'}, h('span', null, name), field);

/** Which figures a list has: a line that is always there, so that nothing moves when they come. @param {string[]} unanswered brokers */
export const figuresOf = (unanswered) => h('p', {class: 'muted', role: 'status', key: 'figures', 'data-figures': unanswered.length ? 'some' : 'all'}, unanswered.length
  ? `Figures of ${unanswered.join(', ')} are not known yet: sums are without them.` : 'Figures of all brokers.');
