/** Make text of users safe to show: ANSI sequences are removed, other control characters made visible. */

/** CSI, OSC (to BEL or ST), other string sequences and two-character escapes; also their 8-bit forms. */
const ANSI = new RegExp(
  '(?:\\u001b\\[|\\u009b)[0-?]*[ -/]*[@-~]'
  + '|(?:\\u001b[\\]PX^_]|[\\u009d\\u0090\\u0098\\u009e\\u009f])[^\\u0007\\u001b\\u009c]*(?:\\u0007|\\u001b\\\\|\\u009c|$)'
  + '|\\u001b[ -/]*[0-~]',
  'g'
);

/** Characters that reorder, hide or move text: bidirectional controls, zero-width ones, separators of lines. */
const INVISIBLE = /[\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u00ad\u061c\u180e\ufff9-\ufffb\ufffe\uffff]|[\u{e0000}-\u{e007f}]/gu;
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

/** Longest text that is drawn of one line; the rest is counted. */
export const MAX_LINE = 8000;

/** Remove ANSI escape sequences. */
export function withoutAnsi(text: string): string {
  return text.indexOf('\u001b') < 0 && !/[\u0090-\u009f]/.test(text) ? text : text.replace(ANSI, '');
}

/** Printable ASCII only: most text, which needs no escaping. */
const PLAIN = /^[ -~]*$/;

/** Text safe to show: control and invisible characters are written out as ⟨U+XXXX⟩. */
export function visible(text: string): string {
  return PLAIN.test(text) ? text : withoutAnsi(text).replace(CONTROL, name).replace(INVISIBLE, name);
}

/** One log line: a carriage return overwrites what was before it, as in a terminal; very long ones are cut. */
export function logText(raw: string): string {
  let text = withoutAnsi(raw).replace(/\r+$/, '');
  const back = text.lastIndexOf('\r');
  if (back >= 0) text = text.slice(back + 1);
  const cut = text.length > MAX_LINE ? ` … ${text.length - MAX_LINE} more characters` : '';
  return visible(text.slice(0, MAX_LINE)) + cut;
}

/** A name in one line, cut to `most` characters. */
export function nameText(raw: string, most = 300): string {
  const text = PLAIN.test(raw) ? raw : visible(raw.replace(/[\t\n\r]+/g, ' '));
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

function name(character: string): string {
  return `⟨U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}⟩`;
}

/** A word of a shell, quoted where it has to be. */
export function shell(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
