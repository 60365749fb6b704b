/** The user's own settings, which the master has: laid over what this browser has kept, and changed there. */

import { useCallback } from 'react';

import type { Api } from '../../state/api';
import { useApp } from '../../state/context';
import type { SetUserSettings, UserSettings } from '../../state/wire';
import { useAct } from '../common/loading/load';
import { chooseZone } from '../common/zone';

export const PATH = 'me/settings';

/** Show the page as its user has chosen, wherever they did; what they have not chosen stays as this browser has it. */
export async function applySettings(api: Api, chooseTheme?: (theme: UserSettings['theme']) => void): Promise<void> {
  let found: UserSettings;
  try {
    found = await api.get<UserSettings>(PATH);
  } catch {
    return; // the master is away, or older: what the browser has kept counts
  }
  const chosen = found?.chosen ?? [];
  if (chosen.includes('time_zone')) chooseZone(found.time_zone);
  if (chosen.includes('theme') && isNews(found.theme)) chooseTheme?.(found.theme);
}

const KNOWN = 'detlab:theme';

/** Whether the master's theme is not what it was when this browser last had it: what the Hub's own switch did since counts. */
function isNews(theme: UserSettings['theme']): boolean {
  try {
    if (window.localStorage.getItem(KNOWN) === theme) return false;
    window.localStorage.setItem(KNOWN, theme);
  } catch {
    // storage may be forbidden
  }
  return true;
}

/** A function that has the master keep some settings, and tells when it does not. */
export function useSaveSettings(): (changes: SetUserSettings) => Promise<boolean> {
  const { api } = useApp();
  const act = useAct();
  return useCallback(changes => {
    if (changes.theme) isNews(changes.theme);
    return act(() => api.post<UserSettings>(PATH, changes));
  }, [api, act]);
}
