/** What many configs have in common: templates, which people choose, and config policies, which hold for everybody. */

import type { ReactElement } from 'react';

import { useStore } from '../../state/context';
import { View } from '../admin/parts';
import { useShared } from '../workspaces';
import { Policies } from './Policies';
import { Templates } from './Templates';

const MOST_WORKSPACES = 200;

export function TemplatesPage(): ReactElement {
  const me = useStore(s => s.me);
  const shared = useShared(me?.name ?? '', MOST_WORKSPACES);
  return (
    <View title="Templates and policies" summary="Templates are parts of configs that people choose. Policies hold every config to values and limits, whoever submits it.">
      <section className="det-part">
        <h2>Templates</h2>
        <Templates shared={shared} />
      </section>
      <section className="det-part">
        <h2>Config policies</h2>
        <Policies shared={shared} />
      </section>
    </View>
  );
}
