// The subscriptions of all topics, or of one: how far behind each is, and what is kept for it.

import {count, size} from './format.js';
import {answered, empty, field, figuresOf, link, to} from './parts.js';
import {adjust, adjustSoon, go, params} from './route.js';
import {atTop, rowList, toRow} from './rows.js';
import {Resource} from './service.js';
import {sparkline} from './sparkline.js';
import {age, trend} from './subscription_core.js';
import {View, effect, h, signal} from './view.js';

const PAGE = 1000;
const EVERY_MS = 3000;
/** The samples of a whole curve: those of five minutes, and what is so now. */
const LAGS = 31;
const ORDERS = [['backlog_messages', 'Messages behind'], ['backlog_bytes', 'Bytes behind'], ['oldest_us', 'Oldest message'], ['held_bytes', 'Space held back'], ['outstanding', 'With consumers'], ['dead_letters', 'Dead letters'], ['name', 'Name']];
const HEADS = [['name', 'Subscription'], ['figure', 'Behind'], ['figure wide', 'Bytes'], ['figure', 'Oldest'], ['wide', 'The last 5 minutes'], ['figure wide', 'With consumers'], ['figure wide', 'Space held back']];

/** @param {any} each */
const idOf = (each) => `${each.topic} ${each.subscription}`;

/** @param {Record<string, string>} wanted */
function pathOf({sort = ORDERS[0][0], contains = '', start = '0', topic = ''}) {
  return `v1/admin/subscriptions?${new URLSearchParams({sort, contains, start, limit: String(PAGE), recent: 'true', ...(topic ? {topic} : {})})}`;
}

class Subscriptions extends View {
  begin() {
    this.sight = signal(atTop());
    this.chosen = signal(params.current.chosen ?? null);
    this.isInSight = this.chosen.current === null;
    this.page = new Resource(() => pathOf(params.current), EVERY_MS);
    let path = this.page.path;
    this.endings.push(() => this.page.end(), effect(() => {
      const now = pathOf(params.value);
      if (now !== path) this.page.refresh();
      path = now;
    }), effect(() => this.toChosen()));
  }

  /** Bring the subscription that the address names into sight, once. */
  toChosen() {
    const listed = this.page.shown.value.data?.subscriptions;
    if (this.isInSight || !listed) return;
    this.isInSight = true;
    toRow(this, listed.findIndex((/** @type {any} */ each) => idOf(each) === this.chosen.current));
  }

  render() {
    const {sort = ORDERS[0][0], contains = '', topic} = params.value;
    return [h('h1', null, topic ? `Subscriptions of ${topic}` : 'Subscriptions'),
      topic && h('p', {class: 'crumbs', key: 'crumbs'}, link(`Topic ${topic}`, 'topic', {topic}), ' · ', link('Subscriptions of all topics', 'subscriptions')),
      h('div', {class: 'fields', key: 'bar'},
        field('Topic or name contains', h('input', {type: 'search', 'data-filter': true, value: contains, autocomplete: 'off', oninput: (/** @type {any} */ event) => adjust({contains: event.target.value, start: null})})),
        field('Sorted by', h('select', {value: sort, onchange: (/** @type {any} */ event) => adjust({sort: event.target.value, start: null})}, ORDERS.map(([name, title]) => h('option', {value: name}, title))))),
      answered(this.page.shown.value, 'the subscriptions', (data) => this.list(data, contains))];
  }

  /** @param {any} data @param {string} contains */
  list(data, contains) {
    if (!data.total) {
      return contains ? empty('No subscription has such a name', `There is none with “${contains}” in its topic or name.`)
        : empty('There are no subscriptions', 'A consumer makes one over HTTP, in Python or with the command line. Partitions that no broker has opened yet are not looked at.');
    }
    const start = Number(params.current.start ?? 0);
    /** @param {string} text @param {number | null} place */
    const pageLink = (text, place) => (place === null ? h('span', {class: 'muted'}, text) : h('a', {href: to('subscriptions', {...params.current, screen: 'subscriptions', start: place || null})}, text));
    return [
      figuresOf(data.unanswered),
      h('div', {class: 'row subscription heads', 'aria-hidden': 'true', key: 'heads'}, HEADS.map(([look, title]) => h('span', {class: look}, title))),
      rowList({name: 'Subscriptions', look: 'subscription', items: data.subscriptions, idOf, chosen: this.chosen.value, sight: this.sight,
        choose: (each) => { this.chosen.value = idOf(each); adjustSoon({chosen: idOf(each)}); },
        open: (/** @type {any} */ each) => go({screen: 'subscription', topic: each.topic, subscription: each.subscription}),
        cells: (each) => this.cells(each, data.now_us, data.unanswered.length > 0)}),
      h('nav', {class: 'pages', 'aria-label': 'Pages', key: 'pages'}, `${count(start + 1)} to ${count(start + data.subscriptions.length)} of ${count(data.total)} `,
        pageLink('previous', start ? Math.max(0, start - PAGE) : null), pageLink('next', data.next_start)),
    ];
  }

  /** @param {any} each @param {number} nowUs @param {boolean} isWaiting for figures of brokers */
  cells(each, nowUs, isWaiting) {
    if (each.backlog_messages === null) return [h('span', {class: 'name'}, h('b', null, each.subscription), ` ${each.topic}`), h('span', {class: 'figure'}, isWaiting ? 'not known yet' : 'not open')];
    const lags = [...each.recent_lag ?? [], each.backlog_messages];
    return [h('span', {class: 'name'}, h('b', null, each.subscription), ` ${each.topic}`),
      h('span', {class: 'figure'}, count(each.backlog_messages), h('span', {class: 'hidden'}, ' messages behind')), h('span', {class: 'figure wide'}, size(each.backlog_bytes)), h('span', {class: 'figure'}, age(each.oldest_us, nowUs)),
      h('span', {class: 'wide'}, sparkline(lags, {places: LAGS, width: 110, height: 20}), ' ', trend(lags)),
      h('span', {class: 'figure wide'}, count(each.outstanding), h('span', {class: 'hidden'}, ' with consumers')), h('span', {class: 'figure wide'}, each.held_bytes ? h('b', null, size(each.held_bytes), h('span', {class: 'hidden'}, ' held back')) : '–')];
  }
}

customElements.define('fencelog-subscriptions', Subscriptions);
