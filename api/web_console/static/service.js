// Requests to the service that serves the console, and what has become of them.

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
    answer = await fetch(urlOf(path), {cache: 'no-store', ...init});
  } catch (error) {
    if (/** @type {Error} */ (error).name === 'AbortError') throw error;
    const isReading = (init.method ?? 'GET') === 'GET';
    throw new Problem(0, {detail: 'the broker does not answer', side_effects: isReading ? 'none' : 'maybe'});
  }
  if (answer.ok || answer.status === 304) return answer;
  let said = {};
  try {
    said = await answer.json();
  } catch { /* a proxy's page: the status says enough */ }
  throw new Problem(answer.status, said);
}

/** Send JSON, or nothing. @param {string} method @param {string} path @param {any} [body] */
export function change(method, path, body) {
  const sent = body === undefined ? {} : {body: JSON.stringify(body), headers: {'Content-Type': 'application/json'}};
  return ask(path, {method, ...sent});
}

/** What to say of a problem. @param {unknown} error */
export function said(error) {
  if (!(error instanceof Problem)) throw error;
  return `${error.isRefused ? 'Refused' : 'Failed'}: ${error.message}.${error.mayHaveEffect ? ' It may have been done all the same.' : ''}`;
}

/**
 * An answer that is asked for again and again, while the page is visible.
 * @typedef {{status: 'loading' | 'ready' | 'refused' | 'failed', data: any, problem: Problem | null, sinceMs: number}} Shown
 */
export class Resource {
  /** @param {() => string} pathOf @param {number} everyMs 0: once */
  constructor(pathOf, everyMs) {
    this.pathOf = pathOf;
    this.everyMs = everyMs;
    /** @type {import('./view.js').Signal<Shown>} */
    this.shown = signal(/** @type {Shown} */ ({status: 'loading', data: null, problem: null, sinceMs: Date.now()}));
    this.path = '';
    this.etag = '';
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
      this.etag = '';
      this.shown.value = {status: 'loading', data: null, problem: null, sinceMs: Date.now()};
    }
    try {
      const answer = await ask(path, {signal: abort.signal, headers: this.etag ? {'If-None-Match': this.etag} : {}});
      if (answer.status === 304) {
        const before = this.shown.current;
        if (before.problem) this.shown.value = {...before, status: 'ready', problem: null, sinceMs: Date.now()};
      } else {
        const data = await answer.json();
        if (abort.signal.aborted) return;
        this.etag = answer.headers.get('ETag') ?? '';
        this.shown.value = {status: 'ready', data, problem: null, sinceMs: Date.now()};
      }
    } catch (error) {
      if (abort.signal.aborted || this.isOver) return;
      const problem = error instanceof Problem ? error : new Problem(0, {detail: String(error)});
      const before = this.shown.current;
      const sinceMs = before.problem ? before.sinceMs : Date.now();
      this.shown.value = {status: problem.isRefused ? 'refused' : 'failed', data: problem.isRefused ? null : before.data, problem, sinceMs};
    }
    if (!this.isOver && this.everyMs && !abort.signal.aborted) {
      this.timer = setTimeout(() => {
        if (!document.hidden) this.refresh();
      }, this.everyMs);
    }
  }

  end() {
    this.isOver = true;
    clearTimeout(this.timer);
    this.abort.abort();
    document.removeEventListener('visibilitychange', this.onVisible);
  }
}
