// A message that a person writes by hand, from the fields of a form. Decisions on values alone.

import {positionOf} from './messages_core.js';

/** The fields of the form, and the members of a message that they become. @type {Record<string, string>} */
const FIELD_OF = {key: 'key', key_base64: 'key', event_time: 'time', deliver_at: 'time', headers: 'headers', headers_base64: 'headers', text: 'value', json: 'value', base64: 'value', value: 'value'};

/** @typedef {{key: string, time: string, headers: string, form: string, value: string}} Written */

/**
 * The body of the request that appends a message; or the mistakes by the fields that they are in.
 * @param {Written} written `headers`: `name: value` on each line; `form`: `text`, `json` or `base64`
 * @returns {{mistakes: Record<string, string>, body: string}}
 */
export function appendOf({key, time, headers, form, value}) {
  /** @type {Record<string, string>} */
  const mistakes = {}, /** @type {Record<string, any>} */ message = {};
  if (key) message.key = key;
  const at = time.trim() && (/^\d{1,18}$/.test(time.trim()) ? time.trim() : positionOf(time)?.from_time);
  if (at === undefined) mistakes.time = `“${time.trim()}” is no time like 2026-01-31 12:00:00 (UTC), nor microseconds since 1970.`;
  const named = headersOf(headers);
  if (typeof named === 'string') mistakes.headers = named;
  else if (Object.keys(named).length) message.headers = named;
  const wrong = valueMistake(form, value);
  if (wrong) mistakes.value = wrong;
  message[form === 'base64' ? 'base64' : 'text'] = form === 'base64' ? value.replace(/\s+/g, '') : value;
  // A number as it was typed: microseconds may be too many digits for a number of this language.
  const body = JSON.stringify({messages: [message]}), timed = at ? body.replace('{"messages":[{', `{"messages":[{"event_time":${BigInt(at)},`) : body;
  return {mistakes, body: timed};
}

/** The headers of lines; or the mistake in them. @param {string} text @returns {Record<string, string> | string} */
function headersOf(text) {
  /** @type {Record<string, string>} */
  const found = {};
  for (const line of text.split('\n').map((each) => each.trim()).filter(Boolean)) {
    const [, name, value] = /^([^:\s]+)\s*:\s*(.*)$/.exec(line) ?? [];
    if (name === undefined) return `“${line}” is no header like name: value.`;
    if (Object.hasOwn(found, name)) return `The header ${name} is given twice.`;
    found[name] = value;
  }
  return found;
}

/** @param {string} form @param {string} value */
function valueMistake(form, value) {
  try {
    if (form === 'json') JSON.parse(value);
    if (form === 'base64') atob(value.replace(/\s+/g, ''));
  } catch (error) {
    return form === 'json' ? `This is no JSON: ${/** @type {Error} */ (error).message}.` : 'This is no base64.';
  }
  return '';
}

/** The field of the form that a refusal is about, empty if it is about none. @param {string | undefined} member */
export const fieldOf = (member) => FIELD_OF[(member ?? '').split('.').pop() ?? ''] ?? '';
