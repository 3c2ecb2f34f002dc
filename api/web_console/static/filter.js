// The filter of messages: words, all of which a message must have. Decisions on values alone.
//
//   word  "some words"       in the key, the headers or the value
//   key:WORD                 in the key
//   header:WORD              in the name or the value of a header
//   header:NAME=WORD         in the value of the header of that name
//   $.a.b[0]["some name"]=1  at a place in a value of JSON or MessagePack

import {STRING, conditionOf, unquoted} from './json_path.js';

/** @typedef {{kind: 'place', condition: import('./json_path.js').Condition} | {kind: 'any' | 'key', text: string} | {kind: 'header', name: string | null, text: string}} Term */

/** What a filter asks for; `mistake`: what of it is not understood, so that it lets nothing through. @typedef {{terms: Term[], mistake: string}} Filter */

const QUOTED = new RegExp(STRING, 'sy');

/** The words of a text: blanks within quotes do not end one. Quotes begin at the beginning of a word, and after what compares. @param {string} text */
function wordsOf(text) {
  const words = [];
  let word = '';
  for (let at = 0; at <= text.length;) {
    QUOTED.lastIndex = at;
    const quoted = /^$|[=:[<>]$/.test(word) ? QUOTED.exec(text) : null;
    if (quoted) {
      word += quoted[0];
    } else if (at === text.length || /\s/.test(text[at])) {
      if (word) words.push(word);
      word = '';
    } else {
      word += text[at];
    }
    at += quoted ? quoted[0].length : 1;
  }
  return words;
}

/** @param {string} word @returns {Term} */
function headerTerm(word) {
  const [, name, text] = /^([^="']+)=(.*)$/s.exec(word) ?? [null, null, word];
  return {kind: 'header', name: name?.toLowerCase() ?? null, text: unquoted(text).toLowerCase()};
}

/** @param {string} text @returns {Filter} */
export function filterOf(text) {
  /** @type {Term[]} */
  const terms = [];
  const mistakes = [];
  for (const word of wordsOf(text)) {
    if (/^\$(?:[.[=<>!]|$)/.test(word)) {
      const condition = conditionOf(word);
      if (typeof condition === 'string') mistakes.push(condition);
      else terms.push({kind: 'place', condition});
    } else if (/^header:/i.test(word)) {
      terms.push(headerTerm(word.slice(7)));
    } else {
      const isKey = /^key:/i.test(word);
      terms.push({kind: isKey ? 'key' : 'any', text: unquoted(isKey ? word.slice(4) : word).toLowerCase()});
    }
  }
  return {terms, mistake: mistakes.join(' ')};
}
