/** Slot-hours by user over time, as a chart, a table and CSV. */

import { useMemo, useState, type ReactElement } from 'react';

import { useApp } from '../../../state/context';
import type { UsageView } from '../../../state/wire';
import { ActionButton, EmptyState, ErrorBanner, Loading, plural } from '../../common';
import { nameText } from '../../common/text';
import { useGet } from '../../common/loading/load';
import { Sheet, View } from '../parts';
import { byPerson, dayOf, formatHours, stack, type PersonUsage } from './slothours';
import { UsageChart } from './UsageChart';

const SPANS = [7, 30, 90];
const DAY_MS = 86_400_000;

/** `own`: the caller sees only their own. */
export function Usage({ own = false, today = Date.now() }: { own?: boolean; today?: number }): ReactElement {
  const { api } = useApp();
  const [first, setFirst] = useState(() => dayOf(today - 29 * DAY_MS));
  const [last, setLast] = useState(() => dayOf(today));
  const valid = first <= last;
  const query = `usage?first=${encodeURIComponent(first)}&last=${encodeURIComponent(last)}`;
  const { data, error, reload } = useGet<UsageView>(query);
  const people = useMemo(() => byPerson(data?.items ?? []), [data]);
  const total = people.reduce((sum, person) => sum + person.hours, 0);
  const summary = `${formatHours(total)} slot-hours${own ? '' : ` by ${plural(people.length, 'user')}`}`;
  const tools = valid
    ? <a className="det-button" href={api.href(`${query}&format=csv`)} download>Download CSV</a>
    : <ActionButton label="Download CSV" why="The first day is after the last." onRun={() => undefined} />;
  return (
    <View title={own ? 'My usage' : 'Usage'} summary={data ? summary : undefined} tools={tools}>
      <div className="det-adm-filters">
        <label>
          From <input className="det-input" type="date" value={first} max={last} onChange={e => e.target.value && setFirst(e.target.value)} />
        </label>
        <label>
          to <input className="det-input" type="date" value={last} onChange={e => e.target.value && setLast(e.target.value)} />
        </label>
        {SPANS.map(days => (
          <button
            key={days} type="button" className="det-button"
            aria-pressed={first === dayOf(today - (days - 1) * DAY_MS) && last === dayOf(today)}
            onClick={() => { setFirst(dayOf(today - (days - 1) * DAY_MS)); setLast(dayOf(today)); }}
          >
            {days} days
          </button>
        ))}
      </div>
      {error && <ErrorBanner error={error} onRetry={reload} what="Usage" />}
      {!data && !error && <Loading what="Loading the usage" />}
      {data && !people.length && (
        <EmptyState title="No slots were used in this period.">Trials, commands and cells on borrowed slots count while they run.</EmptyState>
      )}
      {data && people.length > 0 && (
        <>
          <UsageChart stack={stack(data.items, data.first, data.last)} />
          <People people={people} total={total} currency={data.currency} />
        </>
      )}
    </View>
  );
}

function People({ people, total, currency }: { people: PersonUsage[]; total: number; currency: string }): ReactElement {
  const cost = people.reduce((sum, person) => sum + person.cost, 0);
  const money = (amount: number): ReactElement | null => cost > 0 ? <td className="det-right det-num">{amount.toFixed(2)}</td> : null;
  const head = (
    <>
      <th>User</th>
      <th className="det-right">Slot-hours</th>
      <th className="det-right">Share</th>
      {cost > 0 && <th className="det-right">Cost{currency && ` (${nameText(currency)})`}</th>}
      <th>By kind</th>
    </>
  );
  return (
    <Sheet label="Slot-hours by user" head={head}>
      {people.map(person => (
        <tr key={person.user}>
          <td className="det-adm-person">{nameText(person.user)}</td>
          <td className="det-right det-num">{formatHours(person.hours)}</td>
          <td className="det-right det-num">{Math.round(100 * person.share)} %</td>
          {money(person.cost)}
          <td className="det-adm-wide">
            {person.kinds.map(({ kind, hours }) => `${kind.replaceAll('_', ' ')} ${formatHours(hours)}`).join(', ')}
          </td>
        </tr>
      ))}
      <tr className="det-adm-sum">
        <td>Total</td>
        <td className="det-right det-num">{formatHours(total)}</td>
        <td className="det-right det-num">100 %</td>
        {money(cost)}
        <td />
      </tr>
    </Sheet>
  );
}
