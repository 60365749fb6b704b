/** What users choose for themselves: colours, time zone, and which notifications they want. The master keeps it. */

import { useId, useState, type ReactElement, type ReactNode } from 'react';

import { useApp } from '../../state/context';
import type { UserSettings } from '../../state/wire';
import { View } from '../admin/parts';
import { ErrorBanner, formatTime, Loading, useLoaded } from '../common';
import { chooseZone, knowsZone, LOCAL, useZone, zoneNames, type Zone } from '../common/zone';
import { PATH, useSaveSettings } from './own';

type Theme = UserSettings['theme'];

const THEMES: readonly [Theme, string][] = [['system', 'As the system has them'], ['light', 'Light'], ['dark', 'Dark']];
const ZONES: readonly [string, string][] = [[LOCAL, 'Local time'], ['UTC', 'UTC'], ['other', 'Another time zone']];

export function SettingsPage(): ReactElement {
  const { api } = useApp();
  const { data, error, reload } = useLoaded('settings', signal => api.get<UserSettings>(PATH, signal));
  return (
    <View title="Settings" summary="They are yours alone, in each browser, and change nothing for others.">
      <div className="det-settings">
        <Colours />
        <Times />
        {error ? <ErrorBanner error={error} what="Settings" onRetry={reload} />
          : data ? <Wanted start={data} /> : <Loading what="Loading your settings" />}
      </div>
    </View>
  );
}

function Colours(): ReactElement {
  const { theme } = useApp();
  const save = useSaveSettings();
  const [colours, setColours] = useState<Theme>(() => theme?.chosen() ?? 'system');
  if (!theme) return <p className="det-soft">Colours are JupyterLab's: Settings → Theme.</p>;
  const choose = (choice: Theme): void => {
    theme.choose(choice);
    setColours(choice);
    void save({ theme: choice });
  };
  return <Choice legend="Colours" name="theme" choices={THEMES} chosen={colours} onChoose={choose} />;
}

function Times(): ReactElement {
  const zone = useZone();
  const save = useSaveSettings();
  const id = useId();
  const isOther = zone !== LOCAL && zone !== 'UTC';
  const [asked, setAsked] = useState(isOther);
  const [text, setText] = useState(isOther ? zone : '');
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const names = zoneNames();
  const take = (chosen: Zone): void => {
    chooseZone(chosen);
    void save({ time_zone: chosen });
  };
  const choose = (choice: string): void => {
    setAsked(choice === 'other');
    if (choice !== 'other') take(choice);
  };
  const typed = (value: string): void => {
    setText(value);
    const wanted = value.trim();
    const found = names.find(name => name.toLowerCase() === wanted.toLowerCase())
      ?? (wanted.includes('/') && knowsZone(wanted) ? wanted : undefined);
    if (found) take(found);
  };
  const begun = text.trim();
  const unknown = begun !== '' && !names.some(name => name.toLowerCase().startsWith(begun.toLowerCase())) && !knowsZone(begun);
  return (
    <Choice
      legend="Times" name="zone" choices={ZONES} chosen={asked ? 'other' : zone} onChoose={choose}
      about={`${local ? `Local time here is ${local}. ` : ''}Now it is ${formatTime(Date.now() / 1000)}.`}
    >
      {asked && (
        <span className="det-labelled">
          <label htmlFor={id}>Time zone</label>
          <input
            id={id} className="det-input" list={`${id}-l`} value={text} placeholder="Europe/Berlin" autoComplete="off" spellCheck={false}
            aria-invalid={unknown || undefined} onChange={event => typed(event.target.value)}
          />
          <datalist id={`${id}-l`}>{names.map(name => <option key={name} value={name} />)}</datalist>
          {unknown && <small role="alert" className="det-edits-problem">This browser knows no such time zone.</small>}
        </span>
      )}
    </Choice>
  );
}

function Wanted({ start }: { start: UserSettings }): ReactElement {
  const save = useSaveSettings();
  const [of, setOf] = useState(start);
  const set = async (changes: { bell?: boolean; email?: boolean }): Promise<void> => {
    setOf({ ...of, ...changes });
    if (!(await save(changes))) setOf(of);
  };
  return (
    <fieldset className="det-settings-choice">
      <legend>Notifications</legend>
      <label className="det-adm-check">
        <input type="checkbox" checked={of.bell} onChange={event => void set({ bell: event.target.checked })} /> New alerts at the bell
      </label>
      <label className="det-adm-check">
        <input type="checkbox" checked={of.email} onChange={event => void set({ email: event.target.checked })} /> E-mail, by rules that say so
      </label>
      <p className="det-soft">
        {of.bell ? '' : 'Alerts are in the list under the bell, as read. '}
        {of.email ? '' : `Nothing is sent by e-mail${of.bell ? '; what would be is new at the bell' : ''}. `}
        Rules, the address and webhooks: see Notifications.
      </p>
    </fieldset>
  );
}

function Choice<T extends string>({ legend, name, choices, chosen, onChoose, about, children }: {
  legend: string; name: string; choices: readonly [T, string][]; chosen: T; onChoose: (choice: T) => void; about?: string;
  children?: ReactNode;
}): ReactElement {
  return (
    <fieldset className="det-settings-choice">
      <legend>{legend}</legend>
      {choices.map(([value, label]) => (
        <label key={value} className="det-adm-check">
          <input type="radio" name={name} value={value} checked={value === chosen} onChange={() => onChoose(value)} /> {label}
        </label>
      ))}
      {children}
      {about && <p className="det-soft det-num">{about}</p>}
    </fieldset>
  );
}
