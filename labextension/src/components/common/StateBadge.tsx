/** A state as a word with an icon and a colour. */

import type { ReactElement } from 'react';

import { stateTone, stateWord, Tone } from '../../state/states';
import { nameText } from './text';

const SIGNS: Record<Tone, string> = { running: '●', waiting: '◌', paused: '❙❙', good: '✓', bad: '✕', off: '–' };

export function StateBadge({ state, about, word }: {
  state: string;
  /** The tooltip, such as the reason for waiting. */
  about?: string | null;
  /** Instead of the state's own word. */
  word?: string;
}): ReactElement {
  const tone = stateTone(state);
  return (
    <span className="det-badge" data-tone={tone} title={about ? nameText(about, 400) : undefined}>
      <span aria-hidden="true" className="det-badge-sign">{SIGNS[tone]}</span>
      {word ?? stateWord(state)}
    </span>
  );
}
