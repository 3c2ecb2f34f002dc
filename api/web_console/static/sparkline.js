// A small curve of the samples that brokers keep of the last minutes.

import {h} from './view.js';

/**
 * Draw samples, the newest at the right; null is a gap. `places`: how many a whole curve has, so that
 * one that has begun just now is short. `name` says what a person who cannot see it would read off;
 * without one it is only beside words that say so.
 * @param {(number | null)[]} values @param {{places: number, name?: string, width?: number, height?: number}} look
 */
export function sparkline(values, {places, name, width = 160, height = 28}) {
  const most = Math.max(1, ...values.map((each) => each ?? 0)), step = width / (places - 1);
  /** @type {string[][]} */
  const runs = [[]];
  values.forEach((each, index) => {
    if (each === null) runs.push([]);
    else runs[runs.length - 1].push(`${(width - (values.length - 1 - index) * step).toFixed(1)},${(height - 2 - each / most * (height - 4)).toFixed(1)}`);
  });
  return h('svg', {class: 'spark', width, height, viewBox: `0 0 ${width} ${height}`, ...(name ? {role: 'img', 'aria-label': name} : {'aria-hidden': 'true'})},
    runs.filter((run) => run.length > 1).map((run, index) => h('polyline', {key: index, points: run.join(' '), fill: 'none', stroke: 'var(--o1)', 'stroke-width': 2})));
}
