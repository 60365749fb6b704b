/** Tell on the way that a quota of bytes is nearly used. */

import type { ReactElement } from 'react';

import { useApp } from '../../state/context';
import type { StorageUsage } from '../../state/wire';
import { Go } from '../admin/parts';
import { Notice, useLoaded } from '../common';
import { useReloadOn } from '../common/loading/load';
import { nameText } from '../common/text';

const PATH = 'storage/usage?by=user&limit=1';
const RELOAD_MS = 60_000;

/** Nothing where there is no quota, or it is far away. */
export function StorageWarning(): ReactElement | null {
  const { api } = useApp();
  const { data, reload } = useLoaded(PATH, signal => api.get<StorageUsage>(PATH, signal));
  useReloadOn('checkpoint', reload, RELOAD_MS);
  if (!data?.warnings?.length) return null;
  return <>{data.warnings.map((warning, i) => <Notice key={i} tone="paused"><span>{nameText(warning, 400)} <Go to={{ kind: 'storage' }}>Storage</Go></span></Notice>)}</>;
}
