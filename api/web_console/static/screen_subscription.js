// One subscription: how far behind it is, who consumes it, what is stuck, seek, dead letters.

import {clock, count, duration, plural, size} from './format.js';
import {answered, empty, field, link, table, to} from './parts.js';
import {params} from './route.js';
import {Resource, change, said} from './service.js';
import {lagPicture} from './lag_picture.js';
import {age, deadLetterTopic, seekPlan, stuckIn} from './subscription_core.js';
import {View, effect, h, signal} from './view.js';

const EVERY_MS = 2000;
const LAG_MS = 5000;
const PLACES = [['earliest', 'the beginning'], ['latest', 'the tail'], ['offset', 'an offset'], ['time', 'a time (UTC)']];

/** @typedef {Extract<ReturnType<typeof seekPlan>, {mistake: null}>} Plan */

class Subscription extends View {
  begin() {
    const {topic = '', subscription = ''} = params.current;
    this.place = {topic, subscription};
    this.path = `v1/topics/${topic}/subscriptions/${encodeURIComponent(subscription)}`;
    this.config = new Resource(() => this.path, 0);
    this.stats = new Resource(() => `${this.path}/stats`, EVERY_MS);
    this.offsets = new Resource(() => `v1/topics/${topic}/offsets`, EVERY_MS);
    this.figures = new Resource(() => `v1/admin/subscriptions?${new URLSearchParams({topic, contains: subscription, limit: '1000'})}`, EVERY_MS);
    this.lag = new Resource(() => `${this.path}/lag`, LAG_MS);
    this.to = signal('earliest');
    this.mistake = signal('');
    this.plan = signal(/** @type {Plan | null} */ (null));
    this.isReplaying = signal(false);
    this.outcome = signal('');
    /** Topics with the name of the dead letter topic in theirs, and the replays of their messages. */
    this.letters = new Resource(() => `v1/admin/topics?${new URLSearchParams({contains: this.lettersName(), limit: '200'})}`, EVERY_MS);
    this.replays = new Resource(() => `v1/admin/subscriptions?${new URLSearchParams({contains: `${this.lettersName()} replay-`})}`, EVERY_MS);
    this.endings.push(() => [this.config, this.stats, this.offsets, this.figures, this.lag, this.letters, this.replays].forEach((each) => each.end()), effect(() => {
      const config = this.config.shown.value.data;
      if (config && deadLetterTopic(topic, subscription, config) === null) [this.letters, this.replays].forEach((each) => each.end());
    }));
  }

  /** The topic with the dead letters: that of the settings, and the default until they are known. */
  lettersName() {
    const {topic, subscription} = this.place, config = this.config?.shown.current.data;
    return (config && deadLetterTopic(topic, subscription, config)) ?? deadLetterTopic(topic, subscription, {max_deliveries: 1}) ?? '';
  }

  render() {
    const {topic, subscription} = this.place, shown = this.figures.shown.value;
    return [h('h1', null, `${subscription} of ${topic}`),
      h('p', {class: 'crumbs'}, link(`Topic ${topic}`, 'topic', {topic}), ' · ', link(`Subscriptions of ${topic}`, 'subscriptions', {topic})),
      answered(this.config.shown.value, 'the subscription', (config) => [
        answered(shown, 'its figures', (data) => this.facts(config, data.subscriptions.find((/** @type {any} */ each) => each.subscription === subscription), data.now_us)),
        h('section', {key: 'lag', 'aria-label': 'Lag over time'}, h('h2', null, 'Lag over time'), answered(this.lag.shown.value, 'its lag over time', lagPicture)),
        answered(this.stats.shown.value, 'its partitions', (stats) => [this.stuck(stats.partitions, config), this.partitions(stats.partitions), this.consumers(stats.partitions)]),
        this.seek(), this.deadLetters(config),
        h('details', {key: 'settings'}, h('summary', null, 'All settings'), table('Settings', ['Setting', 'Value'], Object.entries(config).map(([name, value]) => h('tr', {key: name}, h('th', {scope: 'row'}, name), h('td', null, typeof value === 'object' ? JSON.stringify(value) : String(value)))))),
      ]),
      h('p', {role: 'status', key: 'outcome'}, this.outcome.value)];
  }

  /** @param {any} config @param {any} row @param {number} nowUs */
  facts(config, row, nowUs) {
    if (!row || row.backlog_messages === null) return h('p', {key: 'facts'}, 'No partition of the topic is open: how far behind it is will be known when one is.');
    /** @param {string} name @param {...any} value */
    const fact = (name, ...value) => h('li', null, h('span', {class: 'k'}, name), ...value);
    return h('ul', {class: 'facts', key: 'facts'},
      fact('Type', h('b', null, config.type), config.durable ? '' : ', not durable'),
      fact('Behind', h('b', null, plural(row.backlog_messages, 'message')), `, about ${size(row.backlog_bytes)}`),
      fact('Oldest', h('b', null, age(row.oldest_us, nowUs))),
      fact('With consumers', h('b', null, count(row.outstanding))),
      fact('Space held back', h('b', null, row.held_bytes ? size(row.held_bytes) : 'none'), row.held_bytes ? ': retention would delete it, were it acknowledged' : ''));
  }

  /** @param {any[]} partitions @param {any} config */
  stuck(partitions, config) {
    const found = stuckIn(partitions, config.lease_ms), {topic} = this.place;
    return h('section', {key: 'stuck', 'aria-label': 'What is stuck'}, h('h2', null, 'What is stuck'),
      found.length ? h('ul', {class: 'story'}, found.map((each, index) => h('li', {key: index}, `Partition ${each.partition}: ${each.sentence}`, each.offset !== null && [' ',
        h('a', {href: to('messages', {topic, partition: each.partition, from: each.offset})}, `Look at message ${count(each.offset)}`, h('span', {class: 'hidden'}, ` of partition ${each.partition}`))])))
        : h('p', {class: 'good'}, '✓ Nothing: messages come and are acknowledged.'));
  }

  /** @param {any[]} partitions */
  partitions(partitions) {
    return [h('h2', {key: 'partitions-title'}, 'Partitions'),
      table('Partitions', ['Partition', 'Acknowledged to', 'Behind', 'Bytes', 'With consumers', 'Oldest lease', 'Come again', 'Delayed', 'Done ahead', 'To dead letters'], partitions.map((each) => h('tr', {key: each.partition},
        h('th', {scope: 'row'}, link(`Partition ${each.partition}`, 'partition', {topic: this.place.topic, partition: each.partition})), h('td', null, count(each.acked_to)), h('td', null, count(each.backlog_messages)), h('td', null, size(each.backlog_bytes)),
        h('td', null, count(each.outstanding)), h('td', null, duration(each.oldest_lease_ms)), h('td', null, count(each.redelivering)), h('td', null, count(each.delayed)), h('td', null, each.holes ? plural(each.holes, 'range') : '–'), h('td', null, count(each.burying)))))];
  }

  /** @param {any[]} partitions */
  consumers(partitions) {
    const all = partitions.flatMap((each) => each.consumers.map((/** @type {any} */ one) => ({...one, partition: each.partition})));
    return [h('h2', {key: 'consumers-title'}, 'Consumers'),
      all.length ? table('Consumers', ['Consumer', 'Partition', 'Leases', 'Last heard of', 'There for'], all.map((each) => h('tr', {key: `${each.partition} ${each.name}`},
        h('th', {scope: 'row'}, each.name || 'without a name'), h('td', null, each.partition), h('td', null, count(each.outstanding)), h('td', null, `${duration(each.idle_ms)} ago`), h('td', null, duration(each.age_ms)))))
        : empty('No consumer is there', 'A consumer is there while it pulls or has leases.')];
  }

  // -- seek -----------------------------------------------------------------------------------------

  seek() {
    const partitions = this.offsets.shown.value.data?.offsets ?? [], needsText = ['offset', 'time'].includes(this.to.value);
    return h('section', {key: 'seek', 'aria-label': 'Seek'}, h('h2', null, 'Seek'),
      h('form', {class: 'fields', onsubmit: (/** @type {SubmitEvent} */ event) => this.propose(event)},
        field('Go on from', h('select', {name: 'to', value: this.to.value, onchange: (/** @type {any} */ event) => { this.to.value = event.target.value; this.plan.value = null; }}, PLACES.map(([name, title]) => h('option', {value: name}, title)))),
        needsText && field(this.to.value === 'offset' ? 'Offset' : 'Time, like 2026-01-31 12:00:00', h('input', {name: 'text', autocomplete: 'off', required: true})),
        field('In', h('select', {name: 'partition'}, h('option', {value: ''}, 'all partitions'), partitions.map((/** @type {any} */ each) => h('option', {value: each.partition, key: each.partition}, `partition ${each.partition}`)))),
        h('button', null, 'Seek…')),
      this.mistake.value && h('p', {class: 'bad', role: 'alert', key: 'mistake'}, this.mistake.value),
      this.plan.value && this.confirmation(this.plan.value));
  }

  /** Say what a seek would do. @param {SubmitEvent} event */
  propose(event) {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target)), offsets = this.offsets.shown.current.data?.offsets ?? [];
    const acked = new Map((this.stats.shown.current.data?.partitions ?? []).map((/** @type {any} */ each) => [each.partition, each.acked_to]));
    const places = offsets.filter((/** @type {any} */ each) => acked.has(each.partition)).map((/** @type {any} */ each) => ({...each, acked_to: acked.get(each.partition)}));
    const plan = seekPlan({to: this.to.current, text: String(form.get('text') ?? ''), partition: String(form.get('partition') ?? '')}, places);
    this.mistake.value = plan.mistake ?? '';
    this.plan.value = plan.mistake === null ? plan : null;
  }

  /** @param {Plan} plan */
  confirmation(plan) {
    return h('div', {class: 'panel', role: 'group', 'aria-label': 'Confirm the seek', key: 'plan'}, h('ul', {role: 'status'}, plan.sentences.map((each) => h('li', {key: each}, each)), h('li', {key: 'leases'}, 'Leases of these partitions end, and acknowledgements from before are stale.')),
      h('button', {type: 'button', class: 'danger', onclick: () => this.carryOut(plan)}, 'Seek now'), ' ', h('button', {type: 'button', onclick: () => { this.plan.value = null; }}, 'Cancel'));
  }

  /** @param {Plan} plan */
  async carryOut(plan) {
    this.plan.value = null;
    await this.tell(async () => {
      const answer = await (await change('POST', `${this.path}:seek${plan.partition === '' ? '' : `?partition=${plan.partition}`}`, plan.body)).json();
      return `${answer.offsets.map((/** @type {any} */ each) => `Partition ${each.partition} goes on at ${count(each.offset)}`).join('. ')}.`;
    });
  }

  /** Do something, say what came of it, and look again. @param {() => Promise<string>} act */
  async tell(act) {
    try {
      this.outcome.value = await act();
    } catch (error) {
      this.outcome.value = said(error);
    }
    [this.stats, this.figures, this.letters, this.replays].forEach((each) => each.refresh());
  }

  // -- dead letters ---------------------------------------------------------------------------------

  /** @param {any} config */
  deadLetters(config) {
    const {topic, subscription} = this.place, name = deadLetterTopic(topic, subscription, config);
    const body = name === null ? empty('There are none', 'Messages are delivered again without an end: the subscription has no max_deliveries.') : this.lettersOf(name, config);
    return h('section', {key: 'letters', 'aria-label': 'Dead letters'}, h('h2', null, 'Dead letters'), body);
  }

  /** @param {string} name @param {any} config */
  lettersOf(name, config) {
    return answered(this.letters.shown.value, 'the dead letters', (data) => {
      const letters = data.topics.find((/** @type {any} */ each) => each.topic === name);
      if (!letters) return empty('No message has failed for good', `After ${plural(config.max_deliveries, 'delivery', 'deliveries')} a message goes to ${name}, which is made then.`);
      const replay = this.replays.shown.value.data?.subscriptions.find((/** @type {any} */ each) => each.topic === name && each.subscription === `replay-${config.subscription_id}`);
      const waiting = replay ? replay.backlog_messages : letters.messages;
      return [
        h('p', {key: 'count'}, letters.messages === null ? 'How many is not known while the topic is not open.' : `${plural(letters.messages, 'message')} in ${name}; ${waiting ? `${count(waiting)} not replayed yet` : 'all were replayed'}. `,
          Array.from({length: letters.partitions}, (_, partition) => [' ', link(`Look at partition ${partition}`, 'messages', {topic: name, partition})])),
        this.isReplaying.value
          ? h('div', {class: 'panel', role: 'group', 'aria-label': 'Confirm the replay', key: 'confirm'}, h('p', {role: 'status'}, `They are appended again to the partitions of ${this.place.topic} that they came from, for ${this.place.subscription} alone; up to 1,000 at a time.`),
            h('button', {type: 'button', onclick: () => this.replay()}, 'Replay now'), ' ', h('button', {type: 'button', onclick: () => { this.isReplaying.value = false; }}, 'Cancel'))
          : h('button', {type: 'button', key: 'replay', onclick: () => { this.isReplaying.value = true; }}, 'Replay dead letters…'),
      ];
    });
  }

  async replay() {
    this.isReplaying.value = false;
    await this.tell(async () => {
      const answer = await (await change('POST', `${this.path}:replay-dead-letters`, {})).json();
      return `${plural(answer.replayed, 'dead letter')} ${answer.replayed === 1 ? 'was' : 'were'} replayed, at ${clock(Date.now() * 1000)} UTC.`;
    });
  }
}

customElements.define('fencelog-subscription', Subscription);
