// The ledger chain of a partition, drawn: who wrote it, in which ledgers, on which bookies, who has
// read it. All rows share one axis of offsets, so that a column belongs to the same messages.

import {clock, count} from './format.js';
import {axisStep, spokenName} from './ledger_model.js';
import {h} from './view.js';

/** @typedef {import('./ledger_model.js').Model} Model */
/** @typedef {import('./ledger_model.js').Ledger} Ledger */

const NARROW_PX = 720;
const LEDGER_PX = 64;

/** Collects what is drawn, from top to bottom. */
class Sheet {
  /** @param {Model} model @param {number} width */
  constructor(model, width) {
    this.model = model;
    this.width = width;
    this.isNarrow = width < NARROW_PX;
    this.left = this.isNarrow ? 0 : 128;
    this.right = model.said.newer || model.said.terminated ? 4 : this.isNarrow ? 26 : 64;
    this.y = 70;
    /** @type {any[]} */
    this.parts = [];
    /** @type {{at: number, top: number, color: string, dash?: string, width?: number}[]} */
    this.lines = [];
    /** @type {any[]} */
    this.flags = [];
  }

  /** @param {number} offset */
  x(offset) {
    const {first, end} = this.model;
    return this.left + (offset - first) / Math.max(1, end - first) * (this.width - this.left - this.right);
  }

  /** @param {string} name @param {string} about @param {number} height @returns {number} its top */
  lane(name, about, height) {
    this.y += this.isNarrow ? 16 : 24;
    this.parts.push(h('text', {class: 'tag', x: 0, y: this.y + 12}, h('tspan', {class: 'h'}, name),
      !this.isNarrow && h('tspan', {class: 'm s', dx: 10}, about)));
    const top = this.y + 22;
    this.y = top + height;
    return top;
  }

  /** @param {string} text @param {number} y @param {boolean} isBad */
  label(text, y, isBad = false) {
    const short = text.length > 15 ? `${text.slice(0, 6)}…${text.slice(-7)}` : text;
    this.parts.push(h('text', {class: `s tag ${isBad ? 'bad b' : ''}`, x: this.isNarrow ? 0 : this.left - 10, y,
      'text-anchor': this.isNarrow ? 'start' : 'end'}, isBad ? `✕ ${short} gone` : short));
  }
}

/** The first of some texts that fits. @param {string[]} texts @param {number} width @param {number} px of a letter */
const fitting = (texts, width, px) => texts.find((each) => each.length * px + 12 <= width) ?? '';

/**
 * @param {Model} model
 * @param {number} width
 * @param {Ledger | undefined} chosen
 * @param {(id: number) => void} choose
 * @param {(by: number) => void} zoom by steps
 */
export function picture(model, width, chosen, choose, zoom) {
  const sheet = new Sheet(model, width);
  axis(sheet);
  epochs(sheet);
  ledgers(sheet, chosen, choose, zoom);
  copies(sheet);
  cursors(sheet);
  compacted(sheet);
  sheet.y += 8;
  marks(sheet);
  const {said} = model;
  return h('svg', {viewBox: `0 0 ${width} ${sheet.y}`, width, height: sheet.y, role: 'group',
    'aria-label': `Ledger chain: ${model.ledgers.length} of ${said.ledgers} ledgers, offsets ${model.first} to ${model.end}. Arrow keys move between ledgers.`},
    patterns(),
    sheet.lines.map((each) => h('line', {x1: sheet.x(each.at), x2: sheet.x(each.at), y1: each.top, y2: sheet.y, stroke: each.color,
      'stroke-width': each.width ?? 2, 'stroke-dasharray': each.dash ?? null, opacity: 0.85})),
    sheet.parts,
    sheet.flags);
}

function patterns() {
  return h('defs', null,
    h('pattern', {id: 'trim', width: 7, height: 7, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)'},
      h('rect', {width: 7, height: 7, fill: 'var(--bg)', opacity: 0.6}), h('line', {y2: 7, stroke: 'var(--trim)', 'stroke-width': 2.2, opacity: 0.6})),
    h('pattern', {id: 'gone', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(-45)'},
      h('rect', {width: 6, height: 6, fill: 'var(--badf)'}), h('line', {y2: 6, stroke: 'var(--bad)', 'stroke-width': 2})));
}

/** @param {Sheet} sheet */
function axis(sheet) {
  const {model, width, isNarrow} = sheet, y = 66;
  const step = axisStep(model.end - model.first, width - sheet.left - sheet.right, isNarrow ? 66 : 90);
  for (let at = Math.ceil(model.first / step) * step; at <= model.end; at += step) {
    sheet.parts.push(h('line', {x1: sheet.x(at), x2: sheet.x(at), y1: y, y2: y + 6, stroke: 'var(--line)'}),
      h('text', {class: 'm s tag', x: sheet.x(at), y: y - 4, 'text-anchor': at === model.first && isNarrow ? 'start' : 'middle'}, count(at)));
  }
  sheet.parts.push(h('line', {x1: sheet.left, x2: width, y1: y + 6, y2: y + 6, stroke: 'var(--line)'}));
  if (!isNarrow) sheet.parts.push(h('text', {class: 'm s', x: 0, y: y - 4}, 'offset'));
}

/** @param {Sheet} sheet */
function epochs(sheet) {
  const {model, isNarrow} = sheet;
  const top = sheet.lane('Who writes', 'one broker owns the partition at a time; each new owner begins a new epoch', 30);
  let flagEnd = -Infinity;
  model.epochs.forEach((each, index) => {
    const isLast = index === model.epochs.length - 1 && !model.said.newer;
    const x1 = sheet.x(each.from), width = Math.max(2, (isLast && !model.said.terminated ? sheet.width : sheet.x(each.to) - 3) - x1);
    const text = fitting([`${each.owner} · epoch ${each.epoch}${isLast ? ' · owns it now' : ''}`, `${each.owner} · epoch ${each.epoch}`, each.owner, `e${each.epoch}`], width, 7.8);
    sheet.parts.push(h('rect', {x: x1, y: top, width, height: 30, rx: 4, fill: `var(--o${each.tint})`}),
      h('text', {class: 'on', x: x1 + 10, y: top + 20}, text));
    if (!index) return;
    sheet.lines.push({at: each.from, top: 40, color: `var(--o${each.tint})`, width: 2.5});
    const before = each.previous;
    const words = isNarrow ? `${each.owner} took over ${clock(each.atUs)}` : `${clock(each.atUs)} ${each.owner} ${before === each.owner ? 'opened it again' : `took over from ${before}`}`;
    const half = words.length * 3.8, middle = Math.min(Math.max(x1, half), sheet.width - half);
    if (middle - half < flagEnd) return; // the sentence below the picture says it
    flagEnd = middle + half + 8;
    sheet.flags.push(h('text', {class: 's tag b', x: middle, y: 36, 'text-anchor': 'middle'}, words));
  });
}

/** @param {Sheet} sheet @param {Ledger | undefined} chosen @param {(id: number) => void} choose @param {(by: number) => void} zoom */
function ledgers(sheet, chosen, choose, zoom) {
  const {model} = sheet;
  const top = sheet.lane('Ledgers', 'the pieces of the log, to scale; coloured by who wrote them', LEDGER_PX + 24);
  let timeEnd = -Infinity;
  for (const each of model.ledgers) {
    const x1 = sheet.x(each.from), width = Math.max(3, sheet.x(each.to) - (each.isOpen ? 0 : 3) - x1);
    const color = `var(--o${each.tint})`, fill = `var(--o${each.tint}f)`, isChosen = each === chosen;
    sheet.parts.push(ledgerButton(sheet, each, {x1, width, top, color, fill, isChosen}, choose, zoom));
    const messages = each.to - each.from;
    const states = each.isOpen ? ['open, being written', 'open'] : each.isFenced ? ['fenced, then closed', 'fenced'] : [each.state];
    [[`Ledger ${each.id}`, `L${each.id}`, `${each.id}`], [`${count(messages)} messages`, count(messages)], states].forEach((texts, row) => {
      const text = fitting(texts, width, row ? 6.8 : 8);
      if (text) sheet.parts.push(h('text', {class: row ? 's in' : 'b in', style: {stroke: fill}, x: x1 + 9, y: top + [20, 38, 55][row]}, text));
    });
    const time = clock(each.createdUs);
    if (x1 > timeEnd) {
      sheet.parts.push(h('text', {class: 's m tag', x: x1, y: top + LEDGER_PX + 17}, time));
      timeEnd = x1 + time.length * 7 + 8;
    }
    if (isChosen) sheet.parts.push(h('path', {d: `M${x1 + width / 2 - 7} ${top + LEDGER_PX + 12}h14l-7 -8z`, fill: 'var(--text)'}));
  }
  const written = model.ledgers.some((each) => each.isOpen);
  if (written && sheet.right > 40) sheet.parts.push(h('text', {class: 'm s', x: sheet.x(model.tail) + 8, y: top + 38}, 'next →'));
}

/**
 * @param {Sheet} sheet @param {Ledger} each
 * @param {{x1: number, width: number, top: number, color: string, fill: string, isChosen: boolean}} at
 * @param {(id: number) => void} choose @param {(by: number) => void} zoom
 */
function ledgerButton(sheet, each, {x1, width, top, color, fill, isChosen}, choose, zoom) {
  const {model} = sheet;
  const trimmed = Math.max(0, Math.min(model.earliest, each.to) - each.from);
  const right = sheet.width - 5;
  return h('g', {class: 'seg', key: each.id, role: 'button', tabindex: isChosen ? 0 : -1, 'data-ledger': each.id,
    'aria-pressed': isChosen ? 'true' : 'false', 'aria-label': spokenName(each),
    onclick: () => choose(each.id), onkeydown: (/** @type {KeyboardEvent} */ event) => move(event, model, each, choose, zoom)},
    each.isOpen && h('path', {d: `M${x1 + width} ${top}H${right}q4 0 4 4v${LEDGER_PX - 8}q0 4 -4 4H${x1 + width}`, fill: 'none', stroke: color, 'stroke-width': 1.5, 'stroke-dasharray': '5 4'}),
    h('rect', {class: 'box', x: x1, y: top, width, height: LEDGER_PX, rx: 5, fill, stroke: color, 'stroke-width': isChosen ? 3 : 1.5,
      'stroke-dasharray': each.state === 'in recovery' ? '2 3' : null}),
    each.isFenced && h('rect', {x: x1 + width - Math.min(6, width), y: top, width: Math.min(6, width), height: LEDGER_PX, rx: 2, fill: color}),
    trimmed > 0 && h('rect', {x: x1 + 1.5, y: top + 1.5, width: Math.max(0, sheet.x(each.from + trimmed) - x1 - 1.5), height: LEDGER_PX - 3, rx: 4, fill: 'url(#trim)'}),
    h('rect', {class: 'ring', x: x1 - 4, y: top - 4, width: width + 8, height: LEDGER_PX + 8, rx: 8}));
}

/** @param {KeyboardEvent} event @param {Model} model @param {Ledger} from @param {(id: number) => void} choose @param {(by: number) => void} zoom */
function move(event, model, from, choose, zoom) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const all = model.ledgers, index = all.indexOf(from), ends = all.flatMap((each, at) => (each.takeover ? [at] : []));
  const by = {'+': 1, '=': 1, '-': -1, 0: -Infinity}[event.key];
  if (by !== undefined) {
    event.preventDefault();
    zoom(by);
    return;
  }
  /** @type {Record<string, number | undefined>} */
  const places = {ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: all.length - 1,
    ']': ends.find((at) => at > index), '[': ends.filter((at) => at < index).at(-1), Enter: index, ' ': index};
  if (!(event.key in places)) return;
  event.preventDefault();
  const to = all[places[event.key] ?? -1];
  if (!to) return;
  const drawn = /** @type {Element} */ (event.currentTarget).closest('svg');
  choose(to.id);
  /** @type {SVGElement | null | undefined} */ (drawn?.querySelector(`[data-ledger="${to.id}"]`))?.focus();
}

/** @param {Sheet} sheet */
function copies(sheet) {
  const {model, isNarrow} = sheet, height = isNarrow ? 33 : 24, down = isNarrow ? 15 : 0;
  const top = sheet.lane('Copies', 'a row for each bookie; a message is on the bookies that have a bar below it', model.bookies.length * height);
  model.bookies.forEach((bookie, index) => {
    const y = top + index * height, isGone = !model.alive.has(bookie);
    sheet.label(bookie, y + 13, isGone);
    sheet.parts.push(h('line', {x1: sheet.left, x2: sheet.width, y1: y + down + 9, y2: y + down + 9, stroke: 'var(--rule)'}));
    for (const ledger of model.ledgers) {
      for (const each of ledger.fragments) {
        if (!each.bookies.includes(bookie)) continue;
        const isLost = each.lost.includes(bookie), x1 = sheet.x(each.from), width = Math.max(2, sheet.x(each.to) - 3 - x1);
        sheet.parts.push(h('rect', {x: x1, y: y + down + 1, width, height: 17, rx: 3, fill: isLost ? 'url(#gone)' : 'var(--copy)',
          stroke: isLost ? 'var(--bad)' : 'none', 'stroke-width': 1.5}, h('title', null, `Ledger ${ledger.id} on ${bookie}, from ${each.firstEntry ? 'about ' : ''}offset ${count(each.from)} on${each.sinceUs === null ? '' : `, since ${clock(each.sinceUs)} UTC`}`)));
        if (isLost && width > 80) sheet.parts.push(h('text', {class: 's bad b tagbad', x: x1 + 8, y: y + down + 14}, 'missing'));
      }
    }
  });
}

/** @param {Sheet} sheet */
function cursors(sheet) {
  const {model, isNarrow} = sheet, all = model.cursors;
  if (!all.length) return;
  const height = 37, top = sheet.lane('Who has read how far', 'filled is acknowledged; the triangle is the first message that is not', all.length * height);
  const begin = sheet.x(model.first), end = sheet.x(model.end);
  all.forEach((/** @type {any} */ each, /** @type {number} */ index) => {
    const y = top + index * height + 17, x = sheet.x(Math.min(Math.max(each.acked_to, model.first), model.end));
    const note = `${count(each.backlog_messages)} behind${each.holes ? `, ${each.holes} ranges done ahead` : ''}`
      + `${each === model.holder && all.length > 1 ? ' · the slowest: trimming stops here' : ''}${each.durable ? '' : ' · not durable'}`;
    sheet.parts.push(h('rect', {x: begin, y, width: Math.max(0, end - begin), height: 11, rx: 3, fill: 'var(--todo)', stroke: 'var(--line)'}),
      h('rect', {x: begin, y, width: Math.max(0, x - begin), height: 11, rx: 3, fill: 'var(--done)'}),
      h('path', {d: `M${x - 8} ${y - 6}h16l-8 10z`, fill: 'var(--text)', stroke: 'var(--bg)'}),
      h('line', {x1: x, x2: x, y1: y + 2, y2: y + 11, stroke: 'var(--text)', 'stroke-width': 2}));
    if (isNarrow) {
      sheet.parts.push(h('text', {class: 's tag', x: 0, y: y - 5}, h('tspan', {class: 'b'}, each.subscription), h('tspan', {class: 'm'}, ` ${count(each.acked_to)}, ${count(each.backlog_messages)} behind`)));
      return;
    }
    sheet.label(each.subscription, y + 10);
    const isRight = x > sheet.width * 0.62;
    sheet.parts.push(h('text', {class: 's tag m', x: x + (isRight ? -14 : 14), y: y - 5, 'text-anchor': isRight ? 'end' : 'start'},
      h('tspan', {class: 'b t'}, count(each.acked_to)), ` · ${note}`));
  });
}

/** @param {Sheet} sheet */
function compacted(sheet) {
  const {model} = sheet, view = model.said.compaction;
  if (view.state === 'none') return;
  const top = sheet.lane('Compacted view', 'the newest message of each key', 20);
  const end = sheet.x(Math.min(Math.max(view.end_offset, model.first), model.end));
  sheet.parts.push(h('rect', {x: sheet.x(model.first), y: top + 2, width: Math.max(4, end - sheet.x(model.first)), height: 12, rx: 3, fill: 'var(--good)'}));
  const isRight = end > sheet.width * 0.62;
  sheet.parts.push(h('text', {class: `s ${isRight ? 'on' : 'm tag'}`, x: end + (isRight ? -10 : 10), y: top + 12, 'text-anchor': isRight ? 'end' : 'start'},
    `${count(view.messages)} messages; made from the log up to ${count(view.end_offset)}`));
}

/** @param {Sheet} sheet */
function marks(sheet) {
  const {model, isNarrow} = sheet, cut = model.said.next_cut;
  const isTrimmed = model.earliest > model.first && model.earliest <= model.end;
  if (isTrimmed) {
    sheet.lines.push({at: model.earliest, top: 18, color: 'var(--trim)', dash: '5 4'});
    const text = isNarrow ? `from ${count(model.earliest)}` : `trimmed: readable from ${count(model.earliest)}`;
    const isRight = sheet.x(model.earliest) > sheet.width * 0.5;
    sheet.flags.push(h('text', {class: 's tag', x: sheet.x(model.earliest), y: 14, 'text-anchor': isRight ? 'end' : 'start'}, text));
  }
  if (cut.to_offset !== null && !['settings', 'last'].includes(cut.held_by) && cut.to_offset > model.first && cut.to_offset <= model.end) {
    sheet.lines.push({at: cut.to_offset, top: 48, color: 'var(--bad)', dash: '2 4'});
    if (!isNarrow && !isTrimmed) sheet.flags.push(h('text', {class: 's tag', x: sheet.x(cut.to_offset), y: 14, 'text-anchor': sheet.x(cut.to_offset) > sheet.width * 0.4 ? 'end' : 'start'}, `retention's next cut: ${count(cut.to_offset)}`));
  }
  if (!model.said.newer && model.tail <= model.end) {
    sheet.lines.push({at: model.tail, top: 18, color: 'var(--good)', width: 2.5});
    const ended = model.said.terminated;
    sheet.flags.push(h('text', {class: 's tag b', x: sheet.x(model.tail), y: 14, 'text-anchor': 'end'},
      isNarrow ? `tail ${count(model.tail)}` : `tail ${count(model.tail)}: ${ended ? 'the log has ended' : 'where the next message goes'}`));
  }
}
