/** A state as a word with an icon and a colour. */

import type { ReactElement } from 'react';

import { stateTone, stateWord, Tone } from '../../state/states';
import { nameText } from './text';

const SIGNS: Record<Tone | 'warn', string> = { running: '●', waiting: '◌', paused: '❙❙', good: '✓', warn: '!', bad: '✕', off: '–' };

export function StateBadge({ state, about, word, warning }: {
  state: string;
  /** The tooltip, such as the reason for waiting. */
  about?: string | null;
  /** Instead of the state's own word. */
  word?: string;
  /** What is wrong with a good end: it takes the warning colour, and this as the tooltip. */
  warning?: string | null;
}): ReactElement {
  const tone = warning ? 'warn' : stateTone(state);
  const title = warning ?? about;
  return (
    <span className="det-badge" data-tone={tone} title={title ? nameText(title, 400) : undefined}>
      <span aria-hidden="true" className="det-badge-sign">{SIGNS[tone]}</span>
      {word ?? stateWord(state)}
    </span>
  );
}
