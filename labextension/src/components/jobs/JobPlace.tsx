/** Change the priority and position of a job. */

import { useState, type ReactElement } from 'react';

import { everyItem } from '../../state/api';
import { useApp, useStore } from '../../state/context';
import type { JobUpdate, JobView, PoolList } from '../../state/wire';
import { useAct, useGet } from '../common/loading/load';
import { ActionButton, useLoaded } from '../common';
import { nameText } from '../common/text';
import { neighbours, ranked } from './lanes';

const LEAST = 1;
const MOST = 99;

export function JobPlace({ id, job }: { id: string; job: JobView }): ReactElement {
  const { api, store, notify } = useApp();
  const act = useAct();
  const admin = useStore(s => s.me?.admin ?? false);
  const path = `jobs?pool=${encodeURIComponent(job.pool)}`;
  const jobs = useLoaded(path, signal => everyItem<JobView>(api, path, 'skip', signal));
  const pools = useGet<PoolList>('pools');
  const byPriority = ranked(pools.data?.items.find(pool => pool.name === job.pool));
  const near = neighbours(jobs.data ?? [], id, byPriority, admin);
  const change = async (body: JobUpdate): Promise<void> => {
    await act(async () => {
      const now = await api.post<JobView>(`jobs/${encodeURIComponent(id)}`, body);
      notify(`${titleOf(now)}: position ${now.order} in pool ${nameText(now.pool)}, priority ${now.priority}`, 'good');
      jobs.reload();
      await store.refresh();
    });
  };
  const alone = byPriority ? 'of the same priority' : 'in this pool';
  const none = (side: string): string => `No other job ${admin ? '' : 'of yours '}${alone} is ${side} it.`;
  return (
    <div className="det-job-place">
      {byPriority && <Priority key={job.priority} now={job.priority} onSet={priority => change({ priority })} />}
      <ActionButton
        label="Move ahead" why={near.ahead ? null : none('ahead of')}
        onRun={() => change({ ahead_of: near.ahead!.id })}
      >
        {near.ahead ? `Ahead of ${titleOf(near.ahead)}` : 'Move ahead'}
      </ActionButton>
      <ActionButton
        label="Move behind" why={near.behind ? null : none('behind')}
        onRun={() => change({ behind_of: near.behind!.id })}
      >
        {near.behind ? `Behind ${titleOf(near.behind)}` : 'Move behind'}
      </ActionButton>
    </div>
  );
}

function titleOf(job: JobView): string {
  return job.name ? nameText(job.name, 24) : `${job.kind.replaceAll('_', ' ')} ${nameText(job.id)}`;
}

function Priority({ now, onSet }: { now: number; onSet: (priority: number) => Promise<void> }): ReactElement {
  const [text, setText] = useState(String(now));
  const wanted = Number(text);
  const wrong = !Number.isInteger(wanted) || wanted < LEAST || wanted > MOST || text.trim() === '';
  return (
    <form
      className="det-job-priority"
      onSubmit={event => {
        event.preventDefault();
        if (!wrong && wanted !== now) void onSet(wanted);
      }}
    >
      <label title="1 to 99; lower runs first">
        Priority{' '}
        <input
          className="det-input det-num" inputMode="numeric" size={3} value={text} aria-invalid={wrong || undefined}
          onChange={event => setText(event.target.value)}
        />
      </label>
      <ActionButton
        label="Set" why={wrong ? 'Enter a whole number from 1 to 99.' : wanted === now ? 'This is already its priority.' : null}
        onRun={() => onSet(wanted)}
      />
    </form>
  );
}
