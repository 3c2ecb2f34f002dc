// Conditions on a place in a JSON value: `$.order.lines[0].sku=apple`, `$.total>100`, `$.*.id`.
// Decisions on values alone.

import {ExactNumber, compareNumbers} from './json.js';

/** Text in double or single quotes, in which a backslash takes the next character as it is. */
export const STRING = String.raw`"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'`;
const WHOLE = new RegExp(`^(?:${STRING})$`, 's');
const STEP = new RegExp(String.raw`^(?:\.([\p{L}_$][\p{L}\p{N}_$-]*|\*)|\[(\d+|\*)\]|\[(${STRING})\])`, 'u');
const COMPARISON = new RegExp(`^(==?|!=|>=|<=|>|<)(?!=)(${STRING}|[^"'].*|)$`, 's');

/** A word without the quotes around it. @param {string} word */
export const unquoted = (word) => (WHOLE.test(word) ? word.slice(1, -1).replace(/\\(.)/gs, '$1') : word);

/** @typedef {{steps: (string | number | null)[], operator: string, text: string}} Condition */

/** The condition in a word that begins with `$`, or what is wrong with it. A step null is any member. @param {string} word @returns {Condition | string} */
export function conditionOf(word) {
  /** @type {(string | number | null)[]} */
  const steps = [];
  let rest = word.slice(1);
  for (let found = STEP.exec(rest); found; found = STEP.exec(rest)) {
    const [all, name, index, quoted] = found;
    steps.push(name === '*' || index === '*' ? null : quoted !== undefined ? unquoted(quoted) : name ?? Number(index));
    rest = rest.slice(all.length);
  }
  if (rest === '') return {steps, operator: '', text: ''};
  const compared = COMPARISON.exec(rest);
  if (!compared) return `“${word}” is not understood from “${rest}” on: a place is like $.order.lines[0]["a name"], with * for any member, and is compared by = != < > <= or >=.`;
  return {steps, operator: compared[1] === '==' ? '=' : compared[1], text: unquoted(compared[2])};
}

/** All values at a place. @param {any} value @param {Condition['steps']} steps @returns {any[]} */
function valuesAt(value, steps) {
  return steps.reduce((/** @type {any[]} */ found, step) => found.flatMap((each) => {
    if (each === null || typeof each !== 'object') return [];
    if (step === null) return Object.values(each);
    return Object.hasOwn(each, step) ? [each[step]] : [];
  }), [value]);
}

/** Tell whether any value at the place is as the condition says. @param {any} value @param {Condition} condition */
export function holds(value, {steps, operator, text}) {
  const found = valuesAt(value, steps);
  if (operator === '') return found.length > 0;
  if (operator === '!=') return found.length > 0 && !found.some((each) => isEqual(each, text));
  if (operator === '=') return found.some((each) => isEqual(each, text));
  return found.some((each) => isOrdered(each, operator, text));
}

/** A number as it is written; null: the value is none. @param {any} value */
const numberOf = (value) => (value instanceof ExactNumber ? value.text : typeof value === 'number' ? String(value) : null);

/** @param {any} value @param {string} text */
function isEqual(value, text) {
  const number = numberOf(value);
  if (number !== null) return compareNumbers(number, text) === 0;
  return (typeof value === 'string' ? value : JSON.stringify(value)).toLowerCase() === text.toLowerCase();
}

/** @param {any} value @param {string} operator @param {string} text */
function isOrdered(value, operator, text) {
  const number = numberOf(value), order = number !== null ? compareNumbers(number, text) : typeof value !== 'string' ? null : value < text ? -1 : value > text ? 1 : 0;
  if (order === null) return false;
  return {'>': order > 0, '<': order < 0, '>=': order >= 0, '<=': order <= 0}[operator] ?? false;
}
