// Subscriptions as people read them: how far behind, what is stuck, what a seek would do. Decisions
// on values alone.

import {clock, count, duration, plural} from './format.js';
import {positionOf} from './messages_core.js';

/** The partitions that a plan names one by one. */
const MOST_NAMED = 8;

/**
 * @typedef {{partition: number, acked_to: number, backlog_messages: number, outstanding: number, oldest_lease_ms: number | null, holes: number, redelivering: number, delayed: number, burying: number, burial_error: string | null, lost_to_retention: number, consumers: {name: string, age_ms: number, idle_ms: number, outstanding: number}[]}} PartitionStats
 * @typedef {{partition: number, acked_to: number, earliest_offset: number, tail_offset: number}} Place
 */

/** The age of the oldest message that is not acknowledged. @param {number | null} oldestUs @param {number} nowUs */
export const age = (oldestUs, nowUs) => (oldestUs === null ? '–' : duration(Math.max(0, nowUs - oldestUs) / 1000));

/** The way that values went since the first of them, in words; null: not known. @param {(number | null)[]} values */
export function trend(values) {
  const known = values.filter((each) => each !== null);
  if (known.length < 2) return '';
  const by = known[known.length - 1] - known[0];
  return by ? `${by > 0 ? '+' : '-'}${count(Math.abs(by))}` : 'steady';
}

/**
 * A lag over time as it is drawn, in a box of 1 by 1 with the newest sample at the right.
 * @param {{interval_ms: number, since_us: number | null, backlog_messages: (number | null)[]}} lag
 * @returns {{runs: [number, number][][], most: number, last: number | null, sinceUs: number, untilUs: number} | null} null: no sample is there; `runs`: what was sampled without a gap
 */
export function lagCurve({interval_ms: intervalMs, since_us: sinceUs, backlog_messages: messages}) {
  if (sinceUs === null) return null;
  const known = messages.filter((each) => each !== null), most = Math.max(0, ...known), span = Math.max(1, messages.length - 1);
  /** @type {[number, number][][]} */
  const runs = [];
  messages.forEach((each, index) => {
    if (each === null) return;
    const point = /** @type {[number, number]} */ ([messages.length > 1 ? index / span : 1, 1 - each / Math.max(1, most)]);
    if (index && messages[index - 1] !== null) runs[runs.length - 1].push(point);
    else runs.push([point]);
  });
  return {runs, most, last: messages[messages.length - 1], sinceUs, untilUs: sinceUs + (messages.length - 1) * intervalMs * 1000};
}

/**
 * The samples of a lag, some of them as one row: its time and its largest value, the newest first.
 * @param {{interval_ms: number, since_us: number | null, backlog_messages: (number | null)[]}} lag @param {number} together
 * @returns {{atUs: number, most: number | null}[]}
 */
export function lagRows({interval_ms: intervalMs, since_us: sinceUs, backlog_messages: messages}, together) {
  const rows = [];
  for (let end = messages.length; end > 0; end -= together) {
    const some = messages.slice(Math.max(0, end - together), end), known = some.filter((each) => each !== null);
    rows.push({atUs: (sinceUs ?? 0) + (end - some.length) * intervalMs * 1000, most: known.length ? Math.max(...known) : null});
  }
  return rows;
}

/** The name of the topic with the dead letters. @param {string} topic @param {string} subscription @param {any} config */
export const deadLetterTopic = (topic, subscription, config) => (config.max_deliveries === null ? null : config.dead_letter_topic ?? `${topic}-${subscription}-dead`);

/**
 * What does not go on, and the message to look at, the worst first.
 * @param {PartitionStats[]} partitions @param {number} leaseMs
 * @returns {{partition: number, sentence: string, offset: number | null}[]}
 */
export function stuckIn(partitions, leaseMs) {
  return partitions.flatMap((each) => {
    const found = [];
    /** @param {string} sentence @param {number | null} offset */
    const say = (sentence, offset = null) => found.push({partition: each.partition, sentence, offset});
    if (each.burial_error) say(`${plural(each.burying, 'message')} cannot get to the dead letter topic: ${each.burial_error}.`, each.acked_to);
    if (each.holes) say(`Message ${count(each.acked_to)} is not acknowledged, while ${plural(each.holes, 'range')} of messages after it ${each.holes > 1 ? 'are' : 'is'}.`, each.acked_to);
    if (each.redelivering) say(`${plural(each.redelivering, 'message')} ${each.redelivering > 1 ? 'have' : 'has'} failed before, and ${each.redelivering > 1 ? 'come' : 'comes'} again.`, each.acked_to);
    if ((each.oldest_lease_ms ?? 0) > leaseMs) say(`A consumer has had a message for ${duration(each.oldest_lease_ms)} without acknowledging it.`, each.acked_to);
    if (each.backlog_messages && !each.consumers.length && !each.outstanding) say(`${plural(each.backlog_messages, 'message')} ${each.backlog_messages > 1 ? 'wait' : 'waits'}, and no consumer asks for them.`);
    if (each.lost_to_retention) say(`${plural(each.lost_to_retention, 'message')} ${each.lost_to_retention > 1 ? 'were' : 'was'} deleted by retention before anyone acknowledged ${each.lost_to_retention > 1 ? 'them' : 'it'}.`);
    return found;
  });
}

/** Where a partition goes on; null: the service looks it up. @param {string} to @param {number} offset @param {Place} place */
function targetOf(to, offset, place) {
  if (to === 'earliest') return place.earliest_offset;
  if (to === 'latest') return place.tail_offset;
  return to === 'offset' ? Math.max(offset, place.earliest_offset) : null;
}

/**
 * What a seek asks for, and what it would do; or the mistake in the form.
 * @param {{to: string, text: string, partition: string}} form `partition`: empty for all
 * @param {Place[]} places
 * @returns {{mistake: string} | {mistake: null, partition: string, body: any, sentences: string[]}} `partition`: for the address; empty: the body says which
 */
export function seekPlan({to, text, partition}, places) {
  const chosen = partition === '' ? places : places.filter((each) => String(each.partition) === partition);
  if (!chosen.length) return {mistake: 'The partitions are not known yet.'};
  let offset = 0, timeUs = 0;
  if (to === 'offset') {
    if (!/^\d{1,18}$/.test(text.trim())) return {mistake: `“${text}” is no offset.`};
    offset = Number(text);
    const beyond = chosen.find((each) => offset > each.tail_offset);
    if (beyond) return {mistake: `Partition ${beyond.partition} ends at ${count(beyond.tail_offset)}, before ${count(offset)}.`};
  } else if (to === 'time') {
    const found = positionOf(text)?.from_time;
    if (found === undefined) return {mistake: `“${text}” is no time like 2026-01-31 12:00:00 (UTC).`};
    timeUs = Number(found);
  }
  const sentences = chosen.slice(0, MOST_NAMED).map((each) => moved(each, targetOf(to, offset, each), timeUs));
  if (chosen.length > MOST_NAMED) sentences.push(`And ${plural(chosen.length - MOST_NAMED, 'more partition')} likewise.`);
  const body = to === 'time' ? {time: timeUs} : to === 'offset' ? {offsets: chosen.map((each) => ({partition: each.partition, offset}))} : {to};
  return {mistake: null, partition: to === 'offset' ? '' : partition, body, sentences};
}

/** @param {Place} from @param {number | null} to @param {number} timeUs */
function moved(from, to, timeUs) {
  const name = `Partition ${from.partition}`;
  if (to === null) return `${name} goes on with the first message published at ${clock(timeUs)} UTC or later.`;
  const by = to - from.acked_to;
  if (by < 0) return `${name} goes back from ${count(from.acked_to)} to ${count(to)}: up to ${plural(-by, 'message')} ${by < -1 ? 'are' : 'is'} delivered again.`;
  if (by > 0) return `${name} goes ahead from ${count(from.acked_to)} to ${count(to)}: up to ${plural(by, 'message')} ${by > 1 ? 'are' : 'is'} never delivered.`;
  return `${name} stays at ${count(to)}.`;
}
