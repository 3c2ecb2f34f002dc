// What has happened in the cluster: the events that brokers record, the newest first.

import {clock} from './format.js';
import {positionOf} from './messages_core.js';
import {answered, empty, field, link, table, to} from './parts.js';
import {adjust, params} from './route.js';
import {Resource} from './service.js';
import {View, effect, h, signal} from './view.js';

const EVERY_MS = 2000;
const PAGE = 100;

/** The kinds of events in words. @type {Record<string, string>} */
export const KINDS = {
  takeover: 'Takeover', takeover_failed: 'Takeover failed', lost: 'Partition lost', fenced: 'Fenced', conflict: 'Conflict', roll: 'Roll', repair: 'Repair', recovery: 'Recovery',
  ensemble_change: 'Ensemble change', trim: 'Trim', terminate: 'End of a log', drain: 'Drain', undrain: 'Undrain', owner_unreachable: 'Owner unreachable', events_lost: 'Events lost',
};

/** The path of the events that the address asks for: `kind`, `of` (a topic), `since` and `until` (times), `before` (an offset). @param {Record<string, string>} wanted */
function pathOf({kind = '', of = '', since = '', until = '', before = ''}) {
  const asked = Object.entries({limit: String(PAGE), kind, topic: of, since: positionOf(since)?.from_time ?? '', until: positionOf(until)?.from_time ?? '', before}).filter(([, value]) => value);
  return `v1/admin/events?${new URLSearchParams(Object.fromEntries(asked))}`;
}

class Timeline extends View {
  begin() {
    this.mistake = signal('');
    this.events = new Resource(() => pathOf(params.current), EVERY_MS);
    let path = this.events.path;
    this.endings.push(() => this.events.end(), effect(() => {
      const now = pathOf(params.value);
      if (now !== path) this.events.refresh();
      path = now;
    }));
  }

  /** @param {SubmitEvent} event */
  narrow(event) {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target)), [of, since, until] = ['of', 'since', 'until'].map((name) => String(form.get(name) ?? '').trim());
    const wrong = [since, until].find((each) => each && positionOf(each)?.from_time === undefined);
    this.mistake.value = wrong ? `“${wrong}” is no time like 2026-01-31 12:00:00 (UTC).` : '';
    if (!wrong) adjust({of, since, until, before: null});
  }

  render() {
    const {kind = '', of = '', since = '', until = ''} = params.value, isNarrowed = Boolean(of || since || until);
    return [h('h2', {id: 'timeline'}, 'What has happened'),
      h('form', {class: 'fields', key: 'bar', onsubmit: (/** @type {SubmitEvent} */ event) => this.narrow(event)},
        field('Kind', h('select', {value: kind, onchange: (/** @type {any} */ event) => adjust({kind: event.target.value, before: null})}, h('option', {value: ''}, 'all kinds'), Object.entries(KINDS).map(([name, title]) => h('option', {value: name}, title)))),
        field('Topic (namespace/topic)', h('input', {name: 'of', autocomplete: 'off', placeholder: of || 'all topics'})), field('Since (UTC)', h('input', {name: 'since', autocomplete: 'off', placeholder: since || 'the beginning'})), field('Until (UTC)', h('input', {name: 'until', autocomplete: 'off', placeholder: until || 'now'})),
        h('button', null, 'Show'), isNarrowed && h('button', {type: 'button', onclick: () => adjust({of: null, since: null, until: null, before: null})}, 'Show all')),
      this.mistake.value && h('p', {class: 'bad', role: 'alert', key: 'mistake'}, this.mistake.value),
      isNarrowed && h('p', {class: 'muted', key: 'about'}, [of && `Of ${of}`, since && `since ${since}`, until && `until ${until}`].filter(Boolean).join(', '), '.'),
      answered(this.events.shown.value, 'the events', (data) => this.listed(data, Boolean(kind) || isNarrowed))];
  }

  /** @param {any} data @param {boolean} isFiltered */
  listed(data, isFiltered) {
    const {before} = params.current, events = [...data.events].reverse();
    const pages = h('nav', {class: 'pages', 'aria-label': 'Pages of events', key: 'pages'},
      before ? h('a', {href: to('cluster', {...params.current, before: null})}, 'the newest') : h('span', {class: 'muted'}, 'the newest'), ' ',
      data.older === null ? h('span', {class: 'muted'}, 'the oldest that is kept') : h('a', {href: to('cluster', {...params.current, before: data.older})}, 'older'));
    if (!events.length && data.older === null) return [before ? empty('Nothing older is kept', 'Events are kept for 30 days, as long as they are not too many.') : isFiltered ? empty('No such event is kept', 'Another kind, topic or time may have some.') : empty('Nothing has happened yet', 'Takeovers, rolls, changes of ensembles and the like are listed here.'), before && pages];
    return [table('Events', ['Time (UTC)', 'Kind', 'What'], events.map((each) => h('tr', {key: each.offset, 'data-kind': each.kind},
      h('td', null, clock(each.time_us)), h('th', {scope: 'row'}, KINDS[each.kind] ?? each.kind),
      h('td', {class: 'wraps'}, each.summary, ' ', each.topic !== null && each.partition !== null && link(`${each.topic}, partition ${each.partition}`, 'partition', {topic: each.topic, partition: each.partition}))))), pages];
  }
}

customElements.define('fencelog-timeline', Timeline);
