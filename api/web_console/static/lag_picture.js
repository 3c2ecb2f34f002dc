// The lag of a subscription over time, drawn, and as a table.

import {clock, count} from './format.js';
import {empty, table} from './parts.js';
import {lagCurve, lagRows} from './subscription_core.js';
import {h} from './view.js';

const WIDTH = 720, HEIGHT = 120, PAD = 3;
/** The samples that are one row of the table: a minute of them. */
const TOGETHER = 6;

/** @param {Parameters<typeof lagCurve>[0]} lag */
export function lagPicture(lag) {
  const curve = lagCurve(lag);
  if (!curve) return empty('No sample is kept yet', `The brokers take one every ${count(lag.interval_ms / 1000)} seconds, and keep an hour of them. Whoever takes a partition over begins anew.`);
  /** @param {[number, number]} point */
  const place = ([x, y]) => `${(PAD + x * (WIDTH - 2 * PAD)).toFixed(1)},${(PAD + y * (HEIGHT - 2 * PAD)).toFixed(1)}`;
  const now = curve.last === null ? 'not known' : count(curve.last);
  const about = `Messages behind from ${clock(curve.sinceUs)} to ${clock(curve.untilUs)} UTC: at most ${count(curve.most)}, at the end ${now}`;
  return h('div', {class: 'curve', key: 'curve'},
    h('p', {class: 'muted'}, h('span', null, `at most ${count(curve.most)} behind`), h('span', null, `${now} at ${clock(curve.untilUs)} UTC`)),
    h('svg', {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': about},
      h('line', {x1: 0, x2: WIDTH, y1: HEIGHT - PAD, y2: HEIGHT - PAD, stroke: 'var(--line)', 'vector-effect': 'non-scaling-stroke'}),
      curve.runs.map((run, index) => (run.length > 1
        ? h('polyline', {key: index, points: run.map(place).join(' '), fill: 'none', stroke: 'var(--o1)', 'stroke-width': 2, 'vector-effect': 'non-scaling-stroke'})
        : h('circle', {key: index, cx: place(run[0]).split(',')[0], cy: place(run[0]).split(',')[1], r: 3, fill: 'var(--o1)'})))),
    h('p', {class: 'muted'}, `Kept since ${clock(curve.sinceUs)} UTC, by the brokers that own its partitions.`),
    h('details', null, h('summary', null, 'As a table'), table('Lag over time', ['From (UTC)', 'At most behind'], lagRows(lag, TOGETHER).map((each) => h('tr', {key: each.atUs}, h('th', {scope: 'row'}, clock(each.atUs)), h('td', null, count(each.most)))))));
}
