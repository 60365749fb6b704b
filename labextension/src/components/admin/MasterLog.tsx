/** The master's own log, for administrators: its newest lines since it started, by level and text, and what comes. */

import { useEffect, useId, useRef, useState, type ReactElement } from 'react';

import { asApiError, type Api, type ApiError } from '../../state/api';
import { useApp } from '../../state/context';
import type { MasterLogLine, MasterLogPage } from '../../state/wire';
import { EmptyState, ErrorBanner, Loading, Toggle, useNow } from '../common';
import { logText } from '../common/text';
import { zoneNow } from '../common/zone';
import type { ShownLine } from '../logs/filter';
import { Lines } from '../logs/Lines';
import { View } from './parts';

const LEVELS = ['debug', 'info', 'warning', 'error'] as const;
type Level = (typeof LEVELS)[number];

/** Lines of one answer, and lines that the page keeps. */
const PAGE = 1000;
const MOST = 5000;
const TYPING_MS = 300;
const AGAIN_MS = 3000;

export function MasterLog(): ReactElement {
  const id = useId();
  const [level, setLevel] = useState<Level>('info');
  const [typed, setTyped] = useState('');
  const [search, setSearch] = useState('');
  const [follow, setFollow] = useState(true);
  const [wrap, setWrap] = useState(true);
  useEffect(() => {
    const timer = window.setTimeout(() => setSearch(typed.trim()), TYPING_MS);
    return () => window.clearTimeout(timer);
  }, [typed]);
  const { lines, loading, error, restarted, reload } = useLines(level, search, follow);
  return (
    <View title="Master log" summary="What the master has written since it started: its newest 10,000 lines. Its file has all.">
      <div className="det-logs">
        <div className="det-controls" role="group" aria-label="Log filters">
          <input
            className="det-input det-grow" type="search" placeholder="Search" aria-label="Search the master's log" maxLength={200}
            value={typed} onChange={event => setTyped(event.target.value)}
          />
          <span className="det-labelled">
            <label htmlFor={id}>Level</label>
            <select id={id} className="det-input" value={level} onChange={event => setLevel(event.target.value as Level)}>
              {LEVELS.map(one => <option key={one} value={one}>{one === 'debug' ? 'all' : `${one} and above`}</option>)}
            </select>
          </span>
          <Toggle on={wrap} label="Wrap" tip="Long lines go on below" onChange={setWrap} />
          <Toggle on={follow} label="Follow" tip="Stay at the newest line" onChange={setFollow} />
        </div>
        {restarted && <p className="det-banner" role="status">The master has been restarted: these are its lines since then.</p>}
        {error && <ErrorBanner error={error} onRetry={reload} what="The master's log" />}
        {loading && !lines.length && <Loading what="Loading the master's log" />}
        {!loading && !error && !lines.length && (
          <EmptyState title={search || level !== 'debug' ? 'No line fits.' : 'There are no lines.'} />
        )}
        {lines.length > 0 && (
          <Lines
            lines={lines} label="The master's log" search={search} follow={follow} onFollow={setFollow} target={null}
            look={{ times: true, zone: zoneNow(), wrap, lanes: false }}
          />
        )}
      </div>
    </View>
  );
}

interface Found {
  lines: ShownLine[];
  loading: boolean;
  error: ApiError | null;
  restarted: boolean;
}

/** The newest lines, and what comes while they are followed and the page is seen. */
function useLines(level: Level, search: string, follow: boolean): Found & { reload: () => void } {
  const { api } = useApp();
  const [round, setRound] = useState(0);
  const [last, setLast] = useState<number | null>(null);
  const [state, setState] = useState<Found>({ lines: [], loading: true, error: null, restarted: false });
  useEffect(() => {
    const control = new AbortController();
    setState(old => ({ ...old, loading: true }));
    setLast(null);
    asked(api, level, search, null, control.signal).then(
      page => {
        if (control.signal.aborted) return;
        setState({ lines: page.items.map(shown), loading: false, error: null, restarted: false });
        setLast(Number(page.last));
      },
      error => control.signal.aborted || setState({ lines: [], loading: false, error: asApiError(error), restarted: false })
    );
    return () => control.abort();
  }, [api, level, search, round]);
  // The log is no part of the stream of events, which everybody's pages read.
  const tick = useNow(AGAIN_MS);
  const begun = useRef(tick);
  useEffect(() => {
    if (!follow || last === null || begun.current === tick) return;
    begun.current = tick;
    const control = new AbortController();
    more(api, level, search, last, control.signal).then(
      ({ items, last: upto, restarted }) => {
        if (control.signal.aborted) return;
        const fresh = items.map(shown);
        setState(old => ({
          lines: fresh.length || restarted ? [...(restarted ? [] : old.lines), ...fresh].slice(-MOST) : old.lines,
          loading: false, error: null, restarted: restarted || old.restarted
        }));
        setLast(Number(upto));
      },
      error => control.signal.aborted || setState(old => ({ ...old, error: asApiError(error) }))
    );
    return () => control.abort();
  }, [api, level, search, follow, last, tick]);
  return { ...state, reload: () => setRound(n => n + 1) };
}

async function more(api: Api, level: Level, search: string, after: number, signal: AbortSignal): Promise<MasterLogPage & { restarted: boolean }> {
  const page = await asked(api, level, search, after, signal);
  if (Number(page.last) >= after) return { ...page, restarted: false };
  return { ...(await asked(api, level, search, 0, signal)), restarted: true };
}

function asked(api: Api, level: Level, search: string, after: number | null, signal: AbortSignal): Promise<MasterLogPage> {
  const query = new URLSearchParams({ limit: String(PAGE), level });
  if (search) query.set('search', search);
  if (after !== null) query.set('after', String(after));
  return api.get<MasterLogPage>(`master/logs?${query}`, signal);
}

function shown(line: MasterLogLine): ShownLine {
  const text = `${line.level.toUpperCase()} ${line.logger}: ${line.text}`;
  return { id: line.id, rank: null, node: null, level: line.level.toUpperCase(), stdtype: 'stdout', time: line.at, run: 0, text: logText(text) };
}
