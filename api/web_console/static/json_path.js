// Conditions on a place in a JSON value: `$.order.lines[0].sku=apple`, `$.total>100`, `$.*.id`.
// Decisions on values alone.

const STEP = /^(?:\.([\p{L}_$][\p{L}\p{N}_$-]*|\*)|\[(\d+|\*)\]|\["([^"]*)"\])/u;
const COMPARISON = /^(=|!=|>=|<=|>|<)(.*)$/s;

/** @typedef {{steps: (string | number | null)[], operator: string, text: string}} Condition */

/** The condition in a word; null: it is none. A step null is any member. @param {string} word @returns {Condition | null} */
export function conditionOf(word) {
  if (!word.startsWith('$')) return null;
  /** @type {(string | number | null)[]} */
  const steps = [];
  let rest = word.slice(1);
  for (let found = STEP.exec(rest); found; found = STEP.exec(rest)) {
    const [all, name, index, quoted] = found;
    steps.push(name === '*' || index === '*' ? null : quoted ?? name ?? Number(index));
    rest = rest.slice(all.length);
  }
  if (rest === '') return {steps, operator: '', text: ''};
  const compared = COMPARISON.exec(rest);
  return compared && {steps, operator: compared[1], text: compared[2].replace(/^"(.*)"$/s, '$1')};
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

/** @param {any} value @param {string} text */
const isEqual = (value, text) => (typeof value === 'string' ? value : JSON.stringify(value)).toLowerCase() === text.toLowerCase();

/** @param {any} value @param {string} operator @param {string} text */
function isOrdered(value, operator, text) {
  const number = Number(text);
  const [left, right] = typeof value === 'number' && text !== '' && !Number.isNaN(number) ? [value, number] : [value, text];
  if (typeof left !== typeof right) return false;
  return {'>': left > right, '<': left < right, '>=': left >= right, '<=': left <= right}[operator] ?? false;
}
