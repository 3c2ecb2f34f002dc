// The topics, a page at a time, sorted and filtered by the broker.

import {answered, empty, field, figuresOf, link, table, to} from './parts.js';
import {count, rate, retention, size} from './format.js';
import {adjust, go, params} from './route.js';
import {Resource, change, said} from './service.js';
import {View, effect, h, signal} from './view.js';

const PAGE = 50;
const COLUMNS = [['name', 'Topic'], ['in_bytes_per_s', 'Written'], ['out_bytes_per_s', 'Read'], ['backlog_messages', 'Backlog'], ['messages', 'Messages'], ['size', 'Size']];

class Topics extends View {
  begin() {
    this.isCreating = signal(false);
    this.refusal = signal('');
    this.table = new Resource(() => {
      const {sort = 'name', contains = '', namespace, start = '0'} = params.current;
      return `v1/admin/topics?${new URLSearchParams({sort, contains, start, limit: String(PAGE), ...(namespace ? {namespace} : {})})}`;
    }, 3000);
    this.namespaces = new Resource(() => 'v1/namespaces', 10_000);
    let first = true;
    this.endings.push(() => [this.table, this.namespaces].forEach((each) => each.end()), effect(() => {
      params.value;
      if (!first) this.table.refresh();
      first = false;
    }));
  }

  /** @param {SubmitEvent} event */
  async create(event) {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    const topic = String(form.get('topic')).trim();
    try {
      await change('PUT', `v1/topics/${topic.split('/').map(encodeURIComponent).join('/')}`, {partitions: Number(form.get('partitions'))});
      go({screen: 'topic', topic});
    } catch (error) {
      this.refusal.value = said(error);
    }
  }

  form() {
    return h('form', {class: 'panel', key: 'create', onsubmit: (/** @type {SubmitEvent} */ event) => this.create(event)}, h('h2', null, 'Create a topic'),
      h('div', {class: 'fields'}, field('Name (namespace/topic)', h('input', {name: 'topic', required: true, pattern: '[^\\/]+\\/[^\\/]+', autocomplete: 'off'})),
        field('Partitions', h('input', {name: 'partitions', type: 'number', min: 1, max: 1024, '.defaultValue': '1'})),
        h('button', null, 'Create'), h('button', {type: 'button', onclick: () => { this.isCreating.value = false; }}, 'Cancel')),
      this.refusal.value && h('p', {class: 'bad', role: 'alert'}, this.refusal.value));
  }

  /** The settings of a namespace, which its topics inherit. @param {string} name */
  settingsOf(name) {
    return answered(this.namespaces.shown.value, 'the namespace', (data) => {
      const found = data.namespaces.find((/** @type {any} */ each) => each.namespace === name);
      if (!found) return h('p', {class: 'muted'}, `There is no namespace ${name}.`);
      return h('details', {key: 'namespace'}, h('summary', null, `Settings of namespace ${name}, which its topics inherit`),
        table(`Settings of namespace ${name}`, ['Setting', 'Value', 'From'], Object.entries(found.effective).map(([setting, value]) => h('tr', {key: setting}, h('th', {scope: 'row'}, setting), h('td', null, String(value)), h('td', null, setting in found.settings ? 'the namespace' : 'inherited')))));
    });
  }

  render() {
    const {sort = 'name', contains = '', namespace = '', start = '0'} = params.value, names = (this.namespaces.shown.value.data?.namespaces ?? []).map((/** @type {any} */ each) => each.namespace);
    if (namespace && !names.includes(namespace)) names.push(namespace);
    return [h('h1', null, 'Topics'),
      h('div', {class: 'fields', key: 'bar'},
        field('Name contains', h('input', {type: 'search', 'data-filter': true, value: contains, autocomplete: 'off', oninput: (/** @type {any} */ event) => adjust({contains: event.target.value, start: null})})),
        field('Namespace', h('select', {onchange: (/** @type {any} */ event) => adjust({namespace: event.target.value, start: null}), value: namespace}, h('option', {value: ''}, 'all namespaces'), names.map((/** @type {string} */ name) => h('option', {value: name, key: name}, name)))),
        field('Sorted by', h('select', {onchange: (/** @type {any} */ event) => adjust({sort: event.target.value, start: null}), value: sort}, COLUMNS.map(([name, title]) => h('option', {value: name}, title)))),
        !this.isCreating.value && h('button', {type: 'button', onclick: () => { this.isCreating.value = true; }}, 'Create a topic…')),
      this.isCreating.value && this.form(),
      namespace && this.settingsOf(namespace),
      answered(this.table.shown.value, 'the topics', (data) => this.page(data, Number(start), contains, namespace))];
  }

  /** @param {any} data @param {number} start @param {string} contains @param {string} namespace */
  page(data, start, contains, namespace) {
    if (!data.total) return contains || namespace ? empty('No topic has such a name', `There is none${contains && ` with “${contains}” in it`}${namespace && ` in namespace ${namespace}`}.`) : empty('There are no topics yet', 'A topic is made here, with the command line or over HTTP.');
    const sort = params.current.sort ?? 'name';
    const heads = [...COLUMNS.map(([name, title]) => h('th', {scope: 'col', 'aria-sort': name === sort ? (name === 'name' ? 'ascending' : 'descending') : null}, title)), 'Retention', 'Owners'];
    const rows = data.topics.map((/** @type {any} */ each) => h('tr', {key: each.topic}, h('th', {scope: 'row'}, link(each.topic, 'topic', {topic: each.topic})),
      [rate(each.in_bytes_per_s), rate(each.out_bytes_per_s), count(each.backlog_messages), count(each.messages), size(each.size)].map((text) => h('td', {class: 'figure'}, text)),
      h('td', null, retention(each.retention_ms, each.retention_bytes)), h('td', null, each.brokers.join(', ') || (data.unanswered.length ? 'not known yet' : 'not open'))));
    /** @param {string} text @param {number | null} place */
    const pageLink = (text, place) => (place === null ? h('span', {class: 'muted'}, text) : h('a', {href: to('topics', {...params.current, screen: 'topics', start: place || null})}, text));
    return [
      figuresOf(data.unanswered),
      table('Topics', heads, rows),
      h('nav', {class: 'pages', 'aria-label': 'Pages', key: 'pages'}, `${count(start + 1)} to ${count(start + data.topics.length)} of ${count(data.total)} `,
        pageLink('previous', start ? Math.max(0, start - PAGE) : null), pageLink('next', data.next_start)),
    ];
  }
}

customElements.define('fencelog-topics', Topics);
