// Numbers, sizes and times as people read them. Decisions on values alone.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** @param {number | null | undefined} value */
export const count = (value) => (value === null || value === undefined ? '–' : value.toLocaleString('en'));

/** @param {number | null | undefined} bytes */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return '–';
  let unit = 0, value = bytes;
  while (value >= 1024 && unit < UNITS.length - 1) value /= 1024, unit += 1;
  return `${unit === 0 || value >= 100 ? Math.round(value).toLocaleString('en') : value.toFixed(1)} ${UNITS[unit]}`;
}

/** @param {number | null | undefined} bytes */
export const rate = (bytes) => (bytes === null || bytes === undefined ? '–' : `${size(bytes)}/s`);

/** The time of day in UTC, with the date unless it is that of `now`. @param {number | null} us */
export function clock(us, now = Date.now()) {
  if (us === null || us === undefined) return '–';
  const text = new Date(us / 1000).toISOString();
  const isToday = text.slice(0, 10) === new Date(now).toISOString().slice(0, 10);
  return isToday ? text.slice(11, 19) : `${text.slice(0, 10)} ${text.slice(11, 19)}`;
}

/** @param {number} us */
export const exactTime = (us) => `${new Date(Math.floor(us / 1000)).toISOString().slice(0, -1)}${String(us % 1000).padStart(3, '0')}Z`;

/** A length of time in its largest unit, rounded down. @param {number | null} ms */
export function duration(ms) {
  if (ms === null || ms === undefined) return '–';
  for (const [unit, name] of /** @type {[number, string][]} */ ([[86_400_000, 'day'], [3_600_000, 'hour'], [60_000, 'minute'], [1000, 'second']])) {
    if (ms >= unit) {
      const n = Math.floor(ms / unit);
      return `${count(n)} ${name}${n === 1 ? '' : 's'}`;
    }
  }
  return `${Math.max(0, Math.round(ms))} ms`;
}

/** @param {number | null} retentionMs @param {number | null} retentionBytes */
export function retention(retentionMs, retentionBytes) {
  const bounds = [retentionMs === null ? '' : duration(retentionMs), retentionBytes === null ? '' : size(retentionBytes)].filter(Boolean);
  return bounds.length ? bounds.join(' or ') : 'keeps everything';
}

/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
