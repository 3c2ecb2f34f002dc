// One topic: what is wrong with it, its partitions, its settings, and how parts of it, or all, end.

import {troublesOf} from './findings.js';
import {count, retention} from './format.js';
import {answered, field, link, table, to} from './parts.js';
import {RATES_MS, rateFacts, ratesPath} from './rates.js';
import {go, params} from './route.js';
import {Resource, change, said} from './service.js';
import {boundOf, settingChange, trimOf} from './topic_core.js';
import {View, h, signal} from './view.js';

/** @typedef {import('./topic_core.js').Change} Change */

class Topic extends View {
  begin() {
    const {topic = ''} = params.current;
    this.topic = topic;
    this.config = new Resource(() => `v1/topics/${topic}`, 0);
    this.owners = new Resource(() => `v1/topics/${topic}/owners`, 3000);
    this.offsets = new Resource(() => `v1/topics/${topic}/offsets`, 3000);
    this.rates = new Resource(() => ratesPath(topic), RATES_MS);
    this.outcome = signal('');
    this.mistake = signal('');
    this.typed = signal('');
    /** What is to be confirmed. */
    this.wanted = signal(/** @type {Change | null} */ (null));
    this.endings.push(() => [this.config, this.owners, this.offsets, this.rates].forEach((each) => each.end()));
  }

  render() {
    return [h('h1', null, this.topic),
      h('p', {class: 'crumbs'}, link('Subscriptions', 'subscriptions', {topic: this.topic}), ' · ', link('Events', 'cluster', {of: this.topic})),
      troublesOf(this.topic),
      answered(this.config.shown.value, 'the topic', (config) => [
        h('ul', {class: 'facts', key: 'facts'}, h('li', null, h('span', {class: 'k'}, 'Copies'), h('b', null, `${config.write_quorum} on ${config.ensemble_size} bookies`), `, acknowledged after ${config.ack_quorum}`),
          h('li', null, h('span', {class: 'k'}, 'Retention'), h('b', null, retention(boundOf(config.effective.retention_ms), boundOf(config.effective.retention_bytes))))),
        rateFacts(this.rates.shown.value),
        answered(this.offsets.shown.value, 'the partitions', (data) => this.partitions(data.offsets)),
        h('p', {role: 'status', key: 'outcome'}, this.outcome.value),
        this.mistake.value && h('p', {class: 'bad', role: 'alert', key: 'mistake'}, this.mistake.value),
        this.wanted.value && this.confirmation(this.wanted.value),
        this.settings(config), this.trimming(), this.ends()]),
    ];
  }

  /** @param {any[]} offsets */
  partitions(offsets) {
    const owners = new Map((this.owners.shown.value.data?.owners ?? []).map((/** @type {any} */ each) => [each.partition, each]));
    return table('Partitions', ['Partition', 'Owner', 'Earliest', 'Tail', 'Count', 'Messages'], offsets.map((each) => h('tr', {key: each.partition},
      h('th', {scope: 'row'}, link(`Partition ${each.partition}`, 'partition', {topic: this.topic, partition: each.partition})), h('td', null, owners.get(each.partition)?.broker_id ?? '–'), h('td', null, count(each.earliest_offset)), h('td', null, count(each.tail_offset)), h('td', null, count(each.tail_offset - each.earliest_offset)),
      h('td', null, h('a', {href: to('messages', {topic: this.topic, partition: each.partition}), 'aria-label': `Messages of partition ${each.partition}`}, 'Messages')))));
  }

  // -- changes --------------------------------------------------------------------------------------

  /** @param {any} config */
  settings(config) {
    const names = ['partitions', ...Object.keys(config.effective)];
    return h('details', {key: 'settings'}, h('summary', null, 'Settings'),
      h('form', {class: 'fields', onsubmit: (/** @type {SubmitEvent} */ event) => this.proposeSetting(event, config)},
        field('Setting', h('select', {name: 'setting'}, names.map((name) => h('option', {value: name, key: name}, name)))),
        field('New value (empty: inherited; or unlimited)', h('input', {name: 'value', autocomplete: 'off'})), h('button', null, 'Change…')),
      table('Settings', ['Setting', 'Value', 'From'], Object.entries(config.effective).map(([name, value]) => h('tr', {key: name}, h('th', {scope: 'row'}, name), h('td', null, String(value)), h('td', null, name in config.settings ? 'the topic' : 'inherited')))));
  }

  /** @param {SubmitEvent} event @param {any} config */
  proposeSetting(event, config) {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    this.mistake.value = '';
    this.wanted.value = settingChange(String(form.get('setting')), String(form.get('value')), config);
  }

  trimming() {
    const offsets = this.offsets.shown.value.data?.offsets ?? [];
    return h('details', {key: 'trim'}, h('summary', null, 'Trim a partition'), h('p', null, 'Messages before an offset are given up; their space is freed ledger by ledger.'),
      h('form', {class: 'fields', onsubmit: (/** @type {SubmitEvent} */ event) => this.proposeTrim(event)},
        field('Partition', h('select', {name: 'partition'}, offsets.map((/** @type {any} */ each) => h('option', {value: each.partition, key: each.partition}, each.partition)))),
        field('First offset to keep', h('input', {name: 'before', inputmode: 'numeric', autocomplete: 'off', required: true})), h('button', null, 'Trim…')));
  }

  /** @param {SubmitEvent} event */
  proposeTrim(event) {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    const found = trimOf(String(form.get('partition')), String(form.get('before')), this.offsets.shown.current.data?.offsets ?? []);
    this.mistake.value = found.mistake ?? '';
    this.wanted.value = found.mistake === null ? found.change : null;
  }

  /** @param {Change} wanted */
  confirmation(wanted) {
    return h('div', {class: 'panel', role: 'group', 'aria-label': 'Confirm the change', key: 'confirm'}, h('p', {role: 'status'}, wanted.sentence),
      h('button', {type: 'button', class: wanted.partition === null ? null : 'danger', onclick: () => this.carryOut(wanted)}, wanted.partition === null ? 'Change now' : 'Trim for good'), ' ',
      h('button', {type: 'button', onclick: () => { this.wanted.value = null; }}, 'Cancel'));
  }

  /** @param {Change} wanted */
  carryOut(wanted) {
    this.wanted.value = null;
    const path = `v1/topics/${this.topic}`;
    return this.tell(async () => {
      if (wanted.partition === null) {
        await change('PATCH', path, wanted.body);
        return 'Changed.';
      }
      const answer = await (await change('POST', `${path}/partitions/${wanted.partition}:trim`, wanted.body)).json();
      return `Partition ${wanted.partition} begins at ${count(answer.earliest_offset)}${answer.held_back ? ': a durable subscription has not acknowledged what follows' : ''}.`;
    });
  }

  /** Do something, say what came of it, and look again. @param {() => Promise<string>} act */
  async tell(act) {
    try {
      this.outcome.value = await act();
    } catch (error) {
      this.outcome.value = said(error);
    }
    [this.config, this.offsets].forEach((each) => each.refresh());
  }

  // -- ends -----------------------------------------------------------------------------------------

  ends() {
    const isTyped = this.typed.value === this.topic;
    return h('details', {key: 'ends'}, h('summary', null, 'End or delete this topic'),
      h('p', null, 'A topic that has ended takes no appends ever again, and stays readable. One that is deleted is gone for good with everything in it. Type its name for either.'),
      h('div', {class: 'fields'}, field('Name', h('input', {autocomplete: 'off', oninput: (/** @type {any} */ event) => { this.typed.value = event.target.value; }})),
        h('button', {type: 'button', class: 'danger', disabled: !isTyped, onclick: () => this.terminate()}, 'End for good'),
        h('button', {type: 'button', class: 'danger', disabled: !isTyped, onclick: () => this.deleteTopic()}, 'Delete for good')));
  }

  terminate() {
    return this.tell(async () => {
      const answer = await (await change('POST', `v1/topics/${this.topic}:terminate`)).json();
      return `The topic has ended. ${answer.partitions.map((/** @type {any} */ each) => `Partition ${each.partition} ends at ${count(each.end_offset)}`).join(', ')}.`;
    });
  }

  async deleteTopic() {
    try {
      await change('DELETE', `v1/topics/${this.topic}`);
      go({screen: 'topics'});
    } catch (error) {
      this.outcome.value = said(error);
    }
  }
}

customElements.define('fencelog-topic', Topic);
