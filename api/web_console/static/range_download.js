// A range of a partition's messages as a file of JSON lines: all of it, or none.

import {field} from './parts.js';
import {count, size} from './format.js';
import {rangeOf} from './messages_core.js';
import {Problem, ask, partitionPath, said} from './service.js';
import {View, h, signal} from './view.js';

const PAGE = 10_000, PAGE_BYTES = 4 * 1024 * 1024;
/** What one file may have: the browser keeps it until it is saved. */
const MOST_BYTES = 512 * 1024 * 1024;

/** Save a file on the machine of the reader. @param {string} name @param {BlobPart[]} parts @param {string} type */
export function saveFile(name, parts, type) {
  const made = document.createElement('a');
  made.href = URL.createObjectURL(new Blob(parts, {type}));
  made.download = name;
  made.click();
  setTimeout(() => URL.revokeObjectURL(made.href), 1000);
}

/** @param {string} topic @param {string} partition @param {BlobPart[]} lines */
export const saveLines = (topic, partition, lines) => saveFile(`${topic.replaceAll('/', '_')}-${partition}.ndjson`, lines, 'application/x-ndjson');

/** @typedef {{lines: Blob, next: number, isAtTail: boolean}} Page */

/**
 * Read a range page by page, to its end, to the tail, or until it is large enough for a file.
 * @param {(from: number, limit: number) => Promise<Page>} read
 * @param {{first: number, last: number}} range @param {number} mostBytes @param {(next: number, bytes: number) => void} tell
 */
export async function readRange(read, {first, last}, mostBytes, tell) {
  const pages = [];
  let next = first, bytes = 0, isAtTail = false;
  while (next <= last && !isAtTail && bytes < mostBytes) {
    tell(next, bytes);
    const page = await read(next, Math.min(PAGE, last - next + 1));
    pages.push(page.lines);
    bytes += page.lines.size;
    ({next, isAtTail} = page);
  }
  return {pages, next, isWhole: next > last || isAtTail};
}

class RangeDownload extends View {
  begin() {
    this.outcome = signal('');
    /** The reading that goes on. @type {import('./view.js').Signal<AbortController | null>} */
    this.reading = signal(/** @type {AbortController | null} */ (null));
    this.endings.push(() => this.reading.current?.abort());
  }

  /** @param {AbortSignal} signal */
  reader(signal) {
    const path = `${partitionPath(this.getAttribute('topic') ?? '', this.getAttribute('partition') ?? '')}/messages`, view = this.getAttribute('view') ?? 'log';
    /** @param {number} from @param {number} limit @returns {Promise<Page>} */
    return async (from, limit) => {
      const query = new URLSearchParams({from: String(from), limit: String(limit), max_bytes: String(PAGE_BYTES), as: 'base64', view});
      const answer = await ask(`${path}?${query}`, {headers: {Accept: 'application/x-ndjson'}, signal});
      return {lines: await answer.blob(), next: Number(answer.headers.get('Next-Offset')), isAtTail: answer.headers.get('At-Tail') === 'true'};
    };
  }

  /** @param {SubmitEvent} event */
  async save(event) {
    event.preventDefault();
    if (this.reading.current) return;
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target)), range = rangeOf(String(form.get('first')), String(form.get('last')));
    if (range.mistake !== null) {
      this.outcome.value = range.mistake;
      return;
    }
    const abort = this.reading.value = new AbortController();
    try {
      const {pages, next, isWhole} = await readRange(this.reader(abort.signal), range, MOST_BYTES, (from, bytes) => {
        this.outcome.value = `Reading from ${count(from)} on; ${size(bytes)} so far…`;
      });
      saveLines(this.getAttribute('topic') ?? '', this.getAttribute('partition') ?? '', pages);
      this.outcome.value = `Saved what is there from ${count(range.first)} to ${count(Math.min(range.last, next - 1))}.${isWhole ? '' : ` A file is no longer than ${size(MOST_BYTES)}: go on from ${count(next)}.`}`;
    } catch (error) {
      const why = abort.signal.aborted ? 'Cancelled.' : error instanceof Problem ? said(error) : 'Failed: the broker has stopped answering.';
      this.outcome.value = `${why} Nothing was saved.`;
    }
    this.reading.value = null;
  }

  render() {
    const reading = this.reading.value;
    return h('details', null, h('summary', null, 'Download a range as NDJSON'), h('form', {class: 'fields', onsubmit: (/** @type {SubmitEvent} */ event) => this.save(event)},
      field('First offset', h('input', {name: 'first', inputmode: 'numeric', autocomplete: 'off', required: true})), field('Last offset', h('input', {name: 'last', inputmode: 'numeric', autocomplete: 'off', required: true})),
      h('button', {key: 'save', 'aria-disabled': reading ? 'true' : null}, 'Download'),
      reading && h('button', {type: 'button', key: 'cancel', onclick: () => reading.abort()}, 'Cancel')),
    h('p', {role: 'status'}, this.outcome.value));
  }
}

customElements.define('fencelog-range', RangeDownload);
