// The overview: what is wrong, who serves, who stores, how much comes and goes.

import {diskBar} from './bookies.js';
import {diskOf} from './bookies_core.js';
import {LOADS_PATH, withLoads} from './brokers_core.js';
import {DOCTOR_MS, DOCTOR_PATH, findingList} from './findings.js';
import {bookieState, brokerState, counted, together, withAbsent} from './findings_core.js';
import {clock, count, rate} from './format.js';
import {answered, empty, link, table} from './parts.js';
import {RATES_MS, rateFacts, ratesPath} from './rates.js';
import {Resource} from './service.js';
import {View, h, signal} from './view.js';

const EVERY_MS = 2000;

class Overview extends View {
  begin() {
    this.brokers = new Resource(() => 'v1/brokers', EVERY_MS);
    this.loads = new Resource(() => LOADS_PATH, EVERY_MS);
    this.bookies = new Resource(() => 'v1/bookies', EVERY_MS);
    this.doctor = new Resource(() => DOCTOR_PATH, DOCTOR_MS);
    /** An examination of every ledger, on request. */
    this.scan = signal(/** @type {Resource | null} */ (null));
    this.rates = new Resource(() => ratesPath(), RATES_MS);
    this.endings.push(() => [this.brokers, this.loads, this.bookies, this.doctor, this.rates, this.scan.current].forEach((each) => each?.end()));
  }

  examineAll() {
    this.scan.current?.end();
    this.scan.value = new Resource(() => 'v1/admin/doctor', 0);
  }

  /** What is wrong comes first. */
  verdict() {
    return h('section', {'aria-label': 'What is wrong', key: 'verdict'}, answered(this.doctor.shown.value, 'the examination of the cluster', (report) => this.findings(report)), this.examined());
  }

  /** @param {any} report */
  findings(report) {
    const found = together(report.findings, this.scan.value?.shown.value.data?.findings ?? []);
    if (!found.length) return h('p', {class: 'good', role: 'status', 'data-picture': 'empty', key: 'good'}, '✓ Nothing is wrong: every process answers, and the doctor has no finding.');
    return [h('p', {role: 'status', class: 'verdict', key: 'verdict'}, `${counted(found)}.`), findingList(found, 'Findings', report.examined_us)];
  }

  /** Which examination this is, and the button for a deeper one. */
  examined() {
    const report = this.doctor.shown.value.data, scan = this.scan.value?.shown.value;
    if (!report) return null;
    const about = !scan ? 'Not every ledger was looked at.' : scan.status === 'loading' ? 'Looking at every ledger…'
      : scan.data ? `Every ledger was looked at, at ${clock(scan.data.examined_us)} UTC.` : `Every ledger could not be looked at: ${scan.problem?.message}.`;
    return h('p', {class: 'muted', key: 'examined'}, `Examined at ${clock(report.examined_us)} UTC. ${about} `,
      h('button', {type: 'button', disabled: scan?.status === 'loading', onclick: () => this.examineAll()}, 'Look at every ledger'));
  }

  render() {
    const found = this.doctor.shown.value.data?.findings ?? null;
    return [h('h1', null, 'Overview'), this.verdict(),
      rateFacts(this.rates.shown.value),
      h('h2', null, 'Brokers'),
      answered(this.brokers.shown.value, 'the brokers', (data) => table('Brokers', ['Broker', 'State', 'Partitions', 'Written', 'Read', 'Since'], withLoads(data.brokers, this.loads.shown.value.data?.brokers ?? []).map((/** @type {any} */ each) => h('tr', {key: each.broker_id},
            h('th', {scope: 'row'}, link(each.broker_id, 'cluster', {broker: each.broker_id})), h('td', null, brokerState(found, each)), h('td', null, count(each.partitions)), h('td', null, rate(each.in_bytes_per_s)), h('td', null, rate(each.out_bytes_per_s)), h('td', null, `${clock(each.started_us)} UTC`))))),
      h('h2', null, 'Bookies'),
      answered(this.bookies.shown.value, 'the bookies', (data) => (data.bookies.length
        ? table('Bookies', ['Bookie', 'Rack', 'State', 'Fullest disk'], withAbsent(found, data.bookies).map((/** @type {any} */ each) => h('tr', {key: each.bookie_id}, h('th', {scope: 'row'}, each.bookie_id), h('td', null, each.rack), h('td', null, bookieState(found, each)), h('td', null, diskBar(diskOf(each.free_bytes, each.total_bytes))))))
        : empty('No bookie is registered', 'Nothing can be stored: start a bookie.'))),
    ];
  }
}

customElements.define('fencelog-overview', Overview);
