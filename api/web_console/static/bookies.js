// The bookies: racks, disks, directories, how far those that leave have come; and copies made again.

import {diskOf, directoriesOf, foretold, healingOf, lackOf, progressOf} from './bookies_core.js';
import {DOCTOR_MS, DOCTOR_PATH} from './findings.js';
import {bookieState, withAbsent} from './findings_core.js';
import {clock, count} from './format.js';
import {answered, empty, table} from './parts.js';
import {Resource} from './service.js';
import {View, h} from './view.js';

const EVERY_MS = 1500;
const SLOW_MS = 3000;
/** The ledgers without enough copies that are listed. */
const MOST_MARKS = 50;

/** A disk as a bar and in words. @param {import('./bookies_core.js').Disk | null} disk */
export function diskBar(disk) {
  if (!disk) return 'not known';
  return [h('svg', {class: 'bar', viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true', key: 'bar'},
    h('rect', {width: 100, height: 10, fill: 'var(--todo)'}), h('rect', {width: Math.round(disk.used * 100), height: 10, fill: 'var(--done)'})), ` ${disk.text}`];
}

class Bookies extends View {
  begin() {
    this.bookies = new Resource(() => 'v1/bookies', EVERY_MS);
    this.doctor = new Resource(() => DOCTOR_PATH, DOCTOR_MS);
    /** What each says of itself; one that does not answer holds up this list, not the one above. */
    this.figures = new Resource(() => 'v1/admin/bookies', SLOW_MS);
    this.leaving = new Resource(() => 'v1/admin/decommissions', SLOW_MS);
    this.healing = new Resource(() => 'v1/admin/autorecovery', SLOW_MS);
    this.marks = new Resource(() => `v1/admin/underreplicated?limit=${MOST_MARKS}`, SLOW_MS);
    this.endings.push(() => [this.bookies, this.doctor, this.figures, this.leaving, this.healing, this.marks].forEach((each) => each.end()));
  }

  render() {
    return [h('h2', null, 'Bookies'),
      answered(this.bookies.shown.value, 'the bookies', (data) => (data.bookies.length ? this.listed(data.bookies) : empty('No bookie is registered', 'Nothing can be stored: start a bookie.'))),
      answered(this.leaving.shown.value, 'the bookies that leave', (data) => data.decommissions.length > 0 && this.leavers(data.decommissions)),
      h('section', {'aria-label': 'Copies made again', key: 'healing'}, h('h2', null, 'Copies made again'),
        answered(this.marks.shown.value, 'the ledgers that lack copies', (marks) => [
          answered(this.healing.shown.value, 'self-healing', (status) => h('ul', {class: 'story'}, healingOf(status, marks.total).map((each) => h('li', {key: each}, each)))),
          this.lacking(marks)]))];
  }

  /** @param {any[]} bookies */
  listed(bookies) {
    const found = this.doctor.shown.value.data?.findings ?? null, figures = this.figures.shown.value.data?.bookies ?? [];
    const jobs = new Map((this.leaving.shown.value.data?.decommissions ?? []).map((/** @type {any} */ each) => [each.bookie_id, each]));
    const said = new Map(figures.map((/** @type {any} */ each) => [each.bookie_id, each]));
    return [table('Bookies', ['Bookie', 'Rack', 'State', 'Fullest disk', 'Forecast', 'Ledgers', 'Address'], withAbsent(found, bookies).map((each) => {
      const own = said.get(each.bookie_id), job = jobs.get(each.bookie_id);
      return h('tr', {key: each.bookie_id}, h('th', {scope: 'row'}, each.bookie_id), h('td', null, each.rack),
        h('td', null, job ? `leaves: ${job.phase}` : bookieState(found, each)), h('td', null, diskBar(diskOf(each.free_bytes, each.total_bytes))),
        h('td', {class: 'wraps'}, own ? foretold(own) : '–'), h('td', null, count(own?.ledgers)), h('td', null, each.address ?? 'in this process'));
    })),
    h('details', {key: 'directories'}, h('summary', null, 'Directories and their disks'), table('Directories', ['Bookie', 'Directory', 'Holds', 'Disk'],
      figures.flatMap((/** @type {any} */ each) => directoriesOf(each.directories ?? []).map((one) => h('tr', {key: `${each.bookie_id} ${one.path}`},
        h('th', {scope: 'row'}, each.bookie_id), h('td', {class: 'wraps'}, one.path), h('td', null, one.holds), h('td', null, diskBar(one.disk)))))))];
  }

  /** @param {any[]} jobs */
  leavers(jobs) {
    return [h('h2', {key: 'leaving-title'}, 'Bookies that leave'), table('Bookies that leave', ['Bookie', 'Phase', 'How far'], jobs.map((each) => h('tr', {key: each.bookie_id},
      h('th', {scope: 'row'}, each.bookie_id), h('td', null, each.phase), h('td', {class: 'wraps'}, progressOf(each)))))];
  }

  /** @param {any} marks */
  lacking({ledgers, total}) {
    if (!total) return h('p', {class: 'good', 'data-picture': 'empty'}, '✓ No ledger is known to lack copies.');
    return [h('p', {key: 'total'}, `${count(total)} ${total === 1 ? 'ledger lacks' : 'ledgers lack'} copies${total > ledgers.length ? `; the first ${count(ledgers.length)} of them` : ''}.`),
      table('Ledgers that lack copies', ['Ledger', 'Since (UTC)', 'What', 'Waits for'], ledgers.map((/** @type {any} */ each) => {
        const {parts, waiting} = lackOf(each);
        return h('tr', {key: each.ledger_id}, h('th', {scope: 'row'}, each.ledger_id), h('td', null, clock(each.since_us)), h('td', {class: 'wraps'}, parts), h('td', {class: 'wraps'}, waiting || '–'));
      }))];
  }
}

customElements.define('fencelog-bookies', Bookies);
