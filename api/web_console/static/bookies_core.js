// Bookies as people read them: their disks, how far those that leave have come, and the copies that
// are made again. Decisions on values alone.

import {clock, count, duration, plural, rate, size} from './format.js';

/** More than this nobody reads; the rest is counted. */
const MOST_NAMED = 5;

/**
 * @typedef {{path: string, holds: string[], total_bytes: number, free_bytes: number}} Directory
 * @typedef {{used: number, text: string}} Disk `used`: its share, 0 to 1
 * @typedef {{bookie_id: string, since_us: number, phase: string, remainder: {at_us: number, fragments: number, ledgers: number, not_closed: number, unreadable: number} | null}} Job
 */

/** A disk in words; null: nobody has said how large it is. @param {number | null} freeBytes @param {number | null} totalBytes @returns {Disk | null} */
export function diskOf(freeBytes, totalBytes) {
  if (!totalBytes || freeBytes === null) return null;
  const used = (totalBytes - freeBytes) / totalBytes;
  return {used, text: `${size(freeBytes)} free of ${size(totalBytes)}, ${Math.round(used * 100)}% used`};
}

/** What is kept in each directory, in words, and its disk. @param {Directory[]} directories @returns {{path: string, holds: string, disk: Disk | null}[]} */
export const directoriesOf = (directories) => directories.map((each) => ({path: each.path, holds: each.holds.join(' and '), disk: diskOf(each.free_bytes, each.total_bytes)}));

/** When a disk takes no entries any more. @param {any} bookie */
export function foretold(bookie) {
  if (bookie.problem) return `not known: ${bookie.problem}`;
  if (bookie.is_full) return 'it is full';
  return bookie.full_in_s === null ? 'not foretold' : `full in ${duration(bookie.full_in_s * 1000)}`;
}

/** How far a bookie that leaves has come. @param {Job} job */
export function progressOf(job) {
  const since = `Since ${clock(job.since_us)} UTC.`;
  if (job.phase === 'removing') return `It was stopped, and is removed after a last look at all ledgers. ${since}`;
  if (job.phase === 'drained') return `No ledger names it any more: stop it. ${since}`;
  if (!job.remainder) return `Its copies are made elsewhere; what is left was not counted yet. ${since}`;
  const {fragments, ledgers, not_closed: open, unreadable, at_us: atUs} = job.remainder;
  const waits = [open && `${count(open)} of them ${open > 1 ? 'are' : 'is'} still being written`, unreadable && `${plural(unreadable, 'node')} of metadata cannot be read`].filter(Boolean).join(', ');
  return `Left on it: ${plural(fragments, 'fragment')} of ${plural(ledgers, 'ledger')}${waits ? `; ${waits}` : ''}. Counted at ${clock(atUs)} UTC. ${since}`;
}

/** The state of self-healing in sentences. @param {any} status of self-healing @param {number} marked how many ledgers lack copies */
export function healingOf(status, marked) {
  const workers = status.processes.filter((/** @type {any} */ each) => !each.worker.is_disabled), found = [];
  if (!status.is_enabled) found.push('It is switched off: no copies are made.');
  else if (!workers.length) found.push('No process makes copies: start fencelog autorecovery, or a bookie that heals.');
  found.push(status.auditor ? `${status.auditor.process_id} looks for ledgers that lack copies.` : 'No process looks for ledgers that lack copies.');
  const at = workers.filter((/** @type {any} */ each) => each.worker.at_ledgers.length);
  for (const {process_id: name, worker} of at) {
    const left = worker.seconds_left === null ? '' : `, ${duration(worker.seconds_left * 1000)} left`;
    found.push(`${name} copies ${worker.at_ledgers.length > 1 ? 'ledgers' : 'ledger'} ${named(worker.at_ledgers)} at ${rate(worker.bytes_per_s)}${left}.`);
  }
  if (marked && !at.length && status.is_enabled && workers.length) found.push('Nothing is copied at this moment.');
  return found;
}

/** @param {number[]} ids */
const named = (ids) => `${ids.slice(0, MOST_NAMED).join(', ')}${ids.length > MOST_NAMED ? `, and ${count(ids.length - MOST_NAMED)} more` : ''}`;

/** What a ledger lacks, and what its repair waits for. @param {any} mark */
export function lackOf(mark) {
  const missing = Object.keys(mark.missing);
  const moves = mark.moves.map((/** @type {any} */ each) => `${each.bookie_id} to ${each.target}`);
  const parts = [missing.length && `copies of ${missing.join(', ')}`, moves.length && `to be moved from ${moves.join(', ')}`].filter(Boolean).join('; ');
  return {parts, waiting: mark.waiting.map((/** @type {any} */ each) => each.detail).join('; ')};
}
