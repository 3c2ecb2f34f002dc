// What the doctor has found, as people read it: in words, in order, where to look, and what is about
// a topic. Decisions on values alone.

import {plural} from './format.js';

/**
 * @typedef {'critical' | 'warning' | 'notice'} Severity
 * @typedef {{kind: string, severity: Severity, subject: string, summary: string, command: string | null, look_first?: string | null, since_us: number | null, seen_since_us: number, details: Record<string, any>}} Finding
 */

/** The words for severities, the worst first. @type {Record<Severity, string>} */
export const SEVERITIES = {critical: 'Critical', warning: 'Warning', notice: 'Notice'};

/** Findings that say that appends fail, or are about to; others say why. */
const APPENDS_FAIL = new Set(['too_few_bookies', 'roll_stuck', 'takeover_stuck']);
const CAUSES = new Set(['bookie_read_only', 'bookie_absent', 'bookie_unreachable', 'disk_filling']);

const BY_SCAN = new Set(['ledger_unsealed', 'orphaned']);
/** The topics that one finding leads to. */
const MOST_PLACES = 5;

const OF_BROKERS = new Set(['broker_unreachable', 'broker_draining']);
const OF_PARTITIONS = new Set(['roll_stuck', 'takeover_stuck', 'ledger_unsealed']);

/** Each finding with a key that no other of the list has, even one of the same kind and subject. @param {Finding[]} findings @returns {[string, Finding][]} */
export function keyed(findings) {
  /** @type {Map<string, number>} */
  const seen = new Map();
  return findings.map((each) => {
    const name = JSON.stringify([each.kind, each.subject, each.details.broker_id ?? null]), before = seen.get(name) ?? 0;
    seen.set(name, before + 1);
    return [`${name} ${before}`, each];
  });
}

/** How many there are of each severity: “2 critical, 1 warning”. @param {Finding[]} findings */
export function counted(findings) {
  const of = (/** @type {Severity} */ severity) => findings.filter((each) => each.severity === severity).length;
  return [
    of('critical') && `${of('critical')} critical`,
    of('warning') && plural(of('warning'), 'warning'),
    of('notice') && plural(of('notice'), 'notice'),
  ].filter(Boolean).join(', ');
}

/** The findings of an examination, and of another one what only a look at every ledger finds. @param {Finding[]} now @param {Finding[]} scan */
export const together = (now, scan) => [...now, ...scan.filter((each) => BY_SCAN.has(each.kind))];

/** Tell whether a finding is about one partition; one about many names the first of them. @param {Finding} each */
const isOfOnePartition = (each) => OF_PARTITIONS.has(each.kind) && each.details.partitions === undefined;

/** The partition that a finding is about, as topic and number. @param {Finding} each */
function partitionOf(each) {
  const at = each.subject.lastIndexOf('/');
  return {topic: each.subject.slice(0, at), partition: each.subject.slice(at + 1)};
}

/**
 * Where to look at what a finding is about, if anywhere.
 * @param {Finding} each
 * @returns {{text: string, screen: string, params: Record<string, any>}[]}
 */
export function placesOf(each) {
  const {topic, subscription} = each.details;
  if (subscription !== undefined) return [{text: `Subscription ${subscription}`, screen: 'subscription', params: {topic, subscription}}];
  if (isOfOnePartition(each)) {
    const place = partitionOf(each);
    return [{text: `${place.topic}, partition ${place.partition}`, screen: 'partition', params: place}];
  }
  if (OF_BROKERS.has(each.kind)) return [{text: `Broker ${each.subject}`, screen: 'cluster', params: {broker: each.subject}}];
  return (each.details.topics ?? []).slice(0, MOST_PLACES).map((/** @type {string} */ name) => ({text: `Topic ${name}`, screen: 'topic', params: {topic: name}}));
}

/** Tell whether a topic is among those that a finding is about, or may be, where it does not name all. @param {string} topic @param {Record<string, any>} details */
const mayBeAmong = (topic, {topics, topic_count: all, unlisted}) => topics.includes(topic) || all > topics.length || unlisted > 0;

/**
 * Tell whether a finding is about a topic. Those about many name only the first of them, so that the
 * bookies which the topic needs decide.
 * @param {Finding} each @param {string} topic @param {{ensembleSize: number, ackQuorum: number}} settings
 */
function isAbout(each, topic, settings) {
  if (each.kind === 'too_few_bookies') return settings.ensembleSize > each.details.writable.length;
  if (each.kind === 'ack_quorum_one') return settings.ackQuorum === 1;
  if (isOfOnePartition(each)) return partitionOf(each).topic === topic;
  if (each.details.unlisted !== undefined) return mayBeAmong(topic, each.details);
  return each.details.topic === topic;
}

/**
 * The findings about a topic; where they say that appends fail, also those that say why.
 * @param {Finding[]} findings @param {string} topic @param {{ensembleSize: number, ackQuorum: number}} settings
 */
export function aboutTopic(findings, topic, settings) {
  const own = findings.filter((each) => isAbout(each, topic, settings));
  const causes = own.some((each) => APPENDS_FAIL.has(each.kind)) ? findings.filter((each) => CAUSES.has(each.kind)) : [];
  return [...own, ...causes];
}

/** The bookies that are registered, and those that are not running. @param {Finding[] | null} findings @param {any[]} registered @returns {any[]} */
export function withAbsent(findings, registered) {
  const absent = (findings ?? []).filter((each) => each.kind === 'bookie_absent' && !registered.some((one) => one.bookie_id === each.subject));
  return [...registered, ...absent.map((each) => ({bookie_id: each.subject, rack: '–', address: '–', is_read_only: false, is_full: false, free_bytes: null, total_bytes: null}))];
}

/** The state of a bookie in a word. @param {Finding[] | null} findings null: not known @param {{bookie_id: string, is_read_only: boolean, is_full: boolean}} bookie */
export function bookieState(findings, {bookie_id: bookie, is_read_only: isReadOnly, is_full: isFull}) {
  const kinds = new Set((findings ?? []).filter((each) => each.subject === bookie).map((each) => each.kind));
  /** @type {[string, string][]} */
  const words = [['bookie_absent', 'not running'], ['bookie_unreachable', 'does not answer'], ['bookie_read_only', 'takes no entries'],
    ['bookie_in_limbo', 'in limbo'], ['bookie_leaving', 'leaves'], ['disk_filling', 'its disk fills up']];
  const found = words.find(([kind]) => kinds.has(kind))?.[1] ?? (isReadOnly ? 'takes no entries' : findings === null ? 'not known' : 'serves');
  return found === 'takes no entries' && isFull ? 'takes no entries: its disk is full' : found;
}

/** The state of a registered broker in a word. @param {Finding[] | null} findings null: not known @param {{broker_id: string, draining: boolean}} broker */
export function brokerState(findings, broker) {
  if (findings?.some((each) => each.kind === 'broker_unreachable' && each.subject === broker.broker_id)) return 'does not answer';
  if (broker.draining) return 'draining';
  return findings === null ? 'not known' : 'serves';
}
