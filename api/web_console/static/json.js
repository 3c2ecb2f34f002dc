// JSON for people: numbers stay as they are written where a double would change them. Decisions on
// values alone.

/** A number that a double may not hold, as it is written. */
export class ExactNumber {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }

  toJSON() {
    return Number(this.text);
  }
}

/** What is nested deeper is not shown: nobody reads it, and every level is a call. */
const MAX_DEPTH = 100;

/** What may hold a number that a double does not: sixteen digits, or an exponent. */
const RISKY = /\d[\d.]{15}|\d[eE]/;
const PLAIN = /^-?[\d.]{1,16}$/;
const TOKEN = /\s*("(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|[a-z]+|[[\]{}:,])/y;

/** Reads a text that is known to be JSON. */
class Reader {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  token() {
    TOKEN.lastIndex = this.at;
    const found = /** @type {RegExpExecArray} */ (TOKEN.exec(this.text));
    this.at = TOKEN.lastIndex;
    return found[1];
  }

  /** @param {string} token @returns {any} */
  value(token = this.token()) {
    if (token === '[') return this.members(']', (first) => this.value(first));
    if (token === '{') {
      return Object.fromEntries(this.members('}', (name) => {
        this.token(); // the colon
        return [JSON.parse(name), this.value()];
      }));
    }
    return /^[-\d]/.test(token) && !PLAIN.test(token) ? new ExactNumber(token) : JSON.parse(token);
  }

  /** @template T @param {string} end @param {(token: string) => T} read @returns {T[]} */
  members(end, read) {
    const found = [];
    for (let token = this.token(); token !== end; token = this.token()) if (token !== ',') found.push(read(token));
    return found;
  }
}

/** The value that a text is in JSON; undefined: it is none, or nested too deeply. @param {string} text @returns {any} */
export function fromJson(text) {
  try {
    const value = JSON.parse(text);
    return RISKY.test(text) ? new Reader(text).value() : value;
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof RangeError) return undefined;
    throw error;
  }
}

/** A value as JSON on indented lines; what is nested too deeply is left out. @param {any} value @param {string} [indent] @returns {string} */
export function written(value, indent = '') {
  if (value instanceof ExactNumber) return value.text;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  if (indent.length > 2 * MAX_DEPTH) return '…';
  const inner = `${indent}  `, isList = Array.isArray(value), [begin, end] = isList ? '[]' : '{}';
  const members = isList ? value.map((each) => written(each, inner)) : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${written(each, inner)}`);
  return members.length ? `${begin}\n${members.map((each) => inner + each).join(',\n')}\n${indent}${end}` : begin + end;
}

/** A number as sign, digits, and the place of its point before them; null: it is none. @param {string} text */
function decimalOf(text) {
  const found = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text);
  if (!found) return null;
  const [, minus, whole, part = '', exponent = '0'] = found, digits = (whole + part).replace(/^0+/, '');
  const sign = digits === '' ? 0 : minus ? -1 : 1;
  return {sign, digits: digits.replace(/0+$/, ''), point: digits === '' ? 0 : Number(exponent) - part.length + digits.length};
}

/** Compare two numbers as they are written, whatever their length: below 0, 0 or above; null: one of them is no number. @param {string} left @param {string} right */
export function compareNumbers(left, right) {
  const a = decimalOf(left), b = decimalOf(right);
  if (!a || !b) return null;
  if (a.sign !== b.sign) return a.sign - b.sign;
  if (a.point !== b.point) return a.sign * (a.point - b.point);
  return a.sign * (a.digits < b.digits ? -1 : a.digits > b.digits ? 1 : 0);
}
