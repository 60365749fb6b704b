/** Text of the master with code between backticks. */

import type { ReactElement } from 'react';

import { visible } from './text';

/** Renders only text nodes and <code>; an unpaired backtick stays as it is. */
export function Coded({ text }: { text: string }): ReactElement {
  const parts = visible(text).split(/`([^`]+)`/);
  return <>{parts.map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}</>;
}
