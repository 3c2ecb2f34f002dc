// Messages as people read and copy them. Decisions on values alone.

import {count, exactTime} from './format.js';
import {ExactNumber, fromJson, written} from './json.js';
import {holds} from './json_path.js';
import {fromMsgpack} from './msgpack.js';

/** @typedef {{offset: number, publish_time: number, base64: string, key?: string, key_base64?: string, headers?: Record<string, string> | null}} Message */

/** @param {string} text @returns {Uint8Array} */
export const bytesOf = (text) => Uint8Array.from(atob(text), (each) => each.charCodeAt(0));

/** The text of bytes, null if they are none. @param {Uint8Array} bytes @param {boolean} [isBeginning] the last letter may be cut */
export function textOf(bytes, isBeginning = false) {
  try {
    return new TextDecoder('utf-8', {fatal: true}).decode(bytes, {stream: isBeginning});
  } catch {
    return null;
  }
}

/** Sixteen bytes on each line: place, numbers, letters. @param {Uint8Array} bytes */
export function hex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const numbers = part.map((each) => each.toString(16).padStart(2, '0')).join(' ').padEnd(47);
    const letters = part.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : '.')).join('');
    lines.push(`${at.toString(16).padStart(8, '0')}  ${numbers}  ${letters}`);
  }
  return lines.join('\n');
}

/** A number or a word in MessagePack is one byte or a few, as much else is: only structures count. @param {Uint8Array} bytes */
function structureOf(bytes) {
  const value = fromMsgpack(bytes);
  return value !== null && typeof value === 'object' && !('bytes' in value) && !(value instanceof ExactNumber) ? value : undefined;
}

/**
 * Show a value in a form; the form that it got, since not all bytes are text and not all text JSON.
 * @param {Uint8Array} bytes @param {string} form `auto`, `text`, `json`, `msgpack` or `hex`
 * @returns {{form: string, shown: string}}
 */
export function decoded(bytes, form) {
  const text = form === 'hex' ? null : textOf(bytes);
  const packed = form === 'msgpack' ? fromMsgpack(bytes) : form === 'auto' && text === null ? structureOf(bytes) : undefined;
  if (packed !== undefined) return {form: 'msgpack', shown: written(packed)};
  if (text === null) return {form: 'hex', shown: hex(bytes)};
  const value = form === 'text' ? undefined : fromJson(text);
  return value === undefined ? {form: 'text', shown: text} : {form: 'json', shown: written(value)};
}

/** A value that is larger is not taken apart, and only its beginning is shown. */
const LARGE_BYTES = 256 * 1024, SHOWN_BYTES = 64 * 1024;
/** The characters that are shown of a value, however it is indented. */
const SHOWN_TEXT = 1024 * 1024;

/**
 * Show as much of a value in a form as people read and a page bears.
 * @param {Uint8Array} bytes @param {string} form
 * @returns {{form: string, shown: string, isCut: boolean}}
 */
export function shownOf(bytes, form) {
  if (bytes.length <= LARGE_BYTES) {
    const whole = decoded(bytes, form);
    return {form: whole.form, shown: whole.shown.slice(0, SHOWN_TEXT), isCut: whole.shown.length > SHOWN_TEXT};
  }
  const start = bytes.subarray(0, SHOWN_BYTES), text = form === 'hex' ? null : textOf(start, true);
  return {...text === null ? {form: 'hex', shown: hex(start)} : {form: 'text', shown: text}, isCut: true};
}

/** One line of a value. @param {Uint8Array} bytes @param {number} most */
export function oneLine(bytes, most) {
  const text = textOf(bytes);
  const line = text === null ? [...bytes.subarray(0, most / 3)].map((each) => each.toString(16).padStart(2, '0')).join(' ') : text.replace(/\s+/g, ' ');
  return line.length > most ? `${line.slice(0, most)}…` : line;
}

/** @param {Message} message */
export const keyOf = (message) => message.key ?? (message.key_base64 === undefined ? '' : `base64:${message.key_base64}`);

/** The memory that a message takes, about: its value, its other members, and what an object costs. @param {Message} each */
const weightOf = (each) => each.base64.length + (each.key_base64 ?? each.key ?? '').length + (each.headers ? JSON.stringify(each.headers).length : 0) + 200;

/** How many messages are within a number and a size, one at least, taken one by one. @param {number} total @param {(n: number) => Message} nth @param {number} most @param {number} mostBytes */
function numberWithin(total, nth, most, mostBytes) {
  let taken = 0, bytes = 0;
  while (taken < Math.min(total, most) && (bytes += weightOf(nth(taken))) <= mostBytes) taken += 1;
  return Math.max(taken, Math.min(total, 1));
}

/** The first of messages, as many as are within a number and a size. @param {Message[]} messages @param {number} most @param {number} mostBytes */
export const firstWithin = (messages, most, mostBytes) => messages.slice(0, numberWithin(messages.length, (n) => messages[n], most, mostBytes));

/** The last of them. @param {Message[]} messages @param {number} most @param {number} mostBytes */
export const lastWithin = (messages, most, mostBytes) => messages.slice(messages.length - numberWithin(messages.length, (n) => messages[messages.length - 1 - n], most, mostBytes));

/** Tell whether a message has all that a filter asks for, whatever its case. @param {Message} message @param {import('./filter.js').Filter} filter */
export function matches(message, {terms, mistake}) {
  if (mistake) return false;
  if (!terms.length) return true;
  const key = keyOf(message).toLowerCase(), headers = Object.entries(message.headers ?? {}).map((header) => header.map((each) => each.toLowerCase()));
  const bytes = bytesOf(message.base64), text = textOf(bytes), value = (text ?? '').toLowerCase();
  return terms.every((term) => {
    if (term.kind === 'place') {
      const structure = (text === null ? undefined : fromJson(text)) ?? structureOf(bytes);
      return structure !== undefined && holds(structure, term.condition);
    }
    const has = (/** @type {string} */ part) => part.includes(term.text);
    if (term.kind === 'key') return has(key);
    if (term.kind === 'header' && term.name !== null) return headers.some(([name, content]) => name === term.name && has(content));
    const isInHeaders = headers.some((header) => header.some(has));
    return term.kind === 'header' ? isInHeaders : isInHeaders || has(key) || has(value);
  });
}

/** A word of a shell, whatever is in it. @param {string} text */
export const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/**
 * The request for one message as a command or a program.
 * @param {'curl' | 'Python' | 'command line'} how @param {string} server @param {string} topic @param {number} partition @param {number} offset
 */
export function copyAs(how, server, topic, partition, offset) {
  if (how === 'curl') return `curl -sS -i ${quoted(`${server}v1/topics/${topic}/partitions/${partition}/messages/${offset}`)}`;
  if (how === 'command line') return `fencelog read ${quoted(topic)} --partition ${partition} --from ${offset} --limit 1 --server ${quoted(server.replace(/\/$/, ''))}`;
  return `import urllib.request\n\nurl = ${JSON.stringify(`${server}v1/topics/${topic}/partitions/${partition}/messages/${offset}`)}\nwith urllib.request.urlopen(url) as answer:\n    value = answer.read()\n    key = answer.headers["Fencelog-Key"]`;
}

/**
 * The offsets of a range, both of them included; or the mistake in the form.
 * @param {string} first @param {string} last
 * @returns {{mistake: string} | {mistake: null, first: number, last: number}}
 */
export function rangeOf(first, last) {
  const wrong = [first, last].find((each) => !/^\d{1,15}$/.test(each.trim()));
  if (wrong !== undefined) return {mistake: `“${wrong}” is no offset.`};
  if (Number(last) < Number(first)) return {mistake: `${count(Number(last))} comes before ${count(Number(first))}.`};
  return {mistake: null, first: Number(first), last: Number(last)};
}

/** What a position in the form asks for: an offset, `earliest`, `latest`, or a time. @param {string} text @returns {Record<string, string> | null} */
export function positionOf(text) {
  const plain = text.trim();
  if (plain === '' || plain === 'earliest' || plain === 'latest') return {from: plain || 'earliest'};
  if (/^\d{1,18}$/.test(plain)) return {from: plain};
  const time = Date.parse(/(Z|[+-]\d\d:?\d\d)$/.test(plain) ? plain : `${plain.replace(' ', 'T')}Z`);
  return Number.isNaN(time) || !/^\d{4}-\d\d-\d\d/.test(plain) ? null : {from_time: String(time * 1000)};
}

/** @param {Message} message */
export const publishTime = (message) => exactTime(message.publish_time);
