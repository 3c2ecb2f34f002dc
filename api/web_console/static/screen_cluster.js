// The cluster: brokers with drain and undrain, the partitions that one of them has open, bookies, and
// what has happened.

import './bookies.js';
import './timeline.js';
import {LOADS_PATH, withLoads} from './brokers_core.js';
import {DOCTOR_MS, DOCTOR_PATH} from './findings.js';
import {brokerState} from './findings_core.js';
import {answered, empty, link, table} from './parts.js';
import {clock, count, rate} from './format.js';
import {params} from './route.js';
import {Problem, Resource, change} from './service.js';
import {View, effect, h, signal} from './view.js';

class Cluster extends View {
  begin() {
    this.brokers = new Resource(() => 'v1/brokers', 1500);
    this.loads = new Resource(() => LOADS_PATH, 1500);
    this.doctor = new Resource(() => DOCTOR_PATH, DOCTOR_MS);
    /** @type {Resource | null} */
    this.one = null;
    this.outcome = signal('');
    this.asking = signal('');
    /** @type {string | undefined} */
    let shown;
    this.endings.push(() => [this.brokers, this.loads, this.doctor, this.one].forEach((each) => each?.end()), effect(() => {
      const {broker} = params.value;
      if (broker === shown) return;
      shown = broker;
      this.one?.end();
      this.one = broker ? new Resource(() => `v1/brokers/${encodeURIComponent(broker)}?limit=100`, 3000) : null;
    }));
  }

  /** @param {string} id @param {'drain' | 'undrain'} verb */
  async ask(id, verb) {
    this.asking.value = '';
    this.outcome.value = verb === 'drain' ? `${id} gives its partitions to others…` : `${id} is asked to take partitions…`;
    try {
      const answer = await (await change('POST', `v1/brokers/${encodeURIComponent(id)}:${verb}`)).json();
      this.outcome.value = verb === 'undrain' ? `${id} takes partitions again.` : answer.still_open ? `${id} is not drained: ${answer.still_open} partitions are still there; drain it again.` : answer.not_taken ? `${id} is drained; ${answer.not_taken} partitions wait for an owner.` : `${id} is drained: others have all its partitions.`;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.outcome.value = `${error.isRefused ? 'Refused' : 'Failed'}: ${error.message}.${error.mayHaveEffect ? ' It may go on all the same.' : ''}`;
    }
    this.brokers.refresh();
  }

  /** @param {any} each */
  action(each) {
    const id = each.broker_id;
    if (each.draining) return h('button', {type: 'button', onclick: () => this.ask(id, 'undrain')}, 'Undrain', h('span', {class: 'hidden'}, ` ${id}`));
    if (this.asking.value !== id) return h('button', {type: 'button', onclick: () => { this.asking.value = id; }}, 'Drain…', h('span', {class: 'hidden'}, ` ${id}`));
    return h('span', null, 'All its partitions go to others. ', h('button', {type: 'button', onclick: () => this.ask(id, 'drain')}, `Drain ${id}`), ' ', h('button', {type: 'button', onclick: () => { this.asking.value = ''; }}, 'Cancel'));
  }

  render() {
    const {broker} = params.value, found = this.doctor.shown.value.data?.findings ?? null;
    return [h('h1', null, 'Cluster'),
      h('p', {role: 'status'}, this.outcome.value),
      h('h2', null, 'Brokers'),
      answered(this.brokers.shown.value, 'the brokers', (data) => table('Brokers', ['Broker', 'State', 'Address', 'Partitions', 'Written', 'Read', 'Since', 'Action'], withLoads(data.brokers, this.loads.shown.value.data?.brokers ?? []).map((/** @type {any} */ each) => h('tr', {key: each.broker_id},
        h('th', {scope: 'row'}, link(each.broker_id, 'cluster', {broker: each.broker_id})), h('td', null, brokerState(found, each)), h('td', null, each.url), h('td', null, count(each.partitions)), h('td', null, rate(each.in_bytes_per_s)), h('td', null, rate(each.out_bytes_per_s)), h('td', null, `${clock(each.started_us)} UTC`), h('td', null, this.action(each)))))),
      broker && this.one && [h('h2', null, `Partitions of ${broker}`), answered(this.one.shown.value, 'its partitions', (data) => (data.owned.length
        ? table(`Partitions of ${broker}`, ['Partition', 'Epoch', 'Written', 'Read', 'Messages'], data.owned.map((/** @type {any} */ each) => h('tr', {key: `${each.topic} ${each.partition}`}, h('th', {scope: 'row'}, link(`${each.topic}, partition ${each.partition}`, 'partition', {topic: each.topic, partition: each.partition})), h('td', null, each.epoch), h('td', null, rate(each.in_bytes_per_s)), h('td', null, rate(each.out_bytes_per_s)), h('td', null, count(each.tail_offset - each.earliest_offset)))))
        : empty('It has no partition open', 'Partitions are opened when they are asked for.')))],
      h('fencelog-bookies', {live: true, key: 'bookies'}),
      h('fencelog-timeline', {live: true, key: 'timeline'}),
    ];
  }
}

customElements.define('fencelog-cluster', Cluster);
