/** What the master had to say of something that it took. */

import type { ReactElement } from 'react';

import type { ProblemView } from '../../state/wire';
import { Notice } from '../common';
import { Coded } from '../common/Coded';
import { visible } from '../common/text';

export function Warned({ items }: { items: readonly ProblemView[] }): ReactElement | null {
  if (!items.length) return null;
  return (
    <Notice tone="paused">
      <div>{items.map((one, i) => <div key={i}>{one.path && <code>{visible(one.path)}: </code>}<Coded text={one.message} />{one.hint && <span className="det-soft"> <Coded text={one.hint} /></span>}</div>)}</div>
    </Notice>
  );
}
