// The shell: navigation, the screen that the address names, and the keys that work everywhere.

import './screen_cluster.js';
import './screen_messages.js';
import './screen_overview.js';
import './screen_partition.js';
import './screen_subscription.js';
import './screen_subscriptions.js';
import './screen_topic.js';
import './screen_topics.js';
import {field, to} from './parts.js';
import {arrivals, follow, params} from './route.js';
import {areShortcutsOn, turnShortcuts} from './shortcuts.js';
import {isTokenAsked, keepToken} from './token.js';
import {View, effect, h, signal} from './view.js';

/** The screens by their name in the address: their element, their title, whether navigation has them. */
const SCREENS = /** @type {Record<string, {element: string, title: string, isListed: boolean}>} */ ({
  overview: {element: 'fencelog-overview', title: 'Overview', isListed: true},
  topics: {element: 'fencelog-topics', title: 'Topics', isListed: true},
  subscriptions: {element: 'fencelog-subscriptions', title: 'Subscriptions', isListed: true},
  cluster: {element: 'fencelog-cluster', title: 'Cluster', isListed: true},
  topic: {element: 'fencelog-topic', title: 'Topic', isListed: false},
  partition: {element: 'fencelog-partition', title: 'Partition', isListed: false},
  subscription: {element: 'fencelog-subscription', title: 'Subscription', isListed: false},
  messages: {element: 'fencelog-messages', title: 'Messages', isListed: false},
});

/** The screens that navigation does not have, by the one that it shows for them. @type {Record<string, string>} */
const UNDER = {topic: 'topics', partition: 'topics', messages: 'topics', subscription: 'subscriptions'};

const KEYS = [['/', 'to the filter of the page'], ['g then o, t, s, c', 'overview, topics, subscriptions, cluster'], ['← → Home End', 'from ledger to ledger'], ['[ ]', 'from takeover to takeover'], ['+ − 0', 'closer, farther, all ledgers'], ['?', 'these keys']];

class Console extends View {
  begin() {
    this.areKeysShown = signal(false);
    this.mistake = signal('');
    this.afterG = false;
    const onKey = (/** @type {KeyboardEvent} */ event) => this.key(event);
    this.addEventListener('click', follow);
    document.addEventListener('keydown', onKey);
    let shown = params.current.screen;
    this.endings.push(() => document.removeEventListener('keydown', onKey), effect(() => {
      const isFirst = arrivals.value === 0, {screen} = params.current;
      if (!isFirst) queueMicrotask(() => this.arrive(screen !== shown));
      shown = screen;
    }));
  }

  /** Put the focus on the title where the screen is another one, or what had it is gone. @param {boolean} isOther */
  arrive(isOther) {
    if (!isOther && document.activeElement !== document.body) return;
    const main = /** @type {HTMLElement} */ (this.querySelector('main')), title = main.querySelector('h1');
    if (title) title.tabIndex = -1;
    (title ?? main).focus({preventScroll: true});
    if (isOther) scrollTo(0, 0);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const at = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.altKey || event.metaKey || at.matches?.('input:not([type=checkbox]), textarea, select')) return;
    if (event.key === 'Escape') this.areKeysShown.value = false;
    if (!areShortcutsOn.current) return;
    const goes = this.afterG && {o: 'overview', t: 'topics', s: 'subscriptions', c: 'cluster'}[event.key];
    this.afterG = event.key === 'g';
    if (goes) {
      /** @type {HTMLElement | null} */ (this.querySelector(`nav a[data-screen="${goes}"]`))?.click();
    } else if (event.key === '/') {
      const filter = /** @type {HTMLElement | null} */ (this.querySelector('[data-filter]'));
      if (!filter) return;
      event.preventDefault();
      filter.focus();
    } else if (event.key === '?') {
      this.areKeysShown.value = !this.areKeysShown.value;
    }
  }

  /** Open the page again with the token that was typed. @param {SubmitEvent} event */
  useToken(event) {
    event.preventDefault();
    this.mistake.value = keepToken(String(new FormData(/** @type {HTMLFormElement} */ (event.target)).get('token')).trim());
    if (!this.mistake.current) location.reload();
  }

  tokenForm() {
    return h('form', {class: 'panel', key: 'token', onsubmit: (/** @type {SubmitEvent} */ event) => this.useToken(event)},
      h('p', {role: 'status'}, 'A proxy in front of this service asks for a token. The browser keeps it for this tab.'),
      h('div', {class: 'fields'}, field('Token', h('input', {name: 'token', type: 'password', autocomplete: 'off', required: true})), h('button', null, 'Use it')),
      this.mistake.value && h('p', {class: 'bad', role: 'alert', key: 'mistake'}, this.mistake.value));
  }

  render() {
    const {screen = 'overview', topic, partition, subscription} = params.value;
    const found = SCREENS[screen];
    const place = topic ? `${subscription === undefined ? '' : `${subscription} of `}${topic}${partition === undefined ? '' : `, partition ${partition}`} – ` : '';
    document.title = `${place}${found?.title ?? 'Not found'} – fencelog`;
    const listed = Object.entries(SCREENS).filter(([, each]) => each.isListed);
    return [
      h('a', {class: 'skip', href: '#content', key: 'skip'}, 'To the content'),
      h('header', {key: 'header'}, h('a', {class: 'brand', href: to('overview')}, 'fencelog'),
        h('nav', {'aria-label': 'Screens'}, listed.map(([name, each]) => h('a', {key: name, href: to(name), 'data-screen': name,
          'aria-current': name === (UNDER[screen] ?? screen) ? 'page' : null}, each.title)),
        h('button', {type: 'button', class: 'plain', 'aria-expanded': String(this.areKeysShown.value), onclick: () => { this.areKeysShown.value = !this.areKeysShown.value; }}, 'Keys ?'))),
      this.areKeysShown.value && h('section', {class: 'panel keys', key: 'keys', 'aria-label': 'Keys'}, h('dl', null, KEYS.map(([key, about]) => [h('dt', null, h('kbd', null, key)), h('dd', null, about)])),
        h('label', null, h('input', {type: 'checkbox', checked: areShortcutsOn.value, onchange: (/** @type {any} */ event) => turnShortcuts(event.target.checked)}), ' Letters and signs are shortcuts on every screen; those of the ledger chain, where it has the focus, always are.')),
      isTokenAsked.value && this.tokenForm(),
      h('main', {id: 'content', tabindex: -1, key: 'main'}, found
        ? h(found.element, {live: true, key: `${screen} ${topic ?? ''} ${partition ?? ''} ${subscription ?? ''}`})
        : h('div', {class: 'picture refused', role: 'alert', 'data-picture': 'refused'}, h('h1', null, 'There is no such screen'), h('p', null, h('a', {href: to('overview')}, 'To the overview')))),
    ];
  }
}

document.querySelector('fencelog-console')?.replaceChildren();
customElements.define('fencelog-console', Console);
