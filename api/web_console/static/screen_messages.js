// The messages of a partition: from any place, live at the tail, filtered, decoded, copied, appended.

import {appendForm} from './append_form.js';
import {copy} from './copyable.js';
import {answered, empty, field, link} from './parts.js';
import {count, plural, size} from './format.js';
import {bytesOf, copyAs, decoded, keyOf, matches, oneLine, positionOf, publishTime, rangeOf} from './messages_core.js';
import {adjust, params} from './route.js';
import {atTop, rowList} from './rows.js';
import {Problem, ask, partitionPath, said, urlOf} from './service.js';
import {View, h, signal} from './view.js';

const PAGE = 200;
/** The messages of a further page, and those that are kept: a list of so many is still fast. */
const MORE = 10_000, KEPT = 100_000;
/** The messages that one search looks at, those that it finds, and those that are looked at without a pause. */
const SEARCHED = 1_000_000, FOUND = 1_000, STEP = 500;
const MAX_BYTES = 4 * 1024 * 1024;
const WAIT_S = 15;
const FORMS = ['auto', 'text', 'json', 'msgpack', 'hex'];

/** @typedef {import('./messages_core.js').Message} Message */

class Messages extends View {
  begin() {
    const {topic = '', partition = '0'} = params.current;
    this.place = {topic, partition};
    this.messages = signal(/** @type {Message[]} */ ([]));
    this.shown = signal(/** @type {import('./service.js').Shown} */ ({status: 'loading', data: null, problem: null, sinceMs: Date.now()}));
    this.end = {next: 0, tail: 0};
    this.isLive = signal(params.current.live === '1');
    this.sight = signal(atTop());
    this.chosen = signal(/** @type {Message | null} */ (null));
    this.outcome = signal('');
    /** A search beyond what is loaded: how far it is, and whether it goes on. @type {import('./view.js').Signal<{isRunning: boolean, found: number, from: number} | null>} */
    this.search = signal(/** @type {any} */ (null));
    this.mistake = signal('');
    /** What a download of a range has come to. */
    this.download = signal('');
    /** Which messages a filter lets through, so that none is looked at twice. @type {{filter: string, of: WeakMap<Message, boolean>, all: Message[], found: Message[]}} */
    this.verdicts = {filter: '', of: new WeakMap(), all: [], found: []};
    this.onAppended = () => this.appended();
    this.abort = new AbortController();
    this.endings.push(() => this.abort.abort());
    this.read(positionOf(params.current.from ?? '') ?? {from: 'earliest'});
  }

  /** Read anew from a place. @param {Record<string, string>} position */
  async read(position) {
    this.abort.abort();
    const abort = this.abort = new AbortController();
    this.messages.value = [];
    this.search.value = null;
    this.shown.value = {status: 'loading', data: null, problem: null, sinceMs: Date.now()};
    await this.more(position, abort, 0);
    if (this.isLive.current) this.follow(abort);
  }

  /** @param {Record<string, string>} position */
  pathOf(position) {
    const {topic, partition} = this.place, {view} = params.current;
    return `${partitionPath(topic, partition)}/messages?${new URLSearchParams({...position, max_bytes: String(MAX_BYTES), as: 'base64', ...(view === 'compacted' ? {view} : {})})}`;
  }

  /** @param {Record<string, string>} position @param {AbortController} abort @param {number} waitS @param {number} limit @param {(messages: Message[]) => Promise<Message[]>} [choose] those that are kept */
  async more(position, abort, waitS, limit = PAGE, choose = async (messages) => messages) {
    try {
      const page = await (await ask(this.pathOf({...position, limit: String(limit), ...(waitS ? {wait: String(waitS)} : {})}), {signal: abort.signal})).json();
      const chosen = await choose(page.messages);
      if (abort.signal.aborted) return false;
      this.end = {next: page.next_offset, tail: page.tail_offset};
      if (chosen.length) this.messages.value = [...this.messages.current, ...chosen].slice(-KEPT);
      this.shown.value = {status: 'ready', data: this.end, problem: null, sinceMs: Date.now()};
      return true;
    } catch (error) {
      if (abort.signal.aborted) return false;
      const problem = error instanceof Problem ? error : new Problem(0, {detail: String(error)});
      this.shown.value = {status: problem.isRefused ? 'refused' : 'failed', data: problem.isRefused ? null : this.shown.current.data, problem, sinceMs: Date.now()};
      return false;
    }
  }

  /** Follow the tail until it is paused. @param {AbortController} abort */
  async follow(abort) {
    while (this.isLive.current && !abort.signal.aborted && this.shown.current.status !== 'refused') {
      if (!await this.more({from: String(this.end.next)}, abort, WAIT_S) && !abort.signal.aborted) await new Promise((done) => { setTimeout(done, 1000); });
      const list = this.querySelector('.list');
      if (list && this.isLive.current) requestAnimationFrame(() => { list.scrollTop = list.scrollHeight; });
    }
  }

  /** Look for messages that the filter lets through beyond what is loaded, page after page, until some number is found, the tail is reached or it is stopped. */
  async searchOn() {
    const filter = params.current.filter ?? '', abort = this.abort, from = this.search.current?.from ?? this.end.next;
    let looked = 0, found = this.search.current?.found ?? 0;
    const most = found + FOUND;
    /** @param {Message[]} messages */
    const choose = async (messages) => {
      const chosen = [];
      for (let at = 0; at < messages.length; at += STEP) {
        chosen.push(...messages.slice(at, at + STEP).filter((each) => matches(each, filter)));
        await new Promise((done) => { setTimeout(done); }); // keys and the button to stop come first
      }
      found += chosen.length;
      return chosen;
    };
    const isOn = () => Boolean(this.search.current?.isRunning) && filter === (params.current.filter ?? '');
    this.search.value = {isRunning: true, found, from};
    while (isOn() && this.end.next < this.end.tail && looked < SEARCHED && found < most) {
      const before = this.end.next, isRead = await this.more({from: String(before)}, abort, 0, MORE, choose);
      if (abort.signal.aborted) return;
      if (!isRead) break;
      looked += this.end.next - before;
      this.search.value = {isRunning: isOn(), found, from};
    }
    this.search.value = {isRunning: false, found, from};
  }

  /** @param {'log' | 'compacted'} view */
  show(view) {
    adjust({view: view === 'log' ? null : view});
    this.chosen.value = null;
    this.read(positionOf(params.current.from ?? '') ?? {from: 'earliest'});
  }

  toggleLive() {
    this.isLive.value = !this.isLive.current;
    adjust({live: this.isLive.current ? '1' : null});
    if (this.isLive.current) this.follow(this.abort);
    else if (this.shown.current.status === 'ready') {
      this.abort.abort(); // the request that waits at the tail
      this.abort = new AbortController();
    }
  }

  /** @param {SubmitEvent} event */
  seek(event) {
    event.preventDefault();
    const text = String(new FormData(/** @type {HTMLFormElement} */ (event.target)).get('from') ?? '');
    const position = positionOf(text);
    this.mistake.value = position ? '' : `“${text}” is neither an offset, earliest, latest, nor a time like 2026-01-31 12:00:00 (UTC).`;
    if (!position) return;
    this.chosen.value = null;
    adjust({from: text});
    this.read(position);
  }

  /** Show what was appended by hand, unless it comes by itself. */
  async appended() {
    if (!this.isLive.current && this.end.next === this.end.tail) await this.more({from: String(this.end.next)}, this.abort, 0);
  }

  /** Save the messages that are shown, one JSON object on each line. */
  saveShown() {
    this.save(this.filtered().map((each) => `${JSON.stringify(each)}\n`));
  }

  /** Save a range of offsets, page by page as the service renders it. @param {SubmitEvent} event */
  async saveRange(event) {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target)), range = rangeOf(String(form.get('first')), String(form.get('last')));
    if (range.mistake !== null) {
      this.download.value = range.mistake;
      return;
    }
    const pages = [];
    let next = range.first, isAtTail = false;
    try {
      while (next <= range.last && !isAtTail && this.isConnected) {
        this.download.value = `Reading from ${count(next)} on…`;
        const answer = await ask(this.pathOf({from: String(next), limit: String(Math.min(MORE, range.last - next + 1))}), {headers: {Accept: 'application/x-ndjson'}});
        pages.push(await answer.blob());
        isAtTail = answer.headers.get('At-Tail') === 'true';
        next = Number(answer.headers.get('Next-Offset'));
      }
      this.save(pages);
      this.download.value = `Saved what is there from ${count(range.first)} to ${count(Math.min(range.last, next - 1))}.`;
    } catch (error) {
      this.download.value = said(error);
    }
  }

  /** @param {(string | Blob)[]} lines */
  save(lines) {
    const made = document.createElement('a');
    made.href = URL.createObjectURL(new Blob(lines, {type: 'application/x-ndjson'}));
    made.download = `${this.place.topic.replaceAll('/', '_')}-${this.place.partition}.ndjson`;
    made.click();
    setTimeout(() => URL.revokeObjectURL(made.href), 1000);
  }

  filtered() {
    const filter = params.value.filter ?? '', all = this.messages.value, before = this.verdicts;
    if (!filter) return all;
    if (before.filter === filter && before.all === all) return before.found;
    const of = before.filter === filter ? before.of : new WeakMap();
    const found = all.filter((each) => {
      let is = of.get(each);
      if (is === undefined) of.set(each, is = matches(each, filter));
      return is;
    });
    this.verdicts = {filter, of, all, found};
    return found;
  }

  render() {
    const {topic, partition} = this.place, {from = '', filter = '', view = 'log'} = params.value;
    return [
      h('h1', null, `Messages of ${topic}, partition ${partition}`),
      h('p', {class: 'crumbs'}, link(`Topic ${topic}`, 'topic', {topic}), ' · ', link('Ledger chain', 'partition', {topic, partition})),
      h('form', {class: 'fields', key: 'seek', onsubmit: (/** @type {SubmitEvent} */ event) => this.seek(event)},
        field('From (offset, time in UTC, earliest, latest)', h('input', {name: 'from', list: 'positions', autocomplete: 'off', placeholder: from || 'earliest'})),
        h('datalist', {id: 'positions'}, h('option', {value: 'earliest'}), h('option', {value: 'latest'})),
        h('button', null, 'Go there'),
        field('View', h('select', {value: view, onchange: (/** @type {any} */ event) => this.show(event.target.value)}, h('option', {value: 'log'}, 'the log'), h('option', {value: 'compacted'}, 'the compacted view'))),
        h('button', {type: 'button', 'aria-pressed': String(this.isLive.value), onclick: () => this.toggleLive()}, this.isLive.value ? 'Pause' : 'Follow the tail')),
      this.mistake.value && h('p', {class: 'bad', role: 'alert', key: 'mistake'}, this.mistake.value),
      view === 'compacted' && h('p', {class: 'muted', key: 'view'}, 'The newest message of every key, and all messages without one; above what is compacted by now, it is the log. Offsets have gaps.'),
      h('div', {class: 'fields', key: 'filter'},
        field('Filter what is loaded (words, key:…, header:…, $.order.total>100)', h('input', {type: 'search', 'data-filter': true, value: filter, autocomplete: 'off', oninput: (/** @type {any} */ event) => adjust({filter: event.target.value})})),
        h('button', {type: 'button', onclick: () => this.saveShown()}, 'Download as NDJSON')),
      answered(this.shown.value, 'the messages', () => this.list(filter)),
      this.chosen.value && this.detail(this.chosen.value),
      h('details', {key: 'range'}, h('summary', null, 'Download a range as NDJSON'), h('form', {class: 'fields', onsubmit: (/** @type {SubmitEvent} */ event) => this.saveRange(event)},
        field('First offset', h('input', {name: 'first', inputmode: 'numeric', autocomplete: 'off', required: true})), field('Last offset', h('input', {name: 'last', inputmode: 'numeric', autocomplete: 'off', required: true})), h('button', null, 'Download')),
        h('p', {role: 'status'}, this.download.value)),
      appendForm(topic, partition, this.onAppended),
    ];
  }

  /** @param {string} filter */
  list(filter) {
    const all = this.messages.value, found = this.filtered(), chosen = this.chosen.value;
    const more = this.end.tail - this.end.next;
    const left = params.value.view === 'compacted' ? `${plural(more, 'offset')} left up to the tail` : `${count(more)} more up to the tail`;
    const about = `${plural(found.length, 'message')}${filter ? ` of ${count(all.length)} loaded` : ''}; ${more > 0 ? left : 'up to the tail'}`;
    const search = this.search.value;
    return [
      h('p', {role: 'status', key: 'about', class: 'muted'}, about, more > 0 && !search?.isRunning && [' ', h('button', {type: 'button', key: 'more', onclick: () => this.more({from: String(this.end.next)}, this.abort, 0, MORE)}, `Load ${count(Math.min(more, MORE))} more`),
        filter && !this.isLive.value && [' ', h('button', {type: 'button', key: 'search', onclick: () => this.searchOn()}, 'Search further')]]),
      search && h('p', {role: 'status', key: 'search', class: 'muted'}, `${search.isRunning ? 'Searching' : 'Searched'} from offset ${count(search.from)} to ${count(this.end.next)}: ${plural(search.found, 'message')} found. Of these offsets only what was found is loaded. `,
        search.isRunning ? h('button', {type: 'button', key: 'stop', onclick: () => { this.search.value = {...search, isRunning: false}; }}, 'Stop the search') : h('button', {type: 'button', key: 'all', onclick: () => this.read({from: String(search.from)})}, 'Load them all from there')),
      !found.length ? empty(filter && all.length ? 'No loaded message matches' : 'There is no message here', filter && all.length ? more > 0 ? 'The filter looks at what is loaded: search further, load more, or change it.' : 'The filter looks at what is loaded, which reaches the tail: change it.' : 'The tail is reached. Messages appear here when they are appended and the tail is followed.')
        : rowList({name: 'Messages', items: found, idOf: (each) => `m${each.offset}`, chosen: chosen && `m${chosen.offset}`, sight: this.sight,
          choose: (each) => { this.chosen.value = each; },
          cells: (each) => [h('span', {class: 'offset'}, count(each.offset)), h('span', {class: 'time'}, publishTime(each).slice(11, 23)), h('span', {class: 'key'}, keyOf(each) || '–'), h('span', {class: 'value'}, oneLine(bytesOf(each.base64.slice(0, 400)), 300))]}),
    ];
  }

  /** @param {Message} each */
  detail(each) {
    const bytes = bytesOf(each.base64), {form, shown} = decoded(bytes, params.value.as ?? 'auto'), {topic, partition} = this.place;
    const server = urlOf('');
    return h('section', {class: 'panel', key: 'detail', 'aria-label': `Message ${each.offset}`},
      h('h2', null, `Message ${count(each.offset)}`),
      h('dl', null, h('dt', null, 'Published'), h('dd', null, publishTime(each)), h('dt', null, 'Key'), h('dd', null, keyOf(each) || 'none'), h('dt', null, 'Size'), h('dd', null, size(bytes.length)),
        h('dt', null, 'Headers'), h('dd', null, JSON.stringify(each.headers ?? {}))),
      h('div', {class: 'fields'}, field('Shown as', h('select', {value: params.value.as ?? 'auto', onchange: (/** @type {any} */ event) => adjust({as: event.target.value === 'auto' ? null : event.target.value})}, FORMS.map((name) => h('option', {value: name}, name)))),
        /** @type {const} */ (['curl', 'Python', 'command line']).map((how) => h('button', {type: 'button', key: how, onclick: async () => { const text = copyAs(how, server, topic, Number(partition), each.offset); this.outcome.value = await copy(text) ?? text; }}, `Copy as ${how}`))),
      h('p', {role: 'status'}, this.outcome.value),
      h('pre', {tabindex: 0, 'aria-label': `Value as ${form}`}, shown));
  }
}

customElements.define('fencelog-messages', Messages);
