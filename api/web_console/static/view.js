// The view helper: signals, and elements described by values and brought up to date in place.
//
// Text becomes text nodes and attributes are set by name, so that nothing which a message, a topic
// or a server says can become markup. There is no way to give HTML.

const SVG = 'http://www.w3.org/2000/svg';
const HTML = 'http://www.w3.org/1999/xhtml';

/** The properties that have to be set as such: the attribute is their initial value only. */
const PROPERTIES = new Set(['value', 'checked', 'open', 'selected', 'indeterminate']);

/** The attributes that name an address; `javascript:` and its like are refused. */
const ADDRESSES = new Set(['href', 'src', 'action', 'formaction', 'xlink:href']);

// -- signals ----------------------------------------------------------------------------------------

/** @type {Effect | null} */
let running = null;
/** @type {Set<Effect>} */
const due = new Set();
let isScheduled = false;

/**
 * A value that others depend on.
 * @template T
 */
export class Signal {
  /** @param {T} value */
  constructor(value) {
    this.current = value;
    /** @type {Set<Effect>} */
    this.readers = new Set();
  }

  /** The value; an effect that reads it runs again when it changes. */
  get value() {
    if (running) {
      this.readers.add(running);
      running.sources.add(this);
    }
    return this.current;
  }

  set value(next) {
    if (Object.is(next, this.current)) return;
    this.current = next;
    for (const reader of this.readers) due.add(reader);
    if (due.size && !isScheduled) {
      isScheduled = true;
      queueMicrotask(flush);
    }
  }
}

/** @template T @param {T} value @returns {Signal<T>} */
export const signal = (value) => new Signal(value);

class Effect {
  /** @param {() => void} run */
  constructor(run) {
    this.run = run;
    /** @type {Set<Signal<any>>} */
    this.sources = new Set();
    this.isOver = false;
  }

  start() {
    this.forget();
    const outer = running;
    running = this;
    try {
      this.run();
    } finally {
      running = outer;
    }
  }

  forget() {
    for (const source of this.sources) source.readers.delete(this);
    this.sources.clear();
  }

  end() {
    this.isOver = true;
    this.forget();
    due.delete(this);
  }
}

/** Run the effects whose signals have changed, each once; one that fails does not stop the others. */
export function flush() {
  isScheduled = false;
  const now = [...due];
  due.clear();
  for (const effect of now) {
    if (effect.isOver) continue;
    try {
      effect.start();
    } catch (error) {
      reportError(error);
    }
  }
}

/**
 * Run a function now, and after every change of a signal that it has read. Returns what ends that.
 * @param {() => void} run
 * @returns {() => void}
 */
export function effect(run) {
  const made = new Effect(run);
  made.start();
  return () => made.end();
}

// -- elements ---------------------------------------------------------------------------------------

/**
 * @typedef {{tag: string, props: Record<string, any>, children: Node_[], key: any}} Described
 * @typedef {Described | string} Node_
 */

/**
 * Describe an element. Children that are null, undefined or false are left out; lists are taken
 * apart. `key` names a child among its siblings: it keeps its element when it moves.
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...any} children
 * @returns {Described}
 */
export function h(tag, props, ...children) {
  const {key = null, ...rest} = props ?? {};
  return {tag, props: rest, children: flat(children), key};
}

/** @param {any[]} children @returns {Node_[]} */
function flat(children) {
  return children.flat(Infinity).filter((each) => each !== null && each !== undefined
    && each !== false && each !== true && each !== '').map((each) =>
    (typeof each === 'object' ? each : String(each)));
}

/** @type {WeakMap<Node, Described>} */
const shown = new WeakMap();

/**
 * Bring the children of an element up to date with what is described.
 * @param {Element} parent
 * @param {any[] | Described | string} wanted
 */
export function patch(parent, wanted) {
  const next = flat([wanted]);
  const focused = /** @type {HTMLElement | null} */ (document.activeElement);
  /** @type {Map<any, ChildNode>} */
  const byKey = new Map();
  /** @type {ChildNode[]} */
  const unkeyed = [];
  for (const node of parent.childNodes) {
    const key = shown.get(node)?.key ?? null;
    if (key === null) unkeyed.push(node);
    else byKey.set(key, node);
  }
  const seen = new Set();
  const nodes = next.map((each) => {
    const key = typeof each === 'string' ? null : each.key;
    if (key !== null && seen.has(key)) throw new Error(`two children have the key ${key}`);
    if (key !== null) seen.add(key);
    const at = key === null ? unkeyed.findIndex((node) => fits(node, each)) : -1;
    const found = key === null ? (at < 0 ? undefined : unkeyed.splice(at, 1)[0]) : byKey.get(key);
    const node = found && fits(found, each) ? found : make(parent, each);
    update(node, each);
    return node;
  });
  const wantedNodes = new Set(nodes);
  for (const node of [...parent.childNodes]) if (!wantedNodes.has(node)) parent.removeChild(node);
  nodes.forEach((node, index) => {
    const there = parent.childNodes[index];
    if (there !== node) parent.insertBefore(node, there ?? null);
  });
  // An element that is moved loses the focus.
  if (focused && focused !== document.activeElement && parent.contains(focused)) focused.focus({preventScroll: true});
}

/** Tell whether a node can become what is described. @param {Node} node @param {Node_} each */
function fits(node, each) {
  if (typeof each === 'string') return node.nodeType === Node.TEXT_NODE;
  return shown.get(node)?.tag === each.tag && (shown.get(node)?.key ?? null) === each.key;
}

/** @param {Element} parent @param {Node_} each @returns {ChildNode} */
function make(parent, each) {
  if (typeof each === 'string') return document.createTextNode(each);
  const isSvg = each.tag === 'svg' || (parent.namespaceURI === SVG && parent.tagName !== 'foreignObject');
  const made = document.createElementNS(isSvg ? SVG : HTML, each.tag);
  shown.set(made, {tag: each.tag, props: {}, children: [], key: each.key});
  return made;
}

/** @param {ChildNode} node @param {Node_} each */
function update(node, each) {
  if (typeof each === 'string') {
    if (node.nodeValue !== each) node.nodeValue = each;
    return;
  }
  const element = /** @type {Element} */ (node);
  const before = shown.get(element)?.props ?? {};
  for (const name of Object.keys(before)) if (!(name in each.props)) set(element, name, null, before[name]);
  // The children first: a select takes a value only when it has the option.
  if (!('live' in each.props)) patch(element, each.children);
  for (const [name, value] of Object.entries(each.props)) {
    if (PROPERTIES.has(name) || !Object.is(before[name], value)) set(element, name, value, before[name]);
  }
  shown.set(element, each);
}

/** @param {any} element @param {string} name @param {any} value @param {any} before */
function set(element, name, value, before) {
  if (name === 'live') return; // an element that looks after its own children
  if (name.startsWith('on')) {
    if (value !== null && typeof value !== 'function') throw new TypeError(`${name} is no function`);
    const event = name.slice(2).toLowerCase();
    if (before) element.removeEventListener(event, before);
    if (value) element.addEventListener(event, value);
  } else if (name === 'style') {
    for (const each of Object.keys(before ?? {})) element.style.removeProperty(each);
    for (const [each, text] of Object.entries(value ?? {})) element.style.setProperty(each, text);
  } else if (name.startsWith('.')) {
    element[name.slice(1)] = value; // a property of a custom element
  } else if (PROPERTIES.has(name) && element.namespaceURI === HTML) {
    if (element[name] !== value) element[name] = value ?? '';
  } else if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else {
    if (ADDRESSES.has(name)) checkAddress(String(value));
    element.setAttribute(name, value === true ? '' : String(value));
  }
}

/** Refuse addresses that run code or leave the origin. @param {string} text */
function checkAddress(text) {
  const address = new URL(text, document.baseURI);
  const isDownload = address.protocol === 'blob:' && address.origin === location.origin;
  if (address.origin !== location.origin && !isDownload) throw new TypeError(`no address: ${text}`);
  if (!['http:', 'https:', 'blob:'].includes(address.protocol)) throw new TypeError(`no address: ${text}`);
}

/** A custom element that shows what `render` describes, and shows it anew when signals change. */
export class View extends HTMLElement {
  connectedCallback() {
    /** @type {(() => void)[]} */
    this.endings = [];
    this.begin();
    this.endings.push(effect(() => patch(this, this.render())));
  }

  disconnectedCallback() {
    for (const end of this.endings.splice(0)) end();
  }

  /** Begin what is to end with the element: push its end to `endings`. */
  begin() {}

  /** @returns {any} */
  render() {
    return [];
  }
}
