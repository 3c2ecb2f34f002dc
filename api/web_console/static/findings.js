// The findings of the doctor: how bad, what, since when, and the command that helps.

import {copyable} from './copyable.js';
import {SEVERITIES, aboutTopic, keyed, placesOf} from './findings_core.js';
import {clock, duration} from './format.js';
import {link} from './parts.js';
import {Resource} from './service.js';
import {View, h} from './view.js';

/** @typedef {import('./findings_core.js').Finding} Finding */

/** More than this nobody reads; the rest is counted. */
const MOST_SHOWN = 50;

/** How often the doctor is asked: a failure that a bookie notices after a second is on the page within three. */
export const DOCTOR_MS = 1000;

/** The examination that is cheap enough to be repeated. */
export const DOCTOR_PATH = 'v1/admin/doctor?scan=false';

/** A list of findings, in the order in which they are given. @param {Finding[]} findings @param {string} name @param {number} nowUs */
export const findingList = (findings, name, nowUs) => [
  h('ul', {class: 'findings', 'aria-label': name, key: 'findings'}, keyed(findings.slice(0, MOST_SHOWN)).map(([key, each]) => shownFinding(key, each, nowUs))),
  findings.length > MOST_SHOWN && h('p', {key: 'more'}, `and ${findings.length - MOST_SHOWN} more: `, h('code', null, 'fencelog doctor')),
];

/** @param {string} key @param {Finding} each @param {number} nowUs */
function shownFinding(key, each, nowUs) {
  return h('li', {class: `finding ${each.severity}`, key, 'data-kind': each.kind},
    h('p', null, h('b', {class: 'severity'}, SEVERITIES[each.severity]), ' ', each.summary, '.'),
    h('p', {class: 'muted'}, sinceWhen(each, nowUs),
      placesOf(each).map((place) => [' ', link(place.text, place.screen, place.params)])),
    each.look_first ? [h('div', {class: 'step', key: 'look'}, h('span', {class: 'muted'}, 'Look first: '), copyable(each.look_first)), h('div', {class: 'step', key: 'then'}, h('span', {class: 'muted'}, 'Then, if it fits: '), each.command !== null && copyable(each.command))]
      : each.command !== null && copyable(each.command));
}

/** Since when a finding is so, or is known to the doctor. @param {Finding} each @param {number} nowUs */
function sinceWhen({since_us: since, seen_since_us: seen}, nowUs) {
  const us = since ?? seen;
  return `${since === null ? 'Seen since' : 'Since'} ${clock(us)} UTC, for ${duration(Math.max(0, nowUs - us) / 1000)}.`;
}

/** What is wrong with a topic, if anything is. @param {string} topic */
export const troublesOf = (topic) => h('fencelog-troubles', {live: true, topic, key: 'troubles'});

class Troubles extends View {
  begin() {
    const topic = this.topic = this.getAttribute('topic') ?? '';
    this.config = new Resource(() => `v1/topics/${topic}`, 0);
    this.doctor = new Resource(() => DOCTOR_PATH, DOCTOR_MS);
    this.endings.push(() => [this.config, this.doctor].forEach((each) => each.end()));
  }

  render() {
    const {data: report, problem} = this.doctor.shown.value, config = this.config.shown.value.data;
    if (problem && !problem.isRefused) return h('p', {class: 'muted'}, `Whether anything is wrong with it is not known: ${problem.message}.`);
    if (!report || !config) return [];
    const found = aboutTopic(report.findings, this.topic ?? '', {ensembleSize: config.ensemble_size, ackQuorum: config.ack_quorum});
    return found.length ? h('section', {'aria-label': `What is wrong with ${this.topic}`}, findingList(found, `Findings about ${this.topic}`, report.examined_us)) : [];
  }
}

customElements.define('fencelog-troubles', Troubles);
