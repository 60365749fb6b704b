/** The controls of a log: which lines, and how they are shown. */

import { ReactElement, useId, useState } from 'react';

import { ActionButton, Menu, Toggle } from '../common';
import { nameText } from '../common/text';
import { aheadOf, LOCAL, type Zone, zoneNow } from '../common/zone';
import { LEVELS, Level, LogFilter } from './filter';

const CONTEXTS = [0, 1, 3, 10, 20];

export interface Look {
  times: boolean;
  zone: Zone;
  wrap: boolean;
  /** A column for each rank. */
  lanes: boolean;
}

export function Filters({ filter, onFilter, ranks, nodes, look, onLook, follow, onFollow, ended, onFirstError, onDownload, problem }: {
  filter: LogFilter;
  onFilter: (filter: LogFilter) => void;
  ranks: readonly number[];
  nodes: readonly string[];
  look: Look;
  onLook: (look: Look) => void;
  follow: boolean;
  onFollow: (on: boolean) => void;
  ended: boolean;
  onFirstError: () => Promise<void>;
  onDownload: () => Promise<void>;
  /** What is wrong with the regular expression, or null. */
  problem: string | null;
}): ReactElement {
  const id = useId();
  const [more, setMore] = useState(false);
  const set = (change: Partial<LogFilter>): void => onFilter({ ...filter, ...change });
  return (
    <div className="det-controls" role="group" aria-label="Log filters">
      <span className="det-log-search det-grow">
        <input
          className="det-input" type="search" aria-label="Search in the logs" placeholder={filter.regex ? 'Regular expression' : 'Search'} value={filter.search}
          maxLength={filter.regex ? 1000 : 200} aria-invalid={problem ? true : undefined} aria-describedby={problem ? `${id}-p` : undefined}
          onChange={event => set({ search: event.target.value })}
        />
        <Toggle on={filter.regex} label=".*" tip="The search is a regular expression, in RE2's syntax" onChange={regex => set({ regex })} />
      </span>
      <span className="det-labelled">
        <label htmlFor={`${id}-r`}>Rank</label>
        <select
          id={`${id}-r`} className="det-input" value={filter.rank ?? ''}
          onChange={event => set({ rank: event.target.value === '' ? null : Number(event.target.value) })}
        >
          <option value="">all</option>
          {ranks.map(rank => <option key={rank} value={rank}>{rank}</option>)}
        </select>
      </span>
      {nodes.length > 1 && (
        <span className="det-labelled">
          <label htmlFor={`${id}-n`}>Node</label>
          <select id={`${id}-n`} className="det-input" value={filter.node} onChange={event => set({ node: event.target.value })}>
            <option value="">all</option>
            {nodes.map(node => <option key={node} value={node}>{nameText(node)}</option>)}
          </select>
        </span>
      )}
      <span className="det-labelled">
        <label htmlFor={`${id}-l`}>Level</label>
        <select id={`${id}-l`} className="det-input" value={filter.level} onChange={event => set({ level: event.target.value as Level | '' })}>
          <option value="">all</option>
          {LEVELS.map(level => <option key={level} value={level}>{level.toLowerCase()}{level === 'CRITICAL' ? '' : ' and above'}</option>)}
        </select>
      </span>
      <Toggle on={more} label="Time, context" tip="From when to when, and how many lines around each" onChange={setMore} />
      {more && <Range filter={filter} zone={look.zone} set={set} />}
      <span className="det-log-looks">
        <Toggle on={look.times} label="Times" onChange={times => onLook({ ...look, times })} />
        {look.times && <Toggle on={look.zone === 'UTC'} label="UTC" tip="Times in UTC" onChange={utc => onLook({ ...look, zone: utc ? 'UTC' : zoneNow() === 'UTC' ? LOCAL : zoneNow() })} />}
        <Toggle on={look.wrap} label="Wrap" tip="Long lines go on below" onChange={wrap => onLook({ ...look, wrap, lanes: false })} />
        {ranks.length > 1 && <Toggle on={look.lanes} label="Lanes" tip="A column for each rank" onChange={lanes => onLook({ ...look, lanes, wrap: false })} />}
        <button
          type="button" className="det-button det-toggle-button" aria-pressed={follow} onClick={() => onFollow(!follow)}
          title={ended ? 'Ended: no more output' : 'Stay at the newest line'}
        >
          {ended ? 'End' : 'Follow'}
        </button>
        <ActionButton label="First error" onRun={onFirstError} />
        <Menu label="More actions of the logs" actions={() => [{ key: 'download', label: 'Download these lines as text', run: onDownload }]} />
      </span>
      {problem && <small id={`${id}-p`} role="alert" className="det-edits-problem det-log-problem">{nameText(problem, 400)}</small>}
    </div>
  );
}

function Range({ filter, zone, set }: { filter: LogFilter; zone: Zone; set: (change: Partial<LogFilter>) => void }): ReactElement {
  const id = useId();
  return (
    <span className="det-log-looks">
      <Moment label="From" zone={zone} value={filter.since} onChange={since => set({ since })} />
      <Moment label="to" zone={zone} value={filter.until} onChange={until => set({ until })} />
      <span className="det-labelled">
        <label htmlFor={`${id}-c`} title="Lines before and after each line that fits">Context</label>
        <select id={`${id}-c`} className="det-input" value={filter.context} onChange={event => set({ context: Number(event.target.value) })}>
          {CONTEXTS.map(count => <option key={count} value={count}>{count === 0 ? 'none' : `${count} ${count === 1 ? 'line' : 'lines'}`}</option>)}
        </select>
      </span>
    </span>
  );
}

/** A moment to the second; what is written is in the zone that is shown. */
function Moment({ label, zone, value, onChange }: {
  label: string; zone: Zone; value: number | null; onChange: (value: number | null) => void;
}): ReactElement {
  const id = useId();
  return (
    <span className="det-labelled">
      <label htmlFor={id}>{label}</label>
      <input
        id={id} className="det-input det-log-moment" type="datetime-local" step={1} value={value === null ? '' : textOf(value, zone)}
        title={zone === LOCAL ? 'In local time' : `In ${zone}`} onChange={event => onChange(secondsOf(event.target.value, zone))}
      />
    </span>
  );
}

/** `2026-11-29T19:05:00`, as a field of the browser has it. */
export function textOf(seconds: number, zone: Zone): string {
  return new Date((seconds + aheadOf(seconds, zone)) * 1000).toISOString().slice(0, 19);
}

/** The moment of such a text in seconds since the epoch; null where there is none. */
export function secondsOf(text: string, zone: Zone): number | null {
  const time = text ? new Date(zone === LOCAL ? text : `${text}Z`).getTime() / 1000 : NaN;
  if (!Number.isFinite(time)) return null;
  if (zone === LOCAL) return time;
  // Clocks may change between the two: the second look has what counts at the moment that is meant.
  return time - aheadOf(time - aheadOf(time, zone), zone);
}
