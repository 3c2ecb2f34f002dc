// A text that is copied with a button: a command, an address.

import {View, h, signal} from './view.js';

/** @param {string} text */
export const copyable = (text) => h('fencelog-copyable', {live: true, text, key: 'copyable'});

/** Copy a text; null: the browser refuses, for example over plain HTTP. @param {string} text @returns {Promise<string | null>} what to say */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return 'Copied.';
  } catch {
    return null;
  }
}

class Copyable extends View {
  static observedAttributes = ['text'];

  constructor() {
    super();
    this.shownText = signal('');
    this.outcome = signal('');
  }

  /** @param {string} name @param {string | null} before @param {string | null} now */
  attributeChangedCallback(name, before, now) {
    this.shownText.value = now ?? '';
    this.outcome.value = '';
  }

  async copyText() {
    this.outcome.value = await copy(this.shownText.current) ?? 'The browser does not allow it: select the text.';
  }

  render() {
    return [h('code', null, this.shownText.value), ' ',
      h('button', {type: 'button', onclick: () => this.copyText()}, 'Copy', h('span', {class: 'hidden'}, ` ${this.shownText.value}`)), ' ',
      h('span', {role: 'status'}, this.outcome.value)];
  }
}

customElements.define('fencelog-copyable', Copyable);
