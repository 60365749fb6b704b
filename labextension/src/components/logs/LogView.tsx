/** Log lines: filters, colours of ranks, follow, the first error, download. */

import { ReactElement, useDeferredValue, useEffect, useMemo, useRef, useState } from 'react';

import { useApp } from '../../state/context';
import { EmptyState, ErrorBanner, Loading, useFeed } from '../common';
import { useAct } from '../common/loading/load';
import { zoneNow } from '../common/zone';
import { LinkNotice } from '../view/LinkNotice';
import { save, wholeText } from './download';
import { LogFeed, LogState } from './feed';
import { LogFilter, NO_FILTER, passes, picky } from './filter';
import { Filters, type Look } from './Filters';
import { Lines } from './Lines';

/** A search is sent after a pause in typing of this length. */
const TYPING_MS = 350;
/** Code of the error of a regular expression that is none. */
const BAD_REGEX = 'logs.regex';

export function LogView({ base, label, visible = true }: {
  /** `trials/5/logs` or `tasks/x/logs` */
  base: string;
  label: string;
  visible?: boolean;
}): ReactElement {
  const [filter, setFilter] = useState<LogFilter>(NO_FILTER);
  const [look, setLook] = useState<Look>(() => ({ times: false, zone: zoneNow(), wrap: false, lanes: false }));
  const [follow, setFollow] = useState(true);
  const [target, setTarget] = useState<number | null>(null);
  const search = useSettled(filter.search, TYPING_MS);
  const { feed, state } = useFeed(({ api }) => new LogFeed(api, base), base, visible);
  const { rank, node, level, regex, since, until, context } = filter;
  const query = useMemo<LogFilter>(() => {
    const asked = { rank, node, level, search, regex, since, until, context };
    return { ...asked, regex: regex && search !== '', context: picky(asked) ? context : 0 };
  }, [rank, node, level, search, regex, since, until, context]);
  useEffect(() => void (target === null ? feed?.start(query) : feed?.show(target)), [feed, query, target]);
  const again = (): void => void (target === null ? feed?.start(query) : feed?.show(target));
  const wanted = useDeferredValue(filter);
  const buffer = state?.buffer;
  const lines = useMemo(
    () => (buffer ? buffer.lines.filter(line => passes(line, wanted)) : []),
    // eslint-disable-next-line react-hooks/exhaustive-deps -- lines come into the buffer: the version says when
    [buffer, wanted, state?.version]
  );
  const choose = (next: LogFilter): void => {
    setTarget(null);
    setFilter(next);
  };
  const download = useDownload(base, query, look);
  const firstError = useFirstError(feed, id => {
    setFilter(NO_FILTER);
    setFollow(false);
    setTarget(id);
  });
  if (state?.error && !state.ready) return <ErrorBanner error={state.error} what="Logs" onRetry={again} />;
  if (!state?.ready || !buffer) return <Loading what="Loading the logs" />;
  const busy = filter.search !== search || wanted !== filter || state.reaching;
  const bad = state.error?.code === BAD_REGEX ? state.error : null;
  return (
    <div className="det-logs">
      <Filters
        filter={filter} onFilter={choose} ranks={[...buffer.ranks].sort((a, b) => a - b)} nodes={[...buffer.nodes].sort()}
        look={look} onLook={setLook} follow={follow} ended={state.link.kind === 'ended'} onFirstError={firstError} onDownload={download}
        onFollow={on => { if (on) setTarget(null); setFollow(on); }} problem={bad && [bad.message, bad.hint].filter(Boolean).join('. ')}
      />
      <LinkNotice link={state.link} onRetry={again} />
      {state.error && !bad && <ErrorBanner error={state.error} what="Logs" onRetry={again} />}
      <Older state={state} any={lines.length > 0} onReach={() => void feed?.reach()} />
      {lines.length === 0
        ? <NoLines filter={wanted} busy={busy} state={state} onClear={() => choose(NO_FILTER)} />
        : (
          <Lines
            lines={lines} label={label} search={wanted.regex ? '' : wanted.search} look={look} follow={follow && state.newer === null}
            onFollow={on => { if (state.newer === null) setFollow(on); }} target={target}
          />
        )}
      {state.newer !== null && (
        <p className="det-log-older">
          There are newer lines.{' '}
          <button type="button" className="det-link" aria-disabled={state.reaching || undefined} onClick={() => void feed?.reachNewer()}>{state.reaching ? 'Loading …' : 'Load newer'}</button>{' '}
          <button type="button" className="det-link" onClick={() => { setTarget(null); setFollow(true); }}>Go to the newest</button>
        </p>
      )}
    </div>
  );
}

function Older({ state, any, onReach }: { state: LogState; any: boolean; onReach: () => void }): ReactElement | null {
  if (state.older === null) {
    return state.buffer.full ? <p className="det-log-older">Only the last {state.buffer.lines.length} lines are shown; the command line shows all.</p> : null;
  }
  return (
    <p className="det-log-older">
      {any ? 'There are older lines.' : 'Only the newest lines were searched.'}{' '}
      <button type="button" className="det-link" aria-disabled={state.reaching || undefined} onClick={onReach}>
        {state.reaching ? 'Loading …' : any ? 'Load older' : 'Search older'}
      </button>
    </p>
  );
}

/** Jump to the first line that tells of an error. */
function useFirstError(feed: LogFeed | null, onFound: (id: number) => void): () => Promise<void> {
  const { notify } = useApp();
  const act = useAct();
  return async () => {
    await act(async () => {
      const id = (await feed?.firstError()) ?? null;
      if (id === null) notify('No line of the output tells of an error.');
      else onFound(id);
    });
  };
}

function useDownload(base: string, query: LogFilter, look: Look): () => Promise<void> {
  const { api, notify } = useApp();
  const act = useAct();
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);
  return async () => {
    running.current?.abort();
    const control = (running.current = new AbortController());
    let told = 0;
    await act(async () => {
      const blob = await wholeText(api, base, query, look.times ? look.zone : null, control.signal, count => {
        if (count < told + 100_000) return;
        told = count;
        notify(`${count} lines so far …`);
      });
      save(blob, `${base.replaceAll('/', '-')}.txt`);
    });
  };
}

function useSettled<T>(value: T, afterMs: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setSettled(value), afterMs);
    return () => window.clearTimeout(timer);
  }, [value, afterMs]);
  return settled;
}

function NoLines({ filter, busy, state, onClear }: {
  filter: LogFilter; busy: boolean; state: LogState; onClear: () => void;
}): ReactElement {
  if (busy) return <Loading what="Searching" />;
  if (picky(filter)) {
    return (
      <EmptyState title="No line matches.">
        <button type="button" className="det-link" onClick={onClear}>Show all lines</button>
      </EmptyState>
    );
  }
  return <EmptyState title={state.link.kind === 'ended' ? 'No output.' : 'No output yet.'} />;
}
