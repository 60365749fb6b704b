/** What administrators tell everybody. */

import type { ReactElement } from 'react';

import { useStore } from '../../state/context';
import { Notice } from './notices';
import { nameText } from './text';

/** Nothing where nothing is said. */
export function ClusterMessage(): ReactElement | null {
  const said = useStore(snapshot => snapshot.cluster?.message ?? null);
  if (!said) return null;
  return <Notice tone="paused"><span>{nameText(said.text, 250)} <span className="det-soft">({nameText(said.set_by)})</span></span></Notice>;
}
