/** The bell: how many alerts are unread, their list, and a notification of the host for each new one. */

import { useEffect, useId, useRef, useState, type KeyboardEvent, type ReactElement, type ReactNode } from 'react';

import { useApp } from '../../state/context';
import type { AlertList, AlertView, UnreadAlerts } from '../../state/wire';
import { Go } from '../admin/parts';
import { formatAgo, useLoaded, useNow } from '../common';
import { useAct, useReloadOn } from '../common/loading/load';
import { nameText, visible } from '../common/text';

const SHOWN = 20;
/** From here on the master does not count. */
const MOST = 100;
/** Time in ms after which the list is asked for again, whatever has happened. */
const LOOK_AGAIN = 60_000;
/** Alerts of one answer that become notifications; the bell has the others. */
const MOST_NOTIFIED = 3;

/** `more`: a link below the list, to where rules are set. */
export function AlertBell({ more }: { more?: ReactNode }): ReactElement | null {
  const { api } = useApp();
  const now = useNow(LOOK_AGAIN);
  const { data, reload } = useLoaded(String(now), signal => api.get<AlertList>(`alerts?limit=${SHOWN}`, signal));
  const act = useAct();
  const [open, setOpen] = useState(false);
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const whole = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    if (!open) return;
    const outside = (event: PointerEvent): void => {
      if (!whole.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener('pointerdown', outside, true);
    return () => document.removeEventListener('pointerdown', outside, true);
  }, [open]);
  // A rule is evaluated soon after what it waits for.
  useReloadOn('experiment', reload, 2000);
  useNotified(data);
  if (data === null) return null;
  const count = data.unread >= MOST ? `${MOST - 1}+` : String(data.unread);
  const read = (): void => void act(async () => {
    await api.post<UnreadAlerts>('alerts/read', { upto: data.items[0]!.id });
    button.current?.focus(); // its own button goes
    reload();
  });
  const opened = (one: AlertView): void => {
    setOpen(false);
    if (!one.read) void act(async () => {
      await api.post<UnreadAlerts>('alerts/read', { ids: [one.id] });
      reload();
    });
  };
  const close = (event: KeyboardEvent): void => {
    if (event.key !== 'Escape' || !open) return;
    event.stopPropagation();
    setOpen(false);
    button.current?.focus();
  };
  return (
    <span ref={whole} className="det-bell" onKeyDown={close}>
      <button
        ref={button} type="button" className="det-button" aria-expanded={open} aria-controls={id} title="Alerts"
        aria-label={data.unread ? `Alerts: ${count} unread` : 'Alerts'} onClick={() => setOpen(!open)}
      >
        <BellIcon />
        {data.unread > 0 && <span className="det-bell-count det-num">{count}</span>}
      </button>
      <span id={id} className="det-bell-list" hidden={!open}>
        {open && (
          <>
            <ul className="det-list" aria-label="Alerts">{data.items.map(one => <AlertItem key={one.id} alert={one} onOpen={() => opened(one)} />)}</ul>
            {data.items.length === 0 && <span className="det-none">No alerts. `det alert add-rule completed` tells you when an experiment ends.</span>}
            {data.unread > 0 && <span className="det-bell-foot"><button type="button" className="det-button" onClick={read}>Mark all as read</button></span>}
            {more && <span className="det-bell-more" onClick={event => (event.target as Element).closest('a') && setOpen(false)}>{more}</span>}
          </>
        )}
      </span>
    </span>
  );
}

/** Drawn: not every machine has a font with this sign. */
function BellIcon(): ReactElement {
  return (
    <svg className="det-bell-icon" width="14" height="14" viewBox="0 0 16 16" fill="currentColor" aria-hidden="true">
      <path d="M8 1a1 1 0 0 1 1 1v.3A4.5 4.5 0 0 1 12.5 6.7V10l1.5 2v.5H2V12l1.5-2V6.7A4.5 4.5 0 0 1 7 2.3V2a1 1 0 0 1 1-1zM6.3 13.5h3.4a1.7 1.7 0 0 1-3.4 0z" />
    </svg>
  );
}

function AlertItem({ alert, onOpen }: { alert: AlertView; onOpen: () => void }): ReactElement {
  const title = nameText(alert.title, 200) || alert.kind;
  return (
    <li className="det-item" data-unread={!alert.read || undefined}>
      <span className="det-item-head">
        <span className="det-name" data-level={alert.level} onClick={event => (event.target as Element).closest('a, button') && onOpen()}>
          {alert.experiment_id !== null ? <Go to={{ kind: 'experiment', id: alert.experiment_id }}>{title}</Go>
            : alert.run_id !== null ? <Go to={{ kind: 'run', id: alert.run_id }}>{title}</Go> : title}
        </span>
        {!alert.read && <span className="det-soft">new</span>}
      </span>
      {alert.text !== '' && <span className="det-reason">{visible(alert.text.slice(0, 1000))}</span>}
      <span className="det-facts">
        {alert.held_back > 0 && <span>{alert.held_back} more came too fast</span>}
        <span className="det-age">{formatAgo(alert.created_at)}</span>
      </span>
    </li>
  );
}

/** Have the host notify of what is new since the page was opened. */
function useNotified(data: AlertList | null): void {
  const { notify } = useApp();
  const newest = useRef<number | null>(null);
  useEffect(() => {
    if (data === null) return;
    const seen = newest.current;
    newest.current = Math.max(seen ?? 0, data.items[0]?.id ?? 0);
    if (seen === null) return;
    const fresh = data.items.filter(one => one.id > seen && !one.read);
    for (const one of fresh.slice(0, MOST_NOTIFIED).reverse()) {
      const text = visible(one.text.slice(0, 200));
      notify(nameText(one.title, 200) + (text && `: ${text}`), one.level === 'error' ? 'bad' : undefined);
    }
  }, [data, notify]);
}
