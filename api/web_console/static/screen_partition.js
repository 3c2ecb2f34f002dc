// A partition: facts, problems, the picture of its ledger chain, the chosen ledger, what happened.

import {troublesOf} from './findings.js';
import {answered, empty, link, table, to} from './parts.js';
import {clock, count, retention, size} from './format.js';
import {copiesOf, happenedIn, modelOf, nextCut, problems, story, zoomed} from './ledger_model.js';
import {picture} from './ledger_picture.js';
import {adjust, params} from './route.js';
import {Resource, partitionPath} from './service.js';
import {View, effect, h, signal} from './view.js';

const EVERY_MS = 1000;
const EVENTS_MS = 5000;
const COPIES_MS = 10_000;
const RESTED_MS = 300;

/** @typedef {import('./ledger_model.js').Model} Model */
/** @typedef {import('./ledger_model.js').Ledger} Ledger */

class Partition extends View {
  begin() {
    const {topic = '', partition = '0'} = params.current;
    this.place = {topic, partition};
    this.width = signal(0);
    this.chain = new Resource(() => {
      const {before} = params.current;
      return `${partitionPath(topic, partition)}/chain${before ? `?before=${before}` : ''}`;
    }, EVERY_MS);
    /** How owners ended, and when bookies were replaced: the chain itself does not keep it. */
    this.events = new Resource(() => `v1/admin/events?${new URLSearchParams({kind: 'takeover,ensemble_change', topic, limit: '1000'})}`, EVENTS_MS);
    /** What the bookies of the chosen ledger list, once it was chosen. */
    this.copies = signal(/** @type {Resource | null} */ (null));
    let before = params.current.before;
    this.asking = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);
    let ledger = /** @type {string | undefined} */ (undefined);
    this.endings.push(() => [this.chain, this.events, this.copies.current].forEach((each) => each?.end()), effect(() => {
      const chosen = params.value.ledger;
      if (chosen === ledger) return;
      const ask = () => { this.copies.value = chosen ? new Resource(() => `v1/admin/ledgers/${encodeURIComponent(chosen)}/copies`, COPIES_MS) : null; };
      this.copies.current?.end();
      clearTimeout(this.asking);
      // Who goes along the chain by keys asks for the ledger at which the choice rests.
      if (ledger === undefined) ask();
      else this.asking = setTimeout(ask, RESTED_MS);
      ledger = chosen;
    }), () => clearTimeout(this.asking), effect(() => {
      const now = params.value.before;
      if (now !== before) this.chain.refresh();
      before = now;
    }));
    const measure = new ResizeObserver(() => { this.width.value = Math.floor(this.clientWidth); });
    measure.observe(this);
    this.endings.push(() => measure.disconnect());
  }

  render() {
    const {topic, partition} = this.place;
    return [
      h('h1', null, `${topic}, partition ${partition}`),
      h('p', {class: 'crumbs'}, link(`Topic ${topic}`, 'topic', {topic}), ' · ', link('Messages', 'messages', {topic, partition}), ' · ', link('Events', 'cluster', {of: topic})),
      troublesOf(topic),
      answered(this.chain.shown.value, 'the ledger chain', (said) => this.drawn(modelOf(said, happenedIn(this.events.shown.value.data?.events ?? [], Number(partition))))),
    ];
  }

  /** @param {Model} model */
  drawn(model) {
    const {said} = model;
    if (!model.ledgers.length) return empty('This partition has no ledger any more', `The log has ended at offset ${count(model.tail)}, and all of it was deleted.`);
    const wanted = Number(params.value.ledger ?? NaN);
    const chosen = model.ledgers.find((each) => each.id === wanted) ?? model.ledgers[model.ledgers.length - 1];
    const found = problems(model), steps = Number(params.value.zoom ?? 0), part = zoomed(model, chosen, steps);
    const most = Math.ceil(Math.log2(model.ledgers.length));
    const zoom = (/** @type {number} */ by) => adjust({ledger: chosen.id, zoom: Math.max(0, Math.min(most, steps + by)) || null});
    return [
      this.facts(model),
      found.length > 0 && h('div', {class: 'alert', role: 'status', key: 'problems'}, found.map((each) => h('p', null, each))),
      this.pages(model),
      most > 0 && h('p', {class: 'zoom', key: 'zoom'}, h('button', {type: 'button', disabled: steps >= most, onclick: () => zoom(1)}, 'Closer'), ' ', h('button', {type: 'button', disabled: !steps, onclick: () => zoom(-1)}, 'Farther'), ' ',
        steps > 0 && [h('button', {type: 'button', onclick: () => zoom(-Infinity)}, 'All'), h('span', {class: 'muted'}, ` ${count(part.ledgers.length)} of ${count(model.ledgers.length)} ledgers, around ledger ${chosen.id}`)]),
      h('figure', {'aria-label': 'The ledger chain', key: 'picture'}, this.width.value > 200 && picture(part, this.width.value, chosen, (id) => adjust({ledger: id}), zoom)),
      model.undrawn > 0 && h('p', {class: 'muted', key: 'undrawn'}, `The picture has the ${model.cursors.length} slowest subscriptions, and ${count(model.undrawn)} more are not in it: `, link(`all subscriptions of ${said.topic}`, 'subscriptions', {topic: said.topic})),
      h('details', {key: 'how'}, h('summary', null, 'How to read this picture'), h('ul', {class: 'how'},
        h('li', null, 'Left is old, right is new. Every column belongs to the same messages, from top to bottom.'),
        h('li', null, 'The log is cut into ', h('b', null, 'ledgers'), '. One is open (dashed), the others are closed for good.'),
        h('li', null, 'A ledger’s colour is the broker that wrote it. Where it changes, another broker took over and, unless that had given it up, ', h('b', null, 'fenced'), ' the previous one’s ledger (its thick end), so that it could write no more.'),
        h('li', null, 'Bars below a message are its copies, on ', h('b', null, 'bookies'), '. Where bars change their row inside a ledger, a bookie was replaced; the place is estimated.'),
        h('li', null, 'A triangle is a ', h('b', null, 'subscription'), ': everything to its left is acknowledged.'),
        h('li', null, 'Hatched grey is trimmed; hatched red is a copy that its bookie does not answer for. A red dotted line is where retention cuts next.'))),
      h('div', {class: 'two', key: 'below'}, ledgerPanel(chosen, chosen.id === wanted ? this.copies.value?.shown.value ?? null : null),
        h('section', null, h('h2', null, 'What happened'), h('ul', {class: 'story'}, story(model).map((each) => h('li', null, each))),
          said.subscriptions.length > 0 && h('details', null, h('summary', null, said.more_subscriptions ? `The ${said.subscriptions.length} slowest subscriptions as a table` : 'All subscriptions as a table'), subscriptionTable(said)),
          h('details', null, h('summary', null, 'All ledgers as a table'), ledgerTable(model)))),
    ];
  }

  /** @param {Model} model */
  facts(model) {
    const {said, holder} = model;
    const readable = model.tail > model.earliest ? `${count(model.earliest)} – ${count(model.tail - 1)}` : 'nothing';
    /** @param {string} name @param {...any} value */
    const fact = (name, ...value) => h('li', null, h('span', {class: 'k'}, name), ...value);
    return h('ul', {class: 'facts', key: 'facts'},
      fact('Owner', h('b', null, said.owner), ` (epoch ${said.epoch})`),
      fact('Readable', h('b', null, readable)),
      fact('Size', h('b', null, size(said.size)), ' in ', h('b', null, count(said.ledgers)), said.ledgers === 1 ? ' ledger' : ' ledgers'),
      fact('Being written', h('b', null, size(said.pending_bytes))),
      fact('Retention', h('b', null, retention(said.retention_ms, said.retention_bytes))),
      fact('Deleted next', h('b', null, nextCut(model, Date.now()))),
      fact('Slowest subscription', h('b', null, holder?.subscription ?? 'none'), holder && `, ${count(holder.backlog_messages)} behind`));
  }

  /** @param {Model} model */
  pages(model) {
    const {older, newer} = model.said;
    if (!older && !newer) return null;
    const {topic, partition} = this.place;
    /** @param {number | null} before @param {string} text */
    const go = (before, text) => h('a', {href: to('partition', {topic, partition, before})}, text);
    const count_ = model.ledgers.length;
    return h('nav', {class: 'pages', 'aria-label': 'Windows of the chain', key: 'pages'},
      older ? [h('span', null, `← ${count(older.ledgers)} older ledgers, ${older.epochs > 1 ? `${older.epochs} epochs` : '1 epoch'} `), go(older.to_offset, 'show older')] : h('span', {class: 'muted'}, 'the beginning'),
      h('span', null, ` · ${count(count_)} shown · `),
      newer ? [go(null, 'show the newest'), h('span', null, ` ${count(newer.ledgers)} newer ledgers →`)] : h('span', {class: 'muted'}, 'the newest'));
  }
}

/** @param {Ledger} each @param {import('./service.js').Shown | null} copies what its bookies list, null: they were not asked */
function ledgerPanel(each, copies) {
  const [ensemble, write, ack] = each.quorums ?? [];
  /** @param {string} name @param {...any} value */
  const row = (name, ...value) => [h('dt', null, name), h('dd', null, ...value)];
  const fragments = each.fragments.map((one, index) => h('tr', {key: one.firstEntry},
    h('td', null, one.to > one.from ? `${index ? 'about ' : ''}${count(one.from)} – ${count(one.to - 1)}` : 'none yet'), h('td', null, `${count(one.firstEntry)} – ${one.lastEntry === null ? '' : count(one.lastEntry)}`), h('td', null, one.sinceUs === null ? 'not known' : clock(one.sinceUs)),
    h('td', {class: 'wraps'}, one.bookies.map((bookie, at) => [at > 0 && ', ', one.lost.includes(bookie) ? h('span', {class: 'bad'}, `✕ ${bookie} (missing)`) : bookie]))));
  return h('section', {class: 'panel', 'aria-labelledby': 'ledger-title'}, h('h2', {id: 'ledger-title', 'aria-live': 'polite'}, `Ledger ${each.id}`),
    h('dl', null,
      row('State', `${each.state}${each.takeover ? each.isFenced ? ` by a takeover (fenced in epoch ${each.takeover.epoch})` : ` by its owner (handed over in epoch ${each.takeover.epoch})` : ''}${each.isAdopted ? ', written elsewhere and committed' : ''}`),
      row('Written by', `${each.owner}, epoch ${each.epoch}`),
      row('Offsets', each.to > each.from ? `${count(each.from)} – ${count(each.to - 1)} (${count(each.to - each.from)} messages${each.size === null ? '' : `, ${size(each.size)}`})` : 'none yet'),
      row('From, to', `${clock(each.createdUs)} – ${each.lastUs === null ? 'now' : clock(each.lastUs)} UTC`),
      row('Last confirmed entry', each.entries ? count(each.entries - 1) : 'none'),
      each.quorums && row('Each entry', `on ${write} of ${ensemble} bookies, acknowledged after ${ack}`)),
    each.fragments.length ? [table(`Fragments of ledger ${each.id}`, ['Offsets', 'Entries', 'Since (UTC)', 'Bookies'], fragments),
      copiesTable(each, copies)] : h('p', null, 'Its metadata is gone: it was just deleted.'));
}

/** The entries on each bookie, by the bookies' own lists where they answer. @param {Ledger} each @param {import('./service.js').Shown | null} copies */
function copiesTable(each, copies) {
  const rows = copiesOf(each, copies?.data?.ledger_id === each.id ? copies?.data : null);
  const source = !copies ? 'By the metadata of the ledger; its bookies are asked when it is chosen.' : copies.status === 'loading' ? 'By the metadata of the ledger; its bookies are being asked…'
    : copies.data?.ledger_id === each.id ? `By the lists of its bookies, asked at ${clock(copies.data.asked_us)} UTC, up to entry ${count(copies.data.last_entry)}.` : `By the metadata of the ledger; its bookies could not be asked: ${copies.problem?.message ?? 'no answer'}.`;
  return [h('p', {class: 'muted', key: 'source'}, source),
    table(`Entries of ledger ${each.id} on each bookie`, ['Bookie', 'Is to have', 'Has', 'Missing'], rows.map((one) => h('tr', {key: one.bookie},
      h('th', {scope: 'row'}, one.isLost ? h('span', {class: 'bad'}, `✕ ${one.bookie} (missing)`) : one.bookie), h('td', null, count(one.entries)), h('td', null, one.held === null ? 'not known' : count(one.held)),
      h('td', {class: 'wraps'}, one.isLacking ? h('span', {class: 'bad'}, one.missing) : one.missing))))];
}

/** @param {Model} model */
const ledgerTable = (model) => table('Ledgers', ['Ledger', 'State', 'Offsets', 'Written by', 'Bookies'], model.ledgers.map((each) => h('tr', {key: each.id},
  h('th', {scope: 'row'}, each.id), h('td', null, each.state), h('td', null, each.to > each.from ? `${count(each.from)} – ${count(each.to - 1)}` : 'none'), h('td', null, `${each.owner}, epoch ${each.epoch}`),
  h('td', null, each.fragments.map((f) => f.bookies.join(', ')).join(' → ')))));

/** @param {any} said */
const subscriptionTable = (said) => table('Subscriptions', ['Subscription', 'Acknowledged to', 'Behind', 'Bytes behind', 'With consumers', 'Done ahead'], said.subscriptions.map((/** @type {any} */ each) => h('tr', {key: each.subscription},
  h('th', {scope: 'row'}, link(each.subscription, 'subscription', {topic: said.topic, subscription: each.subscription})), h('td', null, count(each.acked_to)), h('td', null, count(each.backlog_messages)), h('td', null, size(each.backlog_bytes)), h('td', null, count(each.outstanding)), h('td', null, each.holes ? `${count(each.holes)} ranges` : '–'))));

customElements.define('fencelog-partition', Partition);
