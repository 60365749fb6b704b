/** The events of an experiment. */

import { ReactElement, useMemo, useState } from 'react';

import { useApp } from '../../state/context';
import type { TimelineItem, TimelineView } from '../../state/wire';
import { Column, EmptyState, ErrorBanner, formatTime, Loading, Table, useLoaded } from '../common';
import { nameText } from '../common/text';
import { useThrottled } from '../common/loading/useThrottled';

interface EventRow {
  key: string;
  item: TimelineItem;
}

/** Reloaded at most this often while events come. */
const EVERY_MS = 2000;

export function EventsTab({ id, version }: { id: number; version: number }): ReactElement {
  const { api, navigate } = useApp();
  const round = useThrottled(version, EVERY_MS);
  const { data, error, reload } = useLoaded(`${id} ${round}`, signal => api.get<TimelineView>(`experiments/${id}/timeline`, signal));
  const [search, setSearch] = useState('');
  const rows = useMemo(() => (data?.items ?? []).map((item, i): EventRow => ({ key: String(i), item })), [data]);
  const found = useMemo(() => {
    const wanted = search.trim().toLowerCase();
    return wanted ? rows.filter(row => `${row.item.what} ${row.item.detail} trial ${row.item.trial_id ?? ''}`.toLowerCase().includes(wanted)) : rows;
  }, [rows, search]);
  if (error && !data) return <ErrorBanner error={error} what="Events" onRetry={reload} />;
  if (!data) return <Loading what="Loading the events" />;
  return (
    <div className="det-events-tab">
      <div className="det-controls">
        <input className="det-input det-grow" type="search" aria-label="Filter events" placeholder="Filter events" value={search}
          onChange={event => setSearch(event.target.value)} />
      </div>
      <Table
        label={`Events of experiment ${id}`} rows={found} columns={COLUMNS} rowKey={row => row.key}
        maxHeight="var(--det-table-height, 60vh)" initialSort={{ key: 'time', descending: true }}
        onOpen={row => { if (row.item.trial_id !== null) navigate({ kind: 'trial', id: row.item.trial_id, experiment: id }); }}
        empty={<EmptyState title={rows.length ? 'No event matches the filter.' : 'No events yet.'} />}
      />
    </div>
  );
}

const COLUMNS: readonly Column<EventRow>[] = [
  { key: 'time', title: 'Time', width: 188, value: row => row.item.time, render: row => formatTime(row.item.time), descending: true },
  { key: 'what', title: 'Event', width: 190, value: row => nameText(row.item.what, 60) },
  { key: 'trial', title: 'Trial', width: 64, align: 'right', value: row => row.item.trial_id, render: row => row.item.trial_id ?? '–' },
  { key: 'run', title: 'Run', width: 58, align: 'right', value: row => row.item.run, render: row => row.item.run ?? '–' },
  { key: 'detail', title: 'Detail', width: 160, grow: 1, value: row => nameText(row.item.detail, 400), render: row => nameText(row.item.detail, 400) || '–' }
];
