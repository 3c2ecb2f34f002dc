// The form that appends a message by hand. What is wrong with a field is said at the field.

import {appendOf, fieldOf} from './append_core.js';
import {count} from './format.js';
import {field} from './parts.js';
import {Problem, change} from './service.js';
import {View, h, signal} from './view.js';

const FORMS = [['text', 'text'], ['json', 'JSON'], ['base64', 'base64']];

/** The form, for a partition; `onappended` is called after each message. @param {string} topic @param {string} partition @param {() => void} onappended */
export const appendForm = (topic, partition, onappended) => h('fencelog-append', {live: true, topic, partition, onappended, key: 'append'});

class Append extends View {
  begin() {
    /** By the names of fields. */
    this.mistakes = signal(/** @type {Record<string, string>} */ ({}));
    this.outcome = signal('');
  }

  /** @param {SubmitEvent} event */
  async send(event) {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target), data = new FormData(form);
    /** @param {string} name */
    const text = (name) => String(data.get(name) ?? '');
    const {mistakes, body} = appendOf({key: text('key'), time: text('time'), headers: text('headers'), form: text('form'), value: text('value')});
    this.outcome.value = '';
    this.mistakes.value = mistakes;
    if (Object.keys(mistakes).length) {
      this.refuse(mistakes);
      return;
    }
    try {
      const answer = await change('POST', `v1/topics/${this.getAttribute('topic')}/messages:batch?partition=${this.getAttribute('partition')}`, body);
      this.outcome.value = `Appended at offset ${count((await answer.json()).appended[0].offset)}.`;
      form.reset();
      this.dispatchEvent(new Event('appended'));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      const at = error.isRefused ? fieldOf(error.field) : '';
      if (at) this.refuse({[at]: `${error.message}.`});
      else this.outcome.value = error.mayHaveEffect ? `Unknown: ${error.message}. It may have been appended.` : `Not appended: ${error.message}.`;
    }
  }

  /** Say what is wrong, and go to the first field where something is. @param {Record<string, string>} mistakes */
  refuse(mistakes) {
    this.mistakes.value = mistakes;
    const first = /** @type {HTMLElement | null} */ (this.querySelector(`[name="${Object.keys(mistakes)[0]}"]`));
    first?.focus();
  }

  /** @param {string} name @param {string} title @param {string} tag @param {Record<string, any>} [props] */
  input(name, title, tag, props = {}) {
    const mistake = this.mistakes.value[name];
    return h('div', {key: name}, field(title, h(tag, {name, autocomplete: 'off', 'aria-invalid': mistake ? 'true' : null, 'aria-describedby': mistake ? `append-${name}` : null, ...props})),
      mistake && h('p', {class: 'bad', id: `append-${name}`, role: 'alert'}, mistake));
  }

  render() {
    return h('details', null, h('summary', null, 'Append a message'), h('form', {onsubmit: (/** @type {SubmitEvent} */ event) => this.send(event)},
      this.input('key', 'Key (optional)', 'input'),
      this.input('time', 'Event time (optional, UTC)', 'input', {placeholder: '2026-01-31 12:00:00'}),
      this.input('headers', 'Headers (optional; name: value on each line)', 'textarea', {rows: 2}),
      field('Value is', h('select', {name: 'form'}, FORMS.map(([form, title]) => h('option', {value: form, key: form}, title)))),
      this.input('value', 'Value', 'textarea', {rows: 4}),
      h('button', null, 'Append to this partition')),
    h('p', {role: 'status'}, this.outcome.value));
  }
}

customElements.define('fencelog-append', Append);
