// Text in quotes, as filters have it. Decisions on values alone.

/** Text in double or single quotes, in which a backslash takes the next character as it is. */
export const STRING = String.raw`"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'`;

const WHOLE = new RegExp(`^(?:${STRING})$`, 's');

/** A word without the quotes around it. @param {string} word */
export const unquoted = (word) => (WHOLE.test(word) ? word.slice(1, -1).replace(/\\(.)/gs, '$1') : word);
