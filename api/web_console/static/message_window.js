// What is loaded of the messages of a partition, and the one request at a time that loads more.

import {filterOf} from './filter.js';
import {firstWithin, lastWithin, matches} from './messages_core.js';
import {Problem, ask, partitionPath} from './service.js';
import {signal} from './view.js';

/** @typedef {import('./messages_core.js').Message} Message */

/** The messages that a place is shown with, those of a further page, and those of a page before the first. */
const PAGE = 200;
export const MORE = 10_000, OLDER = 1_000;
/** The messages that are kept, a list of so many is still fast, and the memory that they may take. */
const KEPT = 100_000, KEPT_BYTES = 128 * 1024 * 1024;
/** The messages that one search looks at, those that it finds, and those that are looked at without a pause. */
const SEARCHED = 1_000_000, FOUND = 1_000, STEP = 500;
/** The messages of a page at the tail: who is farther behind skips what is between. */
const FOLLOWED = 1_000;
const MAX_BYTES = 4 * 1024 * 1024;
const WAIT_S = 15, AGAIN_MS = 1000;

/** @typedef {{messages: Message[], first: number, next: number, tail: number}} Page */

/** @returns {import('./service.js').Shown} */
const loading = () => ({status: 'loading', data: null, problem: null, sinceMs: Date.now()});

export class MessageWindow {
  /** @param {string} topic @param {string} partition */
  constructor(topic, partition) {
    this.path = `${partitionPath(topic, partition)}/messages`;
    this.view = 'log';
    this.messages = signal(/** @type {Message[]} */ ([]));
    this.shown = signal(loading());
    /** The offsets from the first that is loaded up to the next, and those that there are, as far as is known. */
    this.span = {first: 0, next: 0, earliest: 0, tail: 0};
    /** Whether anything reads, apart from a poll at the tail. */
    this.isReading = signal(false);
    this.isLive = signal(false);
    /** What was left out to follow the tail: so many offsets, the last of them before `to`. */
    this.skipped = signal(/** @type {{offsets: number, to: number} | null} */ (null));
    /** A search beyond what is loaded: how far it is, and whether it goes on. */
    this.search = signal(/** @type {{isRunning: boolean, found: number, from: number} | null} */ (null));
    this.abort = new AbortController();
  }

  /** Load nothing any more. */
  end() {
    this.isLive.value = false;
    this.abort.abort();
  }

  // -- one reader at a time -------------------------------------------------------------------------

  /**
   * Run what reads, unless anything else does. A poll at the tail gives way, and goes on afterwards.
   * @param {(signal: AbortSignal) => Promise<void>} work
   */
  async alone(work) {
    if (this.isReading.current) return;
    const signal = this.begin();
    this.isReading.value = true;
    try {
      await work(signal);
    } catch (error) {
      if (!signal.aborted) this.failed(error);
    }
    if (signal.aborted) return; // another one reads now
    this.isReading.value = false;
    if (this.isLive.current) this.poll();
  }

  /** Take the turn of whatever reads. */
  begin() {
    this.abort.abort();
    this.abort = new AbortController();
    return this.abort.signal;
  }

  /** @param {unknown} error */
  failed(error) {
    const problem = error instanceof Problem ? error : new Problem(0, {detail: String(error)});
    this.shown.value = {status: problem.isRefused ? 'refused' : 'failed', data: problem.isRefused ? null : this.shown.current.data, problem, sinceMs: Date.now()};
  }

  /** @param {Record<string, string>} position @param {number} limit @param {AbortSignal} signal @param {number} [waitS] @returns {Promise<Page>} */
  async page(position, limit, signal, waitS) {
    const query = new URLSearchParams({...position, limit: String(limit), max_bytes: String(MAX_BYTES), as: 'base64', ...(waitS ? {wait: String(waitS)} : {}), ...this.viewed()});
    const answer = await ask(`${this.path}?${query}`, {signal}), {messages, next_offset: next, tail_offset: tail} = await answer.json();
    return {messages, first: Number(answer.headers.get('Start-Offset')), next, tail};
  }

  /** @returns {Record<string, string>} */
  viewed() {
    return this.view === 'log' ? {} : {view: this.view};
  }

  /** The offsets that there are. @param {AbortSignal} signal */
  async ends(signal) {
    try {
      const {headers} = await ask(`${this.path}?${new URLSearchParams({from: 'latest', ...this.viewed()})}`, {method: 'HEAD', signal});
      return {earliest: Number(headers.get('Earliest-Offset')), tail: Number(headers.get('Tail-Offset'))};
    } catch (error) {
      if (error instanceof Problem && error.status) await this.page({from: 'latest'}, 1, signal); // its problem says why
      throw error;
    }
  }

  // -- loading --------------------------------------------------------------------------------------

  /**
   * Show a place, in place of what is loaded or is being loaded. `latest`: the last page.
   * @param {Record<string, string>} position @param {string} view `log` or `compacted`
   */
  open(position, view) {
    this.abort.abort();
    this.isReading.value = false;
    this.view = view;
    this.messages.value = [];
    this.search.value = this.skipped.value = null;
    this.span = {first: 0, next: 0, earliest: 0, tail: 0};
    this.shown.value = loading();
    return this.alone((signal) => (position.from === 'latest' ? this.toTail(signal) : this.toPlace(position, signal)));
  }

  /** @param {Record<string, string>} position @param {AbortSignal} signal */
  async toPlace(position, signal) {
    const page = await this.page(position, PAGE, signal);
    this.span.first = page.first;
    if (position.from === 'earliest') this.span.earliest = page.first;
    this.add(page);
  }

  /** @param {AbortSignal} signal */
  async toTail(signal) {
    const {earliest, tail} = await this.ends(signal), from = Math.max(earliest, tail - PAGE);
    const page = await this.page({from: String(from)}, PAGE, signal);
    this.messages.value = [];
    this.span = {...this.span, first: from, earliest};
    this.add(page);
  }

  /** Add what follows. @param {Page} page */
  add({messages, next, tail}) {
    const all = messages.length ? [...this.messages.current, ...messages] : this.messages.current, kept = lastWithin(all, KEPT, KEPT_BYTES);
    this.span = {...this.span, next, tail, first: kept.length < all.length ? kept[0].offset : this.span.first};
    this.show(kept);
  }

  /** @param {Message[]} messages */
  show(messages) {
    this.messages.value = messages;
    this.shown.value = {status: 'ready', data: this.span, problem: null, sinceMs: Date.now()};
  }

  /** Load what follows. */
  more() {
    return this.alone(async (signal) => this.add(await this.page({from: String(this.span.next)}, MORE, signal)));
  }

  /** Load what comes before the first message. Who looks back does not follow the tail. */
  older() {
    this.pause();
    return this.alone(async (signal) => {
      const {earliest} = await this.ends(signal), {first} = this.span, from = Math.max(earliest, first - OLDER);
      /** @type {Message[]} */
      let found = [];
      for (let next = from; next < first;) {
        const page = await this.page({from: String(next)}, first - next, signal);
        found = lastWithin([...found, ...page.messages.filter((each) => each.offset < first)], KEPT, KEPT_BYTES);
        next = page.next;
      }
      const all = [...found, ...this.messages.current], kept = firstWithin(all, KEPT, KEPT_BYTES);
      this.span = {...this.span, earliest, first: from, next: kept.length < all.length ? kept[kept.length - 1].offset + 1 : this.span.next};
      this.show(kept);
    });
  }

  // -- the tail -------------------------------------------------------------------------------------

  follow() {
    this.isLive.value = true;
    if (!this.isReading.current) this.poll();
  }

  pause() {
    this.isLive.value = false;
    if (!this.isReading.current) this.abort.abort(); // the poll
  }

  /** Load what comes at the tail, until it is paused or anything else reads. */
  async poll() {
    const signal = this.begin();
    while (this.isLive.current && !signal.aborted && this.shown.current.status !== 'refused') {
      try {
        const {next, tail} = this.span;
        if (this.shown.current.data === null) await this.toTail(signal);
        else if (tail - next > FOLLOWED) await this.skip(signal);
        else this.add(await this.page({from: String(next)}, FOLLOWED, signal, WAIT_S));
      } catch (error) {
        if (signal.aborted) return;
        this.failed(error);
        await new Promise((done) => { setTimeout(done, AGAIN_MS); });
      }
    }
  }

  /** Leave out what is between here and the tail. @param {AbortSignal} signal */
  async skip(signal) {
    const {next} = this.span, before = this.skipped.current?.offsets ?? 0;
    await this.toTail(signal);
    this.search.value = null;
    this.skipped.value = {offsets: before + this.span.first - next, to: this.span.first};
  }

  // -- beyond what is loaded ------------------------------------------------------------------------

  /**
   * Look for messages that a filter lets through, page after page, until some number is found, the
   * tail is reached, it is stopped, or the filter is another one.
   * @param {string} filter @param {() => boolean} isWanted whether the filter is still the same
   */
  searchOn(filter, isWanted) {
    return this.alone(async (signal) => {
      const {found: before, from} = this.search.current ?? {found: 0, from: this.span.next};
      let looked = 0, found = before;
      const wanted = filterOf(filter);
      const isOn = () => Boolean(this.search.current?.isRunning) && isWanted();
      this.search.value = {isRunning: true, found, from};
      try {
        while (isOn() && this.span.next < this.span.tail && looked < SEARCHED && found < before + FOUND) {
          const page = await this.page({from: String(this.span.next)}, MORE, signal), messages = await chosenOf(page.messages, wanted);
          signal.throwIfAborted();
          looked += page.next - this.span.next;
          found += messages.length;
          this.add({...page, messages});
          this.search.value = {isRunning: isOn(), found, from};
        }
      } finally {
        if (!signal.aborted) this.search.value = {isRunning: false, found, from};
      }
    });
  }

  stopSearch() {
    if (this.search.current) this.search.value = {...this.search.current, isRunning: false};
  }
}

/** The messages that a filter lets through. Keys and the button to stop come first. @param {Message[]} messages @param {import('./filter.js').Filter} filter */
async function chosenOf(messages, filter) {
  const chosen = [];
  for (let at = 0; at < messages.length; at += STEP) {
    chosen.push(...messages.slice(at, at + STEP).filter((each) => matches(each, filter)));
    await new Promise((done) => { setTimeout(done); });
  }
  return chosen;
}
