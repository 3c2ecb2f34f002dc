// Values in MessagePack, decoded for people: bytes as hex, 64-bit numbers exact, extensions by name.

import {ExactNumber} from './json.js';

/** A value nested deeper is not decoded: every level is a call. */
const MAX_DEPTH = 64;

const UTF8 = new TextDecoder('utf-8', {fatal: true});

/** @param {Uint8Array} bytes */
const hexOf = (bytes) => [...bytes].map((each) => each.toString(16).padStart(2, '0')).join('');

/** Reads one value after the other. What is no MessagePack raises RangeError or TypeError. */
class Reader {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
  }

  /** @param {number} length */
  take(length) {
    if (this.at + length > this.bytes.length) throw new RangeError('the bytes end within a value');
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  /** A number of 1, 2, 4 or 8 bytes. @param {number} width @param {'Uint' | 'Int' | 'Float'} kind @returns {any} */
  number(width, kind) {
    const at = this.at;
    this.take(width);
    const name = width === 8 && kind !== 'Float' ? `getBig${kind}64` : `get${kind}${width * 8}`;
    const value = /** @type {any} */ (this.view)[name](at);
    return typeof value === 'bigint' ? exact(value) : value;
  }

  /** @param {number} width of the length that comes first @param {(length: number) => any} read */
  counted(width, read) {
    return read(Number(this.number(width, 'Uint')));
  }

  /** @param {number} length */
  text(length) {
    return UTF8.decode(this.take(length));
  }

  /** @param {number} length */
  binary(length) {
    return {bytes: hexOf(this.take(length))};
  }

  /** @param {number} length */
  extension(length) {
    const type = this.number(1, 'Int');
    return {extension: type, bytes: hexOf(this.take(length))};
  }

  /** @param {number} length @param {number} depth */
  array(length, depth) {
    if (length > this.bytes.length - this.at) throw new RangeError('more values than bytes');
    return Array.from({length}, () => this.value(depth + 1));
  }

  /** @param {number} length @param {number} depth */
  map(length, depth) {
    if (2 * length > this.bytes.length - this.at) throw new RangeError('more values than bytes');
    return Object.fromEntries(Array.from({length}, () => {
      const key = this.value(depth + 1);
      return [typeof key === 'string' ? key : JSON.stringify(key), this.value(depth + 1)];
    }));
  }

  /** @param {number} depth @returns {any} */
  value(depth = 0) {
    if (depth > MAX_DEPTH) throw new RangeError('nested too deeply');
    const first = this.number(1, 'Uint');
    if (first < 0x80) return first;
    if (first < 0x90) return this.map(first & 0x0f, depth);
    if (first < 0xa0) return this.array(first & 0x0f, depth);
    if (first < 0xc0) return this.text(first & 0x1f);
    if (first >= 0xe0) return first - 0x100;
    return this.long(first, depth);
  }

  /** @param {number} first @param {number} depth */
  long(first, depth) {
    const width = (/** @type {number} */ from) => 1 << (first - from);
    if (first === 0xc0) return null;
    if (first === 0xc2 || first === 0xc3) return first === 0xc3;
    if (first >= 0xc4 && first <= 0xc6) return this.counted(width(0xc4), (n) => this.binary(n));
    if (first >= 0xc7 && first <= 0xc9) return this.counted(width(0xc7), (n) => this.extension(n));
    if (first === 0xca || first === 0xcb) return this.number(4 * width(0xca), 'Float');
    if (first >= 0xcc && first <= 0xcf) return this.number(width(0xcc), 'Uint');
    if (first >= 0xd0 && first <= 0xd3) return this.number(width(0xd0), 'Int');
    if (first >= 0xd4 && first <= 0xd8) return this.extension(width(0xd4));
    if (first >= 0xd9 && first <= 0xdb) return this.counted(width(0xd9), (n) => this.text(n));
    if (first === 0xdc || first === 0xdd) return this.counted(2 * width(0xdc), (n) => this.array(n, depth));
    if (first === 0xde || first === 0xdf) return this.counted(2 * width(0xde), (n) => this.map(n, depth));
    throw new TypeError(`0x${first.toString(16)} begins no value`);
  }
}

/** A number that is exact. @param {bigint} value */
const exact = (value) => (BigInt(Number(value)) === value && Number.isSafeInteger(Number(value)) ? Number(value) : new ExactNumber(String(value)));

/** The value that bytes are in MessagePack, all of them; undefined: they are none. @param {Uint8Array} bytes @returns {any} */
export function fromMsgpack(bytes) {
  const reader = new Reader(bytes);
  try {
    const value = reader.value();
    return reader.at === bytes.length ? value : undefined;
  } catch (error) {
    if (error instanceof RangeError || error instanceof TypeError) return undefined;
    throw error;
  }
}
