/** What a user chooses for themselves: colours and time zone. Both are kept in this browser. */

import { ReactElement, useState } from 'react';

import { useApp } from '../../state/context';
import { View } from '../admin/parts';
import { formatTime } from '../common';
import { chooseZone, useZone, type Zone } from '../common/zone';

type Theme = 'light' | 'dark' | 'system';

const THEMES: readonly [Theme, string][] = [['system', 'As the system has them'], ['light', 'Light'], ['dark', 'Dark']];
const ZONES: readonly [Zone, string][] = [['local', 'Local time'], ['utc', 'UTC']];

export function SettingsPage(): ReactElement {
  const { theme } = useApp();
  const zone = useZone();
  const [colours, setColours] = useState<Theme>(() => theme?.chosen() ?? 'system');
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return (
    <View title="Settings" summary="They are kept in this browser and change nothing for others.">
      <div className="det-settings">
        {theme ? (
          <Choice
            legend="Colours" name="theme" choices={THEMES} chosen={colours}
            onChoose={choice => { theme.choose(choice); setColours(choice); }}
          />
        ) : <p className="det-soft">Colours are JupyterLab's: Settings → Theme.</p>}
        <Choice
          legend="Times" name="zone" choices={ZONES} chosen={zone} onChoose={chooseZone}
          about={`${local ? `Local time here is ${local}. ` : ''}Now it is ${formatTime(Date.now() / 1000)}.`}
        />
      </div>
    </View>
  );
}

function Choice<T extends string>({ legend, name, choices, chosen, onChoose, about }: {
  legend: string; name: string; choices: readonly [T, string][]; chosen: T; onChoose: (choice: T) => void; about?: string;
}): ReactElement {
  return (
    <fieldset className="det-settings-choice">
      <legend>{legend}</legend>
      {choices.map(([value, label]) => (
        <label key={value} className="det-adm-check">
          <input type="radio" name={name} value={value} checked={value === chosen} onChange={() => onChoose(value)} /> {label}
        </label>
      ))}
      {about && <p className="det-soft det-num">{about}</p>}
    </fieldset>
  );
}
