// The token that a proxy in front of the brokers asks for, where it does. The browser
// keeps it for this tab; it is in no address.

import {signal} from './view.js';

const NAME = 'fencelog-token';

/** What a header takes. */
const TOKEN = /^[\x21-\x7e]+$/;

/** Whether an answer has asked for a token, or for another one. */
export const isTokenAsked = signal(false);

const kept = remembered();

/** The headers of every request. @type {Record<string, string>} */
export const authorization = kept ? {Authorization: `Bearer ${kept}`} : {};

/** @returns {string | null} */
function remembered() {
  try {
    return sessionStorage.getItem(NAME);
  } catch {
    return null;
  }
}

/** Keep a token for the page when it is opened again. @param {string} text @returns {string} the mistake in it, if there is one */
export function keepToken(text) {
  if (!TOKEN.test(text)) return 'A token is of letters, digits and signs, without blanks.';
  try {
    sessionStorage.setItem(NAME, text);
  } catch {
    return 'The browser lets this page keep nothing.';
  }
  return '';
}
