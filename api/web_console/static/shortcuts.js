// Whether single letters are shortcuts: who speaks to the machine, or hits keys by accident, turns
// them off. The browser remembers it, unless it is told to remember nothing.

import {signal} from './view.js';

const NAME = 'fencelog-shortcuts';

/** @returns {boolean} */
function remembered() {
  try {
    return localStorage.getItem(NAME) !== 'off';
  } catch {
    return true;
  }
}

export const areShortcutsOn = signal(remembered());

/** @param {boolean} areOn */
export function turnShortcuts(areOn) {
  areShortcutsOn.value = areOn;
  try {
    localStorage.setItem(NAME, areOn ? 'on' : 'off');
  } catch { /* it lasts as long as the page */ }
}
