/** Limits per user, and the users at or near them. */

import type { ReactElement } from 'react';

import type { LimitList, LimitUse, LimitView } from '../../state/wire';
import { ErrorBanner, Loading } from '../common';
import { nameText } from '../common/text';
import { useGet } from '../common/loading/load';
import { Ago, Sheet } from './parts';

const number = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

export function Limits(): ReactElement {
  const { data, error, reload } = useGet<LimitList>('limits');
  const exempt = (data?.exempt_users ?? []).map(name => nameText(name)).join(', ');
  return (
    <>
      <h2>Limits per user</h2>
      <p className="det-soft">
        Set in the master's configuration (<code>c.UserLimits</code>). Listed are users who are at half of a limit or more, or who
        have hit it since the master started.{exempt && ` Exempt: ${exempt}.`}
      </p>
      {error && <ErrorBanner error={error} onRetry={reload} what="Limits" />}
      {!data && !error && <Loading what="Loading the limits" />}
      {data && <LimitSheet items={data.items} />}
    </>
  );
}

function LimitSheet({ items }: { items: readonly LimitView[] }): ReactElement {
  const head = (
    <>
      <th>Limit</th>
      <th className="det-right">Value</th>
      <th>Users near the limit</th>
      <th>Setting</th>
    </>
  );
  return (
    <Sheet label="Limits" head={head}>
      {items.map(item => (
        <tr key={item.name}>
          <td className="det-adm-wide">{item.about}</td>
          <td className="det-right det-num">{valueOf(item)}</td>
          <td>{item.users.length ? <Users limit={item} /> : <span className="det-soft">none</span>}</td>
          <td><code>{item.setting}</code></td>
        </tr>
      ))}
    </Sheet>
  );
}

function Users({ limit }: { limit: LimitView }): ReactElement {
  return (
    <ul className="det-adm-holders">
      {limit.users.map(one => (
        <li key={one.user}>
          <span>
            <b>{nameText(one.user)}</b> {usedWords(limit, one)}
            {one.last_hit !== null && <> (<Ago time={one.last_hit} />)</>}
          </span>
        </li>
      ))}
    </ul>
  );
}

/** `1,000 jobs`, `none`. */
export function valueOf(limit: Pick<LimitView, 'value' | 'unit' | 'name'>): string {
  if (limit.value === null) return 'none';
  const value = number.format(Number(limit.value));
  return limit.unit === limit.name ? value : `${value} ${limit.unit}`;
}

/** `40 of 40, hit 12 times`. */
export function usedWords(limit: Pick<LimitView, 'most'>, one: LimitUse): string {
  const used = one.used === null || limit.most === null ? '' : `${number.format(one.used)} of ${number.format(limit.most)}`;
  const hit = one.hits ? `hit ${one.hits === 1 ? 'once' : `${number.format(one.hits)} times`}` : '';
  return [used, hit].filter(Boolean).join(', ');
}
