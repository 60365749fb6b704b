/** Why a task waits, what would let it start, and its position, which may be changed. */

import type { ReactElement } from 'react';

import { useStore } from '../../state/context';
import type { JobWhy as Why, QueueItem, WaitView } from '../../state/wire';
import { useGet, useReloadOn } from '../common/loading/load';
import { ErrorBanner, Loading, plural, useNow } from '../common';
import { readOnly } from '../view/actions';
import { nameText } from '../common/text';
import { JobPlace } from './JobPlace';
import { formatUntil, jobOf, whyOf } from './lanes';

const PROSE = 400;
const RELOAD_MS = 3000;

export function JobWhy({ item }: { item: QueueItem }): ReactElement {
  const { data, error, reload } = useGet<Why>(`jobs/${encodeURIComponent(whyOf(item) ?? '')}/why`);
  useReloadOn('cluster', reload, RELOAD_MS);
  const me = useStore(s => s.me);
  const may = (item.mine || me?.admin) && readOnly(me) === null;
  const first = data?.items[0];
  return (
    <div className="det-why-waits">
      {error && <ErrorBanner error={error} onRetry={reload} what="Why it is queued" />}
      {!data && !error && <Loading what="Loading" />}
      {data && !first && <p>It is no longer queued.</p>}
      {first && <Evidence wait={first} told={item.reason} />}
      {may && data && <JobPlace id={jobOf(item)!} job={data.job} />}
    </div>
  );
}

/** `told`: the reason shown above, which is not repeated. */
function Evidence({ wait, told }: { wait: WaitView; told: string }): ReactElement {
  const now = useNow();
  return (
    <>
      <dl className="det-why-facts">
        {wait.detail !== told && (
          <>
            <dt>Why</dt>
            <dd>{nameText(wait.detail, PROSE)}</dd>
          </>
        )}
        <dt>Position</dt>
        <dd>
          {wait.place > 0 ? `${wait.place} in pool ${nameText(wait.pool)}` : `in the batch system’s queue of pool ${nameText(wait.pool)}`}
          {wait.ahead > 0 && `, behind ${plural(wait.ahead, 'task')} of other jobs`}
        </dd>
        {wait.place > 0 && (
          <>
            <dt>Starts</dt>
            <dd title="Estimated from the maximum times (resources.max_time) of running work; it may start sooner.">
              {wait.estimated_start === null
                ? 'unknown: it depends on running work without a maximum time, or on a limit'
                : wait.estimated_start <= now ? 'any moment' : `in ${formatUntil(wait.estimated_start - now)} at the latest`}
            </dd>
          </>
        )}
      </dl>
      {wait.hints.length > 0 && (
        <ul className="det-why-hints" aria-label="Changes that would start it now">
          {wait.hints.map(hint => <li key={`${hint.change} ${hint.value}`}>{nameText(hint.text, PROSE)}</li>)}
        </ul>
      )}
    </>
  );
}
