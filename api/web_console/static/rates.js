// The rates of the last minutes: of everything, or of one topic.

import {duration, rate} from './format.js';
import {answered} from './parts.js';
import {sparkline} from './sparkline.js';
import {h} from './view.js';

/** How often they are asked for: brokers take a sample every five seconds. */
export const RATES_MS = 5000;

/** The samples of a whole curve. */
const PLACES = 60;

/** @param {string} [topic] */
export const ratesPath = (topic) => `v1/admin/rates${topic ? `?${new URLSearchParams({topic})}` : ''}`;

/** What is written and read, as two facts with curves. @param {import('./service.js').Shown} shown */
export const rateFacts = (shown) => answered(shown, 'the rates', (data) => [
  h('ul', {class: 'facts', key: 'rates'}, data.since_us === null ? h('li', {class: 'muted'}, 'No traffic in the last five minutes.') : [fact('Written', data.in_bytes_per_s, data.interval_ms), fact('Read', data.out_bytes_per_s, data.interval_ms)],
    data.unanswered.length > 0 && h('li', {class: 'muted', key: 'unanswered'}, `without those of ${data.unanswered.join(', ')}, not known yet`))]);

/** @param {string} name @param {(number | null)[]} values @param {number} intervalMs */
function fact(name, values, intervalMs) {
  const known = values.filter((each) => each !== null), now = known.at(-1);
  if (now === undefined) return h('li', null, h('span', {class: 'k'}, name), h('span', {class: 'muted'}, 'not known'));
  const most = rate(Math.max(...known)), since = duration(Math.max(0, values.length - 1) * intervalMs);
  return h('li', null, h('span', {class: 'k'}, name), h('b', null, rate(now)), ' ',
    sparkline(values, {places: PLACES, name: `${name}: now ${rate(now)}, at most ${most} during the last ${since}`}), h('span', {class: 'muted'}, ` at most ${most}`));
}
