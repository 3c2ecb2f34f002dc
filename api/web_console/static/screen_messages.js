// The messages of a partition: from any place, live at the tail, filtered, decoded, copied, appended.

import {copy} from './copyable.js';
import {answered, empty, field, link} from './parts.js';
import {count, plural, size} from './format.js';
import {bytesOf, copyAs, decoded, keyOf, matches, oneLine, positionOf, publishTime} from './messages_core.js';
import {adjust, params} from './route.js';
import {atTop, rowList} from './rows.js';
import {Problem, ask, partitionPath, urlOf} from './service.js';
import {View, h, signal} from './view.js';

const PAGE = 200;
const KEPT = 5000;
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
    this.mistake = signal('');
    this.abort = new AbortController();
    this.endings.push(() => this.abort.abort());
    this.read(positionOf(params.current.from ?? '') ?? {from: 'earliest'});
  }

  /** Read anew from a place. @param {Record<string, string>} position */
  async read(position) {
    this.abort.abort();
    const abort = this.abort = new AbortController();
    this.messages.value = [];
    this.shown.value = {status: 'loading', data: null, problem: null, sinceMs: Date.now()};
    await this.more(position, abort, 0);
    if (this.isLive.current) this.follow(abort);
  }

  /** @param {Record<string, string>} position @param {AbortController} abort @param {number} waitS */
  async more(position, abort, waitS) {
    const query = new URLSearchParams({...position, limit: String(PAGE), as: 'base64', ...(waitS ? {wait: String(waitS)} : {})});
    const {topic, partition} = this.place;
    try {
      const said = await (await ask(`${partitionPath(topic, partition)}/messages?${query}`, {signal: abort.signal})).json();
      if (abort.signal.aborted) return false;
      this.end = {next: said.next_offset, tail: said.tail_offset};
      this.messages.value = [...this.messages.current, ...said.messages].slice(-KEPT);
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

  /** @param {SubmitEvent} event */
  async appendMessage(event) {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target), data = new FormData(form);
    const {topic, partition} = this.place, key = String(data.get('key') ?? '');
    try {
      const answer = await ask(`v1/topics/${topic}/messages?partition=${partition}`, {method: 'POST', body: String(data.get('value') ?? ''),
        headers: {'Content-Type': 'application/octet-stream', ...(key ? {'Fencelog-Key-Base64': btoa(String.fromCharCode(...new TextEncoder().encode(key)))} : {})}});
      const said = await answer.json();
      this.outcome.value = `Appended at offset ${count(said.offset)}.`;
      form.reset();
      if (!this.isLive.current && this.end.next === this.end.tail) await this.more({from: String(this.end.next)}, this.abort, 0);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.outcome.value = error.mayHaveEffect ? `Unknown: ${error.message}. It may have been appended.` : `Not appended: ${error.message}.`;
    }
  }

  /** Save the messages that are shown, one JSON object on each line. */
  download() {
    const lines = this.filtered().map((each) => `${JSON.stringify(each)}\n`);
    const made = document.createElement('a');
    made.href = URL.createObjectURL(new Blob(lines, {type: 'application/x-ndjson'}));
    made.download = `${this.place.topic.replaceAll('/', '_')}-${this.place.partition}.ndjson`;
    made.click();
    setTimeout(() => URL.revokeObjectURL(made.href), 1000);
  }

  filtered() {
    const filter = params.value.filter ?? '';
    return filter ? this.messages.value.filter((each) => matches(each, filter)) : this.messages.value;
  }

  render() {
    const {topic, partition} = this.place, {from = '', filter = ''} = params.value;
    return [
      h('h1', null, `Messages of ${topic}, partition ${partition}`),
      h('p', {class: 'crumbs'}, link(`Topic ${topic}`, 'topic', {topic}), ' · ', link('Ledger chain', 'partition', {topic, partition})),
      h('form', {class: 'fields', key: 'seek', onsubmit: (/** @type {SubmitEvent} */ event) => this.seek(event)},
        field('From (offset, time in UTC, earliest, latest)', h('input', {name: 'from', list: 'positions', autocomplete: 'off', placeholder: from || 'earliest'})),
        h('datalist', {id: 'positions'}, h('option', {value: 'earliest'}), h('option', {value: 'latest'})),
        h('button', null, 'Go there'),
        h('button', {type: 'button', 'aria-pressed': String(this.isLive.value), onclick: () => this.toggleLive()}, this.isLive.value ? 'Pause' : 'Follow the tail')),
      this.mistake.value && h('p', {class: 'bad', role: 'alert', key: 'mistake'}, this.mistake.value),
      h('div', {class: 'fields', key: 'filter'},
        field('Filter what is loaded (words, key:…, header:…, $.order.total>100)', h('input', {type: 'search', 'data-filter': true, value: filter, autocomplete: 'off', oninput: (/** @type {any} */ event) => adjust({filter: event.target.value})})),
        h('button', {type: 'button', onclick: () => this.download()}, 'Download as NDJSON')),
      answered(this.shown.value, 'the messages', () => this.list(filter)),
      this.chosen.value && this.detail(this.chosen.value),
      h('details', {key: 'append'}, h('summary', null, 'Append a message'), h('form', {onsubmit: (/** @type {SubmitEvent} */ event) => this.appendMessage(event)},
        field('Key (optional)', h('input', {name: 'key', autocomplete: 'off'})), field('Value', h('textarea', {name: 'value', rows: 4})), h('button', null, 'Append to this partition')),
        h('p', {role: 'status'}, this.outcome.value)),
    ];
  }

  /** @param {string} filter */
  list(filter) {
    const all = this.messages.value, found = this.filtered(), chosen = this.chosen.value;
    const more = this.end.tail - this.end.next;
    const about = `${plural(found.length, 'message')}${filter ? ` of ${count(all.length)} loaded` : ''}; ${more > 0 ? `${count(more)} more up to the tail` : 'up to the tail'}`;
    return [
      h('p', {role: 'status', key: 'about', class: 'muted'}, about, more > 0 && [' ', h('button', {type: 'button', onclick: () => this.more({from: String(this.end.next)}, this.abort, 0)}, `Load ${count(Math.min(more, PAGE))} more`)]),
      !found.length ? empty(filter && all.length ? 'No loaded message matches' : 'There is no message here', filter && all.length ? 'The filter looks at what is loaded: load more, or change it.' : 'The tail is reached. Messages appear here when they are appended and the tail is followed.')
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
