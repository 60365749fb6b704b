/** Text of the master's: what stands between backticks is code. */

import type { ReactElement } from 'react';

import { visible } from './text';

/** Only text nodes and <code> come of it, whoever wrote the text; a backtick without a partner stays. */
export function Coded({ text }: { text: string }): ReactElement {
  const parts = visible(text).split(/`([^`]+)`/);
  return <>{parts.map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}</>;
}
