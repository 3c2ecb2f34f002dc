// The messages of a partition: from any place, live at the tail, filtered, decoded, copied, appended.

import {appendForm} from './append_form.js';
import {copy} from './copyable.js';
import {filterOf} from './filter.js';
import {MORE, MessageWindow, OLDER} from './message_window.js';
import {answered, empty, field, link} from './parts.js';
import {count, plural, size} from './format.js';
import {bytesOf, copyAs, keyOf, matches, oneLine, positionOf, publishTime, shownOf} from './messages_core.js';
import {adjust, adjustSoon, params} from './route.js';
import {ROW_PX, atTop, rowList, toRow} from './rows.js';
import {saveFile, saveLines} from './range_download.js';
import {urlOf} from './service.js';
import {View, effect, h, signal} from './view.js';

const FORMS = ['auto', 'text', 'json', 'msgpack', 'hex'];

/** The places where there are no messages by the code of the problem: what they are, and where to go instead. @type {Record<string, {title: string, about: string, from: string, text: string}>} */
const OUTSIDE = {
  offset_beyond_tail: {title: 'Nothing is written there yet', about: 'The last message is at the tail.', from: 'latest', text: 'To the tail'},
  offset_trimmed: {title: 'These messages are deleted', about: 'Retention or a trim has removed them for good.', from: 'earliest', text: 'To the earliest message'},
};

/** @typedef {import('./messages_core.js').Message} Message */

class Messages extends View {
  begin() {
    const {topic = '', partition = '0'} = params.current;
    this.place = {topic, partition};
    this.loaded = new MessageWindow(topic, partition);
    this.loaded.isLive.value = params.current.live === '1';
    this.sight = signal(atTop());
    this.chosen = signal(/** @type {Message | null} */ (null));
    /** The message of the address that was looked for beyond what the place has. @type {string | undefined} */
    this.sought = undefined;
    this.outcome = signal('');
    this.mistake = signal('');
    /** Which messages a filter lets through, so that none is looked at twice. @type {{filter: string, of: WeakMap<Message, boolean>, all: Message[], found: Message[]}} */
    this.verdicts = {filter: '', of: new WeakMap(), all: [], found: []};
    this.onAppended = () => this.appended();
    /** @type {string | undefined} */
    let shown;
    this.endings.push(() => this.loaded.end(), effect(() => {
      const {from = '', view = 'log'} = params.value, place = JSON.stringify([from, view]);
      if (place !== shown) this.read();
      shown = place;
    }), effect(() => this.toEnd()), effect(() => this.toChosen()));
  }

  /** Choose the message that the address names; where it is not loaded, go there. */
  toChosen() {
    const {message} = params.value, messages = this.loaded.messages.value, {status} = this.loaded.shown.value;
    if (message === undefined || status !== 'ready' || String(this.chosen.current?.offset) === message) return;
    const index = messages.findIndex((each) => String(each.offset) === message);
    if (index >= 0) {
      this.chosen.value = messages[index];
      toRow(this, this.filtered().indexOf(messages[index]));
    } else if (this.sought !== message && !this.loaded.isLive.current && positionOf(message)) {
      this.sought = message;
      this.loaded.open({from: message}, params.current.view ?? 'log');
    }
  }

  /** @param {Message} each */
  choose(each) {
    this.chosen.value = each;
    adjustSoon({message: each.offset});
  }

  /** Read anew, at the place in the address or at the tail. */
  read() {
    const {from = '', view = 'log'} = params.current;
    this.chosen.value = null;
    this.loaded.open(this.loaded.isLive.current ? {from: 'latest'} : positionOf(from) ?? {from: 'earliest'}, view);
  }

  /** Show the last message whenever one comes, while the tail is followed. */
  toEnd() {
    if (this.loaded.messages.value.length && this.loaded.isLive.value) {
      requestAnimationFrame(() => {
        const list = this.querySelector('.list');
        if (list && this.loaded.isLive.current) list.scrollTop = list.scrollHeight;
      });
    }
  }

  toggleLive() {
    if (this.loaded.isLive.current) this.loaded.pause();
    else this.loaded.follow();
    adjust({live: this.loaded.isLive.current ? '1' : null});
  }

  /** Load what comes before, and leave in sight what is. */
  async older() {
    const [first] = this.filtered();
    adjust({live: null});
    await this.loaded.older();
    const before = this.filtered().indexOf(first);
    requestAnimationFrame(() => {
      const list = this.querySelector('.list');
      if (list && before > 0) list.scrollTop += before * ROW_PX;
    });
  }

  searchOn() {
    const {filter = ''} = params.current;
    this.loaded.searchOn(filter, () => filter === (params.current.filter ?? ''));
  }

  /** Go where the form says. Who goes elsewhere does not follow the tail. @param {SubmitEvent} event */
  seek(event) {
    event.preventDefault();
    const text = String(new FormData(/** @type {HTMLFormElement} */ (event.target)).get('from') ?? '');
    const position = positionOf(text);
    this.mistake.value = position ? '' : `“${text}” is neither an offset, earliest, latest, nor a time like 2026-01-31 12:00:00 (UTC).`;
    if (!position) return;
    this.loaded.pause();
    const isThere = text === (params.current.from ?? '');
    adjust({from: text, live: null, message: null});
    if (isThere) this.read();
  }

  /** Show what was appended by hand, unless it comes by itself. */
  appended() {
    const {next, tail} = this.loaded.span;
    if (!this.loaded.isLive.current && next === tail) this.loaded.more();
  }

  /** Save the messages that are shown, one JSON object on each line. */
  saveShown() {
    saveLines(this.place.topic, this.place.partition, this.filtered().map((each) => `${JSON.stringify(each)}\n`));
  }

  filtered() {
    const filter = params.value.filter ?? '', all = this.loaded.messages.value, before = this.verdicts;
    if (!filter) return all;
    const wanted = filterOf(filter);
    if (before.filter === filter && before.all === all) return before.found;
    const of = before.filter === filter ? before.of : new WeakMap();
    const found = all.filter((each) => {
      let is = of.get(each);
      if (is === undefined) of.set(each, is = matches(each, wanted));
      return is;
    });
    this.verdicts = {filter, of, all, found};
    return found;
  }

  render() {
    const {topic, partition} = this.place, {from = '', filter = '', view = 'log'} = params.value, isLive = this.loaded.isLive.value;
    return [
      h('h1', null, `Messages of ${topic}, partition ${partition}`),
      h('p', {class: 'crumbs'}, link(`Topic ${topic}`, 'topic', {topic}), ' · ', link('Ledger chain', 'partition', {topic, partition})),
      h('form', {class: 'fields', key: 'seek', onsubmit: (/** @type {SubmitEvent} */ event) => this.seek(event)},
        field('From (offset, time in UTC, earliest, latest)', h('input', {name: 'from', list: 'positions', autocomplete: 'off', placeholder: from || 'earliest'})),
        h('datalist', {id: 'positions'}, h('option', {value: 'earliest'}), h('option', {value: 'latest'})),
        h('button', null, 'Go there'),
        field('View', h('select', {value: view, onchange: (/** @type {any} */ event) => adjust({view: event.target.value === 'log' ? null : event.target.value, message: null})}, h('option', {value: 'log'}, 'the log'), h('option', {value: 'compacted'}, 'the compacted view'))),
        h('button', {type: 'button', 'aria-pressed': String(isLive), onclick: () => this.toggleLive()}, isLive ? 'Pause' : 'Follow the tail')),
      this.mistake.value && h('p', {class: 'bad', role: 'alert', key: 'mistake'}, this.mistake.value),
      view === 'compacted' && h('p', {class: 'muted', key: 'view'}, 'The newest message of every key, and all messages without one; above what is compacted by now, it is the log. Offsets have gaps.'),
      h('div', {class: 'fields', key: 'filter'},
        field('Filter what is loaded (words, "some words", key:…, header:name=…, $.order.total>100)', h('input', {type: 'search', 'data-filter': true, value: filter, autocomplete: 'off', oninput: (/** @type {any} */ event) => adjust({filter: event.target.value})})),
        h('button', {type: 'button', onclick: () => this.saveShown()}, 'Download as NDJSON')),
      this.outside() ?? answered(this.loaded.shown.value, 'the messages', () => this.list(filter), () => this.read()),
      this.chosen.value && this.detail(this.chosen.value),
      h('fencelog-range', {live: true, key: 'range', topic, partition, view}),
      appendForm(topic, partition, this.onAppended),
    ];
  }

  /** The picture of a place before the first message or after the last. */
  outside() {
    const {problem} = this.loaded.shown.value, place = OUTSIDE[problem?.code ?? ''];
    return place && h('div', {class: 'picture empty', role: 'status', 'data-picture': 'outside', key: 'outside'}, h('h2', null, place.title), h('p', null, `${problem?.message}. ${place.about} `, link(place.text, 'messages', {...params.value, from: place.from, message: null})));
  }

  /** @param {string} filter */
  list(filter) {
    const found = this.filtered(), chosen = this.chosen.value;
    return [this.about(filter, found.length), this.searched(),
      !found.length ? this.nothing(filter)
        : rowList({name: 'Messages', items: found, idOf: (each) => `m${each.offset}`, chosen: chosen && `m${chosen.offset}`, sight: this.sight,
          choose: (each) => this.choose(each),
          cells: (each) => [h('span', {class: 'offset'}, count(each.offset)), h('span', {class: 'time'}, publishTime(each).slice(11, 23)), h('span', {class: 'key'}, keyOf(each) || '–'), h('span', {class: 'value'}, oneLine(bytesOf(each.base64.slice(0, 400)), 300))]}),
    ];
  }

  /** What is loaded, what is not, and the buttons that load it. @param {string} filter @param {number} found */
  about(filter, found) {
    const {span: {first, next, earliest, tail}, messages, skipped, isReading} = this.loaded, more = tail - next, older = first - earliest;
    const left = params.value.view === 'compacted' ? `${plural(more, 'offset')} left up to the tail` : `${count(more)} more up to the tail`;
    const isSearching = this.loaded.search.value?.isRunning, isBusy = isReading.value;
    /** @param {string} key @param {string} text @param {() => void} load */
    const button = (key, text, load) => [' ', h('button', {type: 'button', key, 'aria-disabled': isBusy ? 'true' : null, onclick: load}, text)];
    return h('p', {role: 'status', key: 'about', class: 'muted'},
      `${plural(found, 'message')}${filter ? ` of ${count(messages.value.length)} loaded` : ''}; ${more > 0 ? left : 'up to the tail'}`,
      skipped.value && `. Skipped ${plural(skipped.value.offsets, 'offset')} to follow the tail, up to ${count(skipped.value.to)}`,
      !isSearching && [
        older > 0 && button('older', `Load ${count(Math.min(older, OLDER))} older`, () => this.older()),
        more > 0 && button('more', `Load ${count(Math.min(more, MORE))} more`, () => this.loaded.more()),
        more > 0 && filter && !filterOf(filter).mistake && !this.loaded.isLive.value && button('search', 'Search further', () => this.searchOn())]);
  }

  /** What a search beyond what was loaded has found. */
  searched() {
    const search = this.loaded.search.value;
    return search && h('p', {role: 'status', key: 'search', class: 'muted'}, `${search.isRunning ? 'Searching' : 'Searched'} from offset ${count(search.from)} to ${count(this.loaded.span.next)}: ${plural(search.found, 'message')} found. Of these offsets only what was found is loaded. `,
      search.isRunning ? h('button', {type: 'button', key: 'stop', onclick: () => this.loaded.stopSearch()}, 'Stop the search')
        : h('button', {type: 'button', key: 'all', onclick: () => this.loaded.open({from: String(search.from)}, params.current.view ?? 'log')}, 'Load them all from there'));
  }

  /** @param {string} filter */
  nothing(filter) {
    const {span: {next, tail}, messages} = this.loaded, {mistake} = filterOf(filter);
    if (mistake) return empty('The filter is not understood', mistake);
    if (!filter || !messages.value.length) return empty('There is no message here', 'The tail is reached. Messages appear here when they are appended and the tail is followed.');
    return empty('No loaded message matches', tail > next ? 'The filter looks at what is loaded: search further, load more, or change it.' : 'The filter looks at what is loaded, which reaches the tail: change it.');
  }

  /** @param {Message} each */
  detail(each) {
    const bytes = bytesOf(each.base64), {form, shown, isCut} = shownOf(bytes, params.value.as ?? 'auto'), {topic, partition} = this.place;
    const server = urlOf('');
    return h('section', {class: 'panel', key: 'detail', 'aria-label': `Message ${each.offset}`},
      h('h2', null, `Message ${count(each.offset)}`),
      h('dl', null, h('dt', null, 'Published'), h('dd', null, publishTime(each)), h('dt', null, 'Key'), h('dd', null, keyOf(each) || 'none'), h('dt', null, 'Size'), h('dd', null, size(bytes.length)),
        h('dt', null, 'Headers'), h('dd', null, JSON.stringify(each.headers ?? {}))),
      h('div', {class: 'fields'}, field('Shown as', h('select', {value: params.value.as ?? 'auto', onchange: (/** @type {any} */ event) => adjust({as: event.target.value === 'auto' ? null : event.target.value})}, FORMS.map((name) => h('option', {value: name}, name)))),
        /** @type {const} */ (['curl', 'Python', 'command line']).map((how) => h('button', {type: 'button', key: how, onclick: async () => { const text = copyAs(how, server, topic, Number(partition), each.offset); this.outcome.value = await copy(text) ?? text; }}, `Copy as ${how}`))),
      h('p', {role: 'status'}, this.outcome.value),
      isCut && h('p', {class: 'muted', key: 'cut'}, `The beginning of ${size(bytes.length)}. `, h('button', {type: 'button', onclick: () => saveFile(`${topic.replaceAll('/', '_')}-${partition}-${each.offset}`, [bytes], 'application/octet-stream')}, 'Download the value')),
      h('pre', {tabindex: 0, 'aria-label': `Value as ${form}`}, shown));
  }
}

customElements.define('fencelog-messages', Messages);
