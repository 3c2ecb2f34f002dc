// Requests to the service that serves the console, and what has become of them.

import {authorization, isTokenAsked} from './token.js';
import {signal} from './view.js';

/** The root of the service, wherever it is mounted. */
const ROOT = new URL('..', document.baseURI);

/** What the service has refused, or how the request failed. */
export class Problem extends Error {
  /** @param {number} status @param {Record<string, any>} said */
  constructor(status, said) {
    super(said.detail ?? said.title ?? `answered with status ${status}`);
    this.status = status;
    this.code = said.code ?? '';
    /** The member of the request that is at fault, if it is one. */
    this.field = /** @type {string | undefined} */ (said.field);
    this.mayHaveEffect = (said.side_effects ?? 'none') !== 'none';
    /** Refused: the request is at fault, or not allowed. Else it failed and may be sent again. */
    this.isRefused = status >= 400 && status < 500 && !said.retryable;
  }
}

/** @param {string} path below the root, `v1/…` */
export const urlOf = (path) => new URL(path, ROOT).href;

/** @param {string} topic @param {number | string} partition */
export const partitionPath = (topic, partition) => `v1/topics/${topic}/partitions/${partition}`;

/**
 * Send a request; return the answer. Raises Problem.
 * @param {string} path
 * @param {RequestInit} [init]
 */
export async function ask(path, init = {}) {
  let answer;
  try {
    answer = await fetch(urlOf(path), {cache: 'no-store', ...init, headers: {...init.headers, ...authorization}});
  } catch (error) {
    if (/** @type {Error} */ (error).name === 'AbortError') throw error;
    const isReading = (init.method ?? 'GET') === 'GET';
    throw new Problem(0, {detail: 'the broker does not answer', side_effects: isReading ? 'none' : 'maybe'});
  }
  if (answer.status === 401) isTokenAsked.value = true;
  else if (answer.ok) isTokenAsked.value = false;
  if (answer.ok || answer.status === 304) return answer;
  let said = {};
  try {
    said = await answer.json();
  } catch { /* a proxy's page: the status says enough */ }
  throw new Problem(answer.status, said);
}

/** Send JSON, or nothing. @param {string} method @param {string} path @param {any} [body] a text is JSON already */
export function change(method, path, body) {
  const sent = body === undefined ? {} : {body: typeof body === 'string' ? body : JSON.stringify(body), headers: {'Content-Type': 'application/json'}};
  return ask(path, {method, ...sent});
}

/** What to say of a problem. @param {unknown} error */
export function said(error) {
  if (!(error instanceof Problem)) throw error;
  return `${error.isRefused ? 'Refused' : 'Failed'}: ${error.message}.${error.mayHaveEffect ? ' It may have been done all the same.' : ''}`;
}

// -- several answers to one request ---------------------------------------------------------------

/** What a page asks for in one turn goes out as one request. */
const TOGETHER = 'v1/admin/together';

/** The paths of one request; the service takes no more. */
const MOST_TOGETHER = 16;

/**
 * A reading that waits for its request. `tag`: of the answer that is known; `data` null: it is as known.
 * @typedef {{status: number, tag: string, data: any}} Answer
 * @typedef {{path: string, tag: string, signal: AbortSignal, done: (answer: Answer) => void, failed: (error: unknown) => void}} Reading
 */

/** @type {Reading[]} */
let waiting = [];

/**
 * Read a path, together with whatever else is read in this turn. Raises Problem.
 * @param {string} path @param {string} tag @param {AbortSignal} signal @returns {Promise<Answer>}
 */
function read(path, tag, signal) {
  if (!waiting.length) setTimeout(send);
  return new Promise((done, failed) => {
    waiting.push({path, tag, signal, done, failed});
  });
}

function send() {
  /** @type {Map<string, Reading[]>} */
  const byPath = new Map();
  for (const each of waiting) if (!each.signal.aborted) byPath.set(each.path, [...byPath.get(each.path) ?? [], each]);
  waiting = [];
  const paths = [...byPath.values()];
  for (let first = 0; first < paths.length; first += MOST_TOGETHER) readTogether(paths.slice(first, first + MOST_TOGETHER));
}

/** Send one request, and give each path its answer as it comes. @param {Reading[][]} paths */
async function readTogether(paths) {
  const all = paths.flat(), abort = new AbortController(), left = new Map(paths.map((readings) => [readings[0].path, readings]));
  for (const each of all) each.signal.addEventListener('abort', () => { if (all.every(({signal}) => signal.aborted)) abort.abort(); });
  const query = new URLSearchParams([...left.keys()].map((path) => ['path', `/${path}`]));
  // Who reads the same path with another tag, or none, is to get the body.
  for (const readings of paths) if (readings[0].tag && readings.every(({tag}) => tag === readings[0].tag)) query.append('known', readings[0].tag);
  try {
    const answer = await ask(`${TOGETHER}?${query}`, {signal: abort.signal});
    for await (const line of linesOf(answer)) {
      const {path, status, etag, body} = JSON.parse(line), readings = left.get(path.slice(1)) ?? [];
      left.delete(path.slice(1));
      for (const each of readings) {
        if (status === 200 || status === 304) each.done({status, tag: etag ?? '', data: body});
        else each.failed(new Problem(status, body));
      }
    }
    throw new Problem(0, {detail: 'the broker does not answer'});
  } catch (error) {
    for (const each of [...left.values()].flat()) each.failed(error instanceof TypeError ? new Problem(0, {detail: 'the broker does not answer'}) : error);
  }
}

/** The lines of an answer, as they come. @param {Response} answer */
async function* linesOf(answer) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader(), decoder = new TextDecoder();
  let rest = '';
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    const lines = (rest + decoder.decode(value, {stream: true})).split('\n');
    rest = /** @type {string} */ (lines.pop());
    yield* lines;
  }
}

/** How soon what is asked for once is asked for again when that has failed. */
const AGAIN_MS = 3000;

/** Polls end at multiples of this, so that those of a page come together. */
const TICK_MS = 500;

/**
 * An answer that is asked for again and again, while the page is visible.
 * @typedef {{status: 'loading' | 'ready' | 'refused' | 'failed', data: any, problem: Problem | null, sinceMs: number}} Shown
 */
export class Resource {
  /** @param {() => string} pathOf @param {number} everyMs 0: once, or until it does not fail */
  constructor(pathOf, everyMs) {
    this.pathOf = pathOf;
    this.everyMs = everyMs;
    /** @type {import('./view.js').Signal<Shown>} */
    this.shown = signal(/** @type {Shown} */ ({status: 'loading', data: null, problem: null, sinceMs: Date.now()}));
    this.path = '';
    this.tag = '';
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.abort = new AbortController();
    this.isOver = false;
    this.onVisible = () => {
      if (!document.hidden) this.refresh();
    };
    document.addEventListener('visibilitychange', this.onVisible);
    this.refresh();
  }

  /** Ask now. What was asked and has not been answered yet is forgotten. */
  async refresh() {
    clearTimeout(this.timer);
    this.abort.abort();
    const abort = this.abort = new AbortController();
    const path = this.pathOf();
    if (path !== this.path) {
      this.path = path;
      this.tag = '';
      this.shown.value = {status: 'loading', data: null, problem: null, sinceMs: Date.now()};
    }
    try {
      const answer = await read(path, this.tag, abort.signal);
      if (abort.signal.aborted) return;
      if (answer.status === 304) {
        const before = this.shown.current;
        if (before.problem) this.shown.value = {...before, status: 'ready', problem: null, sinceMs: Date.now()};
      } else {
        this.tag = answer.tag;
        this.shown.value = {status: 'ready', data: answer.data, problem: null, sinceMs: Date.now()};
      }
    } catch (error) {
      if (abort.signal.aborted || this.isOver) return;
      const problem = error instanceof Problem ? error : new Problem(0, {detail: String(error)});
      const before = this.shown.current;
      if (problem.isRefused) this.tag = '';
      const sinceMs = before.problem ? before.sinceMs : Date.now();
      this.shown.value = {status: problem.isRefused ? 'refused' : 'failed', data: problem.isRefused ? null : before.data, problem, sinceMs};
    }
    const everyMs = this.everyMs || (this.shown.current.status === 'failed' ? AGAIN_MS : 0);
    if (!this.isOver && everyMs && !abort.signal.aborted) {
      this.timer = setTimeout(() => {
        if (!document.hidden) this.refresh();
      }, Math.max(1, everyMs - Date.now() % TICK_MS));
    }
  }

  end() {
    this.isOver = true;
    clearTimeout(this.timer);
    this.abort.abort();
    document.removeEventListener('visibilitychange', this.onVisible);
  }
}
