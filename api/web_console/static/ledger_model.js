// The ledger chain of a partition as values to draw and sentences to read, from what the service
// answers. Decisions on values alone.

import {clock, count, duration, plural, size} from './format.js';

/** The tints of brokers; a fourth broker takes the first one again, and its name is always written. */
const TINTS = 3;
/** The subscriptions that the picture has room for; the slowest come first. */
const MOST_CURSORS = 12;

/**
 * @typedef {{from: number, to: number, firstEntry: number, lastEntry: number | null, bookies: string[], lost: string[], sinceUs: number | null}} Fragment `sinceUs`: when it began, null: nobody has noted it
 * @typedef {{id: number, epoch: number, owner: string, tint: number, from: number, to: number, state: string, createdUs: number, lastUs: number | null, entries: number | null, size: number | null, isOpen: boolean, isAdopted: boolean, fragments: Fragment[], lost: string[], quorums: number[] | null, takeover: Takeover | null, isFenced: boolean}} Ledger
 * `takeover`: the one that followed; `isFenced`: by it
 * @typedef {{epoch: number, owner: string, previous: string, takenUs: number, ended: string | null}} Takeover `ended`: how the previous owner was, null: nobody has noted it
 */

/** What events tell of a partition. `endings`: how the owner before an epoch ended; `changes`: when a ledger got other bookies, by its id and the first entry on them. @typedef {{endings: Map<number, string>, changes: Map<string, number>}} Happened */

/** @param {any[]} events @param {number} partition @returns {Happened} */
export function happenedIn(events, partition) {
  const ours = events.filter((each) => each.partition === partition);
  return {
    endings: new Map(ours.flatMap((each) => (each.from ? [[each.epoch, each.from.ended]] : []))),
    changes: new Map(ours.flatMap((each) => (each.kind === 'ensemble_change' ? [[`${each.ledger_id} ${each.detail.first_entry}`, each.time_us]] : []))),
  };
}

/** @param {any} said the answer of `GET …/chain` @param {Happened} [happened] */
export function modelOf(said, {endings, changes} = {endings: new Map(), changes: new Map()}) {
  const alive = new Set(said.bookies);
  const owners = new Map(said.takeovers.map((/** @type {any} */ each) => [each.epoch, each]));
  /** @param {number} epoch */
  const ownerOf = (epoch) => owners.get(epoch)?.broker_id ?? (epoch === said.epoch ? said.owner : `epoch ${epoch}`);
  const names = [...new Set(said.segments.map((/** @type {any} */ each) => ownerOf(each.epoch)))];
  /** @type {Ledger[]} */
  const ledgers = said.segments.map((/** @type {any} */ each, /** @type {number} */ index) => {
    const next = said.segments[index + 1];
    const isTaken = next !== undefined && next.epoch > each.epoch && !each.is_adopted;
    const taken = isTaken ? owners.get(next.epoch) : undefined, ended = isTaken ? endings.get(next.epoch) ?? null : null;
    // The first owner after it has fenced it, or found it closed, even one that wrote nothing itself.
    const follower = isTaken ? Math.min(next.epoch, ...[...owners.keys()].filter((epoch) => epoch > each.epoch)) : 0;
    const fragments = fragmentsOf(each, alive, changes);
    const owner = ownerOf(each.epoch);
    return {
      id: each.ledger_id, epoch: each.epoch, owner, tint: names.indexOf(owner) % TINTS + 1,
      from: each.base_offset, to: each.end_offset, createdUs: each.created_us, lastUs: each.last_publish_us,
      entries: each.entries, size: each.size, isOpen: each.is_written, isAdopted: each.is_adopted,
      state: each.is_closed ? 'closed' : each.ledger?.state === 'in_recovery' ? 'in recovery' : each.is_written ? 'open' : 'being closed',
      fragments, quorums: each.ledger && [each.ledger.ensemble_size, each.ledger.write_quorum, each.ledger.ack_quorum],
      lost: [...new Set([...fragments.flatMap((/** @type {Fragment} */ f) => f.lost), ...each.missing])],
      isFenced: isTaken && endings.get(follower) !== 'released',
      takeover: isTaken ? {epoch: next.epoch, owner: ownerOf(next.epoch), previous: taken?.from ?? owner, takenUs: taken?.taken_us ?? next.created_us, ended} : null,
    };
  });
  const first = said.older ? said.older.to_offset : ledgers[0]?.from ?? said.earliest_offset;
  const end = said.newer ? said.newer.from_offset : said.tail_offset;
  const bookies = [...new Set([...said.bookies, ...ledgers.flatMap((each) => each.fragments.flatMap((f) => f.bookies))])].sort();
  const holder = said.subscriptions.find((/** @type {any} */ each) => each.durable) ?? null;
  const cursors = said.subscriptions.slice(0, MOST_CURSORS);
  return {
    said, ledgers, bookies, alive, first, end, holder, cursors,
    undrawn: said.subscriptions.length - cursors.length + said.more_subscriptions,
    tail: said.tail_offset, earliest: said.earliest_offset, epochs: epochsOf(ledgers),
    gone: bookies.filter((each) => !alive.has(each)),
  };
}

/** @typedef {ReturnType<typeof modelOf>} Model */

/** @param {any} each @param {Set<string>} alive @param {Map<string, number>} changes @returns {Fragment[]} */
function fragmentsOf(each, alive, changes) {
  const listed = each.ledger?.fragments ?? [];
  // Entries hold batches: within a ledger, messages are taken to be spread evenly over its entries.
  const perEntry = each.entries ? (each.end_offset - each.base_offset) / each.entries : 0;
  /** @param {number} entry */
  const offset = (entry) => Math.min(each.end_offset, Math.round(each.base_offset + entry * perEntry));
  return listed.map((/** @type {any} */ one, /** @type {number} */ index) => {
    const next = listed[index + 1];
    const last = next ? next.first_entry - 1 : each.entries ? each.entries - 1 : null;
    return {
      from: offset(one.first_entry), to: next ? offset(next.first_entry) : each.end_offset,
      firstEntry: one.first_entry, lastEntry: last, bookies: one.bookies, sinceUs: one.since_us ?? changes.get(`${each.ledger_id} ${one.first_entry}`) ?? null,
      lost: one.bookies.filter((/** @type {string} */ b) => !alive.has(b) || each.missing.includes(b)),
    };
  });
}

/** The entries that each bookie is to have of a ledger, by its metadata; and whether its copies are missing. @param {Ledger} each @returns {{bookie: string, entries: number, isLost: boolean}[]} */
export function entriesPerBookie(each) {
  const [ensemble, write] = each.quorums ?? [0, 0], counts = new Map();
  for (const one of each.fragments) {
    one.bookies.forEach((bookie, at) => counts.set(bookie, (counts.get(bookie) ?? 0) + striped(one.firstEntry, one.lastEntry ?? -1, at, ensemble, write)));
  }
  return [...counts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([bookie, entries]) => ({bookie, entries, isLost: each.lost.includes(bookie)}));
}

/**
 * The entries on each bookie, as the bookies list them, where they answer; `held` null: not known.
 * @param {Ledger} each @param {any} copies the answer of `GET …/copies`, null: none
 * @returns {{bookie: string, entries: number, held: number | null, missing: string, isLost: boolean, isLacking: boolean}[]}
 */
export function copiesOf(each, copies) {
  const said = new Map((copies?.bookies ?? []).map((/** @type {any} */ one) => [one.bookie_id, one]));
  return entriesPerBookie(each).map(({bookie, entries, isLost}) => {
    const own = said.get(bookie);
    if (!own) return {bookie, entries, held: null, missing: isLost ? 'all, as far as is known' : 'not known', isLost, isLacking: isLost};
    if (own.problem !== null) return {bookie, entries: own.expected, held: null, missing: `not known: ${own.problem}`, isLost, isLacking: false};
    const ranges = own.missing.map((/** @type {number[]} */ [first, last]) => (first === last ? count(first) : `${count(first)} – ${count(last)}`)).join(', ');
    const limbo = own.in_limbo ? '; in limbo: it may have forgotten what is missing' : '';
    return {bookie, entries: own.expected, held: own.held, missing: own.held < own.expected ? `${ranges}${own.are_more ? ', …' : ''}${limbo}` : 'nothing', isLost, isLacking: own.held < own.expected};
  });
}

/** How many of some entries the bookie at a place of the ensemble has: entry N is on the places N, N + 1, … modulo the ensemble. @param {number} first @param {number} last @param {number} at @param {number} ensemble @param {number} write */
function striped(first, last, at, ensemble, write) {
  const total = Math.max(0, last - first + 1), rounds = Math.floor(total / ensemble);
  let rest = 0;
  for (let entry = first + rounds * ensemble; entry <= last; entry += 1) if ((at - entry % ensemble + ensemble) % ensemble < write) rest += 1;
  return rounds * write + rest;
}

/** A part of the ledgers around the chosen one: each step halves how many are drawn. @param {Model} model @param {Ledger} chosen @param {number} steps @returns {Model} */
export function zoomed(model, chosen, steps) {
  const shown = Math.max(1, Math.ceil(model.ledgers.length / 2 ** steps));
  if (steps <= 0 || shown >= model.ledgers.length) return model;
  const begin = Math.max(0, Math.min(model.ledgers.indexOf(chosen) - Math.floor(shown / 2), model.ledgers.length - shown));
  const ledgers = model.ledgers.slice(begin, begin + shown), isLast = begin + shown === model.ledgers.length;
  return {...model, ledgers, epochs: epochsOf(ledgers), first: ledgers[0].from, end: isLast ? model.end : ledgers[ledgers.length - 1].to};
}

/** @param {Ledger[]} ledgers */
function epochsOf(ledgers) {
  /** @type {{epoch: number, owner: string, previous: string, tint: number, from: number, to: number, atUs: number}[]} */
  const found = [];
  for (const each of ledgers) {
    const last = found.at(-1);
    if (last?.epoch === each.epoch) last.to = each.to;
    else {
      const takeover = ledgers.find((l) => l.takeover?.epoch === each.epoch)?.takeover;
      found.push({epoch: each.epoch, owner: each.owner, previous: takeover?.previous ?? last?.owner ?? '', tint: each.tint, from: each.from, to: each.to, atUs: takeover?.takenUs ?? each.createdUs});
    }
  }
  return found;
}

/** The sentences about what is wrong, the worst first. @param {Model} model @returns {string[]} */
export function problems(model) {
  const short = model.ledgers.filter((each) => each.lost.length);
  const found = [];
  if (short.length) {
    const copies = model.ledgers.flatMap((each) => each.fragments.map((f) => f.bookies.length - f.lost.length));
    const least = Math.min(...copies);
    const who = model.gone.filter((b) => short.some((each) => each.lost.includes(b)));
    const why = who.length ? `${who.join(', ')} ${who.length > 1 ? 'are' : 'is'} gone. ` : '';
    const left = least ? `Every message shown still has ${count(least)} or more.` : 'Some messages have no copy that answers.';
    found.push(`${why}${short.length} of ${plural(model.ledgers.length, 'ledger')} shown (${named(short)}) ${short.length > 1 ? 'have' : 'has'} fewer copies than they should until they are copied anew. ${left}`);
  }
  const recovering = model.ledgers.filter((each) => each.state === 'in recovery');
  if (recovering.length) found.push(`${recovering.length > 1 ? 'Ledgers' : 'Ledger'} ${named(recovering)}: a new owner is finding out where it ends.`);
  return found;
}

/** @param {Ledger[]} ledgers */
const named = (ledgers) => (ledgers.length > 5 ? `${ledgers.slice(0, 5).map((each) => each.id).join(', ')}, …` : ledgers.map((each) => each.id).join(', '));

/** How an owner ended, after its name. @type {Record<string, string>} */
const ENDED = {released: ', which had given it up', unreachable: ', whose port refused connections', session_ended: ', which was lost: its session had ended', fenced: ', which was still registered'};

/** @param {string} owner @param {string | null} previous */
const takenOver = (owner, previous) => (previous === null || previous === owner ? `${owner} opened the partition again` : `${owner} took the partition over from ${previous}`);

/** What happened, in sentences, the oldest first. @param {Model} model @returns {string[]} */
export function story(model) {
  const out = [];
  if (model.said.older) {
    const {ledgers, epochs, from_offset: from, to_offset: to} = model.said.older;
    out.push(`Before: ${plural(ledgers, 'ledger')} with offsets ${count(from)} to ${count(to - 1)}${epochs > 1 ? `, of ${epochs} epochs` : ''}.`);
  }
  for (const each of model.ledgers) {
    for (let i = 1; i < each.fragments.length; i += 1) {
      const was = each.fragments[i - 1].bookies, is = each.fragments[i].bookies;
      const came = is.filter((b) => !was.includes(b)), left = was.filter((b) => !is.includes(b));
      const {from, sinceUs} = each.fragments[i];
      out.push(`${sinceUs === null ? '' : `${clock(sinceUs)}: `}Ledger ${each.id}, from about offset ${count(from)} on: ${came.join(', ')} took the place of ${left.join(', ')}, which did not answer.`);
    }
    if (each.takeover) {
      const next = model.ledgers[model.ledgers.indexOf(each) + 1];
      const {owner, previous, epoch, ended, takenUs} = each.takeover, how = ENDED[ended ?? ''] ?? '';
      for (const idle of model.said.takeovers) {
        if (idle.epoch > each.epoch && idle.epoch < epoch) out.push(`${clock(idle.taken_us)}: ${takenOver(idle.broker_id, idle.from)}, and wrote nothing (epoch ${idle.epoch}).`);
      }
      const did = each.isFenced ? `It fenced ledger ${each.id}, closed it before offset ${count(each.to)}` : `Ledger ${each.id} had been closed in good order before offset ${count(each.to)}, and ${owner}`;
      out.push(`${clock(takenUs)}: ${takenOver(owner, previous)}${how}. ${did}${each.isFenced ? ' and' : ''} went on in ledger ${next.id} (epoch ${epoch}).`);
    }
  }
  if (!out.length) out.push('One broker has written all that is shown, and no bookie was replaced.');
  if (model.earliest > model.first) out.push(`Trimmed: messages below ${count(model.earliest)} cannot be read any more. A ledger is deleted when all of it is below the line.`);
  return out;
}

/** What retention deletes next, and what that waits for. @param {Model} model @param {number} nowMs */
export function nextCut(model, nowMs) {
  const cut = model.said.next_cut;
  const what = `ledger ${cut.ledger_id} (up to offset ${count(cut.to_offset - 1)})`;
  const subscription = model.holder?.subscription ?? 'a subscription';
  /** @type {Record<string, () => string>} */
  const reasons = {
    last: () => 'nothing: the log needs its last ledger',
    settings: () => 'nothing: neither age nor size is bounded',
    nothing: () => `${what}, with the next check`,
    compaction: () => `${what}, when the compacted view contains it`,
    subscription: () => `${what}, when ${subscription} has acknowledged it`,
    retention: () => {
      const when = [
        cut.due_us === null ? '' : `in ${duration(Math.max(0, cut.due_us / 1000 - nowMs))}`,
        cut.bytes_to_come === null ? '' : `after ${size(cut.bytes_to_come)} more`,
      ].filter(Boolean);
      return `${what}, ${when.join(' or ')}`;
    },
  };
  return reasons[cut.held_by]?.() ?? cut.held_by;
}

/** @param {Ledger} each the name of a ledger's button */
export function spokenName(each) {
  return `Ledger ${each.id}, ${each.state}${each.isFenced ? ' by a takeover' : ''}, ${each.to > each.from ? `offsets ${each.from} to ${each.to - 1}` : 'empty'}, written by ${each.owner} in epoch ${each.epoch}`
    + (each.fragments.length > 1 ? `, ${plural(each.fragments.length - 1, 'change')} of bookies` : '')
    + (each.lost.length ? `, copies missing on ${each.lost.join(', ')}` : '');
}

/** Round steps of an axis: about one for each `apart` pixels. @param {number} span @param {number} width @param {number} apart */
export function axisStep(span, width, apart) {
  const least = span * apart / Math.max(1, width);
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return Math.max(1, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least) ?? 10 * power);
}
