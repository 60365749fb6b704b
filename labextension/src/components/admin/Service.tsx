/** The health of the service. */

import type { ReactElement } from 'react';

import type { HealthView } from '../../state/wire';
import { ActionButton, EmptyState, ErrorBanner, formatLasting, formatTime, Loading, plural, useNow } from '../common';
import { nameText } from '../common/text';
import { useGet, useReloadOn } from '../common/loading/load';
import { View } from './parts';

export function Service(): ReactElement {
  const { data, error, reload } = useGet<HealthView>('service');
  useReloadOn('cluster', reload, 5000);
  const now = useNow(5000);
  const summary = data ? `detlab ${data.version}, up ${formatLasting(data.started_at, now)}` : undefined;
  const failing = data?.items.filter(item => !item.ok).length ?? 0;
  return (
    <View title="Service" summary={summary} tools={<ActionButton label="Refresh" onRun={reload} />}>
      {error && <ErrorBanner error={error} onRetry={reload} what="Service" />}
      {!data && !error && <Loading what="Loading" />}
      {data && (
        <>
          <p className="det-banner" data-tone={data.ok ? 'good' : 'bad'} role="status">
            {data.ok ? 'All components are healthy.' : `${failing ? plural(failing, 'component') : 'Some components'} unhealthy.`}
          </p>
          {!data.items.length && <EmptyState title="No components reported." />}
          <ul className="det-adm-health">
            {data.items.map(item => (
              <li key={item.name} data-ok={item.ok ? 'yes' : 'no'}>
                <span className="det-badge" data-tone={item.ok ? 'good' : 'bad'}>
                  <span aria-hidden="true" className="det-badge-sign">{item.ok ? '✓' : '✕'}</span>
                  {item.name}
                </span>
                <span className="det-hidden">{item.ok ? 'healthy: ' : 'unhealthy: '}</span>
                <span className="det-adm-detail">{nameText(item.detail, 600)}</span>
              </li>
            ))}
          </ul>
          <p className="det-soft">Started {formatTime(data.started_at)}. Log file: logs/master.log in the state folder.</p>
        </>
      )}
    </View>
  );
}
