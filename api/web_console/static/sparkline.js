// A small curve of the last values, and the values themselves, which a page collects while it is open.

import {h} from './view.js';

/** The values that are kept of each curve. */
export const KEPT = 60;

/** Add a value to those that are kept. @param {number[]} values @param {number} value */
export const kept = (values, value) => [...values, value].slice(-KEPT);

/**
 * Draw values, the newest at the right. `name` says what a person who cannot see it would read off;
 * without one it is only beside words that say so.
 * @param {number[]} values @param {{name?: string, width?: number, height?: number}} [look]
 */
export function sparkline(values, {name, width = 160, height = 28} = {}) {
  const most = Math.max(1, ...values), step = width / (KEPT - 1);
  const points = values.map((each, index) => `${(width - (values.length - 1 - index) * step).toFixed(1)},${(height - 2 - each / most * (height - 4)).toFixed(1)}`);
  return h('svg', {class: 'spark', width, height, viewBox: `0 0 ${width} ${height}`, ...(name ? {role: 'img', 'aria-label': name} : {'aria-hidden': 'true'})},
    points.length > 1 && h('polyline', {points: points.join(' '), fill: 'none', stroke: 'var(--o1)', 'stroke-width': 2}));
}
