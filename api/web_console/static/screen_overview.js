// The overview: is it healthy, who serves, who stores, how much comes and goes.

import {answered, empty, link, table} from './parts.js';
import {clock, count, rate} from './format.js';
import {Resource} from './service.js';
import {View, h, signal} from './view.js';

const EVERY_MS = 2000;
const KEPT = 60;

/** A curve of the last values. @param {number[]} values @param {string} name */
export function sparkline(values, name) {
  const most = Math.max(1, ...values), width = 160, height = 28, step = width / (KEPT - 1);
  const points = values.map((each, index) => `${(width - (values.length - 1 - index) * step).toFixed(1)},${(height - 2 - each / most * (height - 4)).toFixed(1)}`);
  return h('svg', {class: 'spark', width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `${name}: now ${rate(values.at(-1) ?? 0)}, at most ${rate(Math.max(0, ...values))} since this page was opened`},
    points.length > 1 && h('polyline', {points: points.join(' '), fill: 'none', stroke: 'var(--o1)', 'stroke-width': 2}));
}

class Overview extends View {
  begin() {
    this.brokers = new Resource(() => 'v1/brokers', EVERY_MS);
    this.bookies = new Resource(() => 'v1/bookies', EVERY_MS);
    this.missing = new Resource(() => 'v1/admin/underreplicated?limit=1', EVERY_MS);
    this.ready = new Resource(() => 'readyz', EVERY_MS);
    /** @type {import('./view.js').Signal<{at: number, in: number[], out: number[]}>} */
    this.rates = signal({at: 0, in: [], out: []});
    this.endings.push(() => [this.brokers, this.bookies, this.missing, this.ready].forEach((each) => each.end()));
  }

  /** @param {any[]} brokers @param {number} at */
  note(brokers, at) {
    const kept = this.rates.current;
    if (at === kept.at) return kept;
    /** @param {string} name */
    const sum = (name) => brokers.reduce((total, each) => total + (each[name] ?? 0), 0);
    kept.at = at;
    kept.in = [...kept.in, sum('in_bytes_per_s')].slice(-KEPT);
    kept.out = [...kept.out, sum('out_bytes_per_s')].slice(-KEPT);
    return kept;
  }

  /** The sentence that comes first. */
  verdict() {
    const ready = this.ready.shown.value, missing = this.missing.shown.value;
    const found = [];
    if (ready.status === 'refused' || ready.status === 'failed') found.push(h('li', {class: 'bad'}, `This broker cannot serve all it has: ${ready.problem?.message}.`));
    const total = missing.data?.total ?? 0;
    if (total) found.push(h('li', {class: 'bad'}, `${count(total)} ${total === 1 ? 'ledger lacks' : 'ledgers lack'} copies; they are being made again.`));
    if (found.length) return h('section', {class: 'alert', role: 'status', 'aria-label': 'What is wrong'}, h('ul', null, found));
    if (ready.status !== 'ready' || missing.status === 'loading') return h('p', {role: 'status'}, 'Looking…');
    if (missing.status !== 'ready') return h('p', {role: 'status'}, `This broker can serve all it has. Whether ledgers lack copies is not known: ${missing.problem?.message}.`);
    return h('p', {class: 'good', role: 'status'}, '✓ This broker can serve all it has, and no ledger is known to lack copies.');
  }

  render() {
    const brokers = this.brokers.shown.value;
    return [h('h1', null, 'Overview'), this.verdict(),
      answered(brokers, 'the brokers', (data) => {
        const kept = this.note(data.brokers, brokers.sinceMs);
        return [
          h('ul', {class: 'facts', key: 'rates'}, h('li', null, h('span', {class: 'k'}, 'Written'), h('b', null, rate(kept.in.at(-1) ?? 0)), ' ', sparkline(kept.in, 'Written')),
            h('li', null, h('span', {class: 'k'}, 'Read'), h('b', null, rate(kept.out.at(-1) ?? 0)), ' ', sparkline(kept.out, 'Read'))),
          h('h2', {key: 'title'}, 'Brokers'),
          table('Brokers', ['Broker', 'State', 'Partitions', 'Written', 'Read', 'Since'], data.brokers.map((/** @type {any} */ each) => h('tr', {key: each.broker_id},
            h('th', {scope: 'row'}, link(each.broker_id, 'cluster', {broker: each.broker_id})), h('td', null, each.draining ? 'draining' : 'serves'), h('td', null, count(each.partitions)), h('td', null, rate(each.in_bytes_per_s)), h('td', null, rate(each.out_bytes_per_s)), h('td', null, `${clock(each.started_us)} UTC`))))];
      }),
      h('h2', null, 'Bookies'),
      answered(this.bookies.shown.value, 'the bookies', (data) => (data.bookies.length
        ? table('Bookies', ['Bookie', 'Address'], data.bookies.map((/** @type {any} */ each) => h('tr', {key: each.bookie_id}, h('th', {scope: 'row'}, each.bookie_id), h('td', null, each.address ?? 'in this process'))))
        : empty('No bookie is registered', 'Nothing can be stored: start a bookie.'))),
    ];
  }
}

customElements.define('fencelog-overview', Overview);
