// Changes of a topic as a person asks for them: what is sent, and what it would do. Decisions on values
// alone.

import {count, plural} from './format.js';

/** The value of a setting as it is sent; null: it is inherited again. @param {string} text @returns {string | number | boolean | null} */
export function settingOf(text) {
  const plain = text.trim();
  if (plain === '') return null;
  if (plain === 'true' || plain === 'false') return plain === 'true';
  return /^-?\d{1,15}(\.\d+)?$/.test(plain) ? Number(plain) : plain;
}

/** A setting as a bound; null: there is none. @param {any} value */
export const boundOf = (value) => (typeof value === 'number' ? value : null);

/**
 * @typedef {{sentence: string, body: any, partition: number | null}} Change
 * `partition`: the one that is changed; null: the topic
 */

/** @param {string} name @param {string} text @param {any} config @returns {Change} */
export function settingChange(name, text, config) {
  const value = settingOf(text), before = name === 'partitions' ? config.partitions : config.effective[name];
  return {sentence: `${name} changes from ${before} to ${value ?? 'what the namespace says'}.`, body: {[name]: value}, partition: null};
}

/**
 * @param {string} partition @param {string} text @param {{partition: number, earliest_offset: number, tail_offset: number}[]} offsets
 * @returns {{mistake: string} | {mistake: null, change: Change}}
 */
export function trimOf(partition, text, offsets) {
  const at = offsets.find((each) => String(each.partition) === partition);
  if (!at) return {mistake: 'The partitions are not known yet.'};
  if (!/^\d{1,18}$/.test(text.trim())) return {mistake: `“${text}” is no offset.`};
  const before = Number(text), gone = before - at.earliest_offset;
  if (before > at.tail_offset) return {mistake: `Partition ${partition} ends at ${count(at.tail_offset)}, before ${count(before)}.`};
  if (gone <= 0) return {mistake: `Partition ${partition} begins at ${count(at.earliest_offset)} already.`};
  return {mistake: null, change: {sentence: `${plural(gone, 'message')} of partition ${partition}, those before ${count(before)}, can never be read again, as far as every durable subscription has acknowledged them.`, body: {before}, partition: at.partition}};
}
