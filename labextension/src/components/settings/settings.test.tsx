import { screen, waitFor } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';

import { ApiError } from '../../state/api';
import type { UserSettings } from '../../state/wire';
import { FakeApi, show } from '../../testing/app';
import { overview } from '../../testing/fixtures';
import { formatTime } from '../common';
import { chooseZone, zoneNow } from '../common/zone';
import { secondsOf, textOf } from '../logs/Filters';
import { applySettings } from './own';
import { SettingsPage } from './SettingsPage';

const settings = (over: Partial<UserSettings> = {}): UserSettings => ({ theme: 'system', time_zone: 'local', bell: true, email: true, chosen: [], ...over });

beforeEach(() => window.localStorage.clear());
afterEach(() => chooseZone('local'));

describe('any time zone', () => {
  it('has its own clock, summer time too', () => {
    expect(formatTime(1e9, 'Asia/Tokyo')).toBe('2001-09-09 10:46:40 GMT+9');
    expect(formatTime(1767225600, 'Europe/Berlin')).toBe('2026-01-01 01:00:00 CET');
    for (const zone of ['UTC', 'Asia/Kolkata', 'America/St_Johns', 'Pacific/Chatham', 'Europe/Berlin']) {
      // Around changes of the clocks; of an hour that comes twice it is the later one.
      for (const seconds of [1e9, 1774745999, 1774746000, 1774753200, 1792880000, 1792900000]) expect(secondsOf(textOf(seconds, zone), zone)).toBe(seconds);
    }
  });

  it('that a browser does not know is its own', () => {
    chooseZone('Mars/Olympus');
    expect(zoneNow()).toBe('local');
    chooseZone('utc'); // as it was kept before
    expect(zoneNow()).toBe('UTC');
  });
});

describe('what the master has', () => {
  it('is laid over what the browser has kept, where the user has chosen it', async () => {
    const themes: string[] = [];
    chooseZone('UTC');
    await applySettings(new FakeApi({ 'me/settings': settings({ theme: 'dark' }) }), theme => themes.push(theme));
    expect([zoneNow(), themes]).toEqual(['UTC', []]);
    await applySettings(new FakeApi({ 'me/settings': settings({ theme: 'dark', time_zone: 'Asia/Tokyo', chosen: ['theme', 'time_zone'] }) }), theme => themes.push(theme));
    expect([zoneNow(), themes]).toEqual(['Asia/Tokyo', ['dark']]);
    await applySettings(new FakeApi({ 'me/settings': settings({ theme: 'dark', chosen: ['theme'] }) }), theme => themes.push(`again ${theme}`));
    expect(themes.some(theme => theme.startsWith('again'))).toBe(false);
    await applySettings(new FakeApi({ 'me/settings': settings({ theme: 'light', chosen: ['theme'] }) }), theme => themes.push(`again ${theme}`));
    expect(themes.at(-1)).toBe('again light');
    await applySettings(new FakeApi({ 'me/settings': new ApiError(404, { message: 'an older master' }) }));
    expect(zoneNow()).toBe('Asia/Tokyo');
  });

  it('takes the other name of a zone, which browsers do not list, and says which it does not know', async () => {
    const { api } = show(<SettingsPage />, { overview: overview(), 'me/settings': settings(), 'POST me/settings': settings() });
    await userEvent.click(await screen.findByRole('radio', { name: 'Another time zone' }));
    for (const name of ['Asia/Kathmandu', 'Asia/Katmandu', 'Europe/Kyiv', 'Europe/Kiev']) {
      await userEvent.clear(screen.getByRole('combobox', { name: 'Time zone' }));
      await userEvent.type(screen.getByRole('combobox', { name: 'Time zone' }), name);
      await waitFor(() => expect(api.bodies.at(-1)).toEqual({ time_zone: name }));
      expect(screen.queryByText(/knows no such time zone/)).toBeNull();
    }
    await userEvent.type(screen.getByRole('combobox', { name: 'Time zone' }), 'x');
    expect(screen.getByText(/knows no such time zone/)).toBeTruthy();
  });

  it('is changed by the page, and a refusal takes a tick back', async () => {
    const { api } = show(<SettingsPage />, { overview: overview(), 'me/settings': settings(), 'POST me/settings': settings() });
    await userEvent.click(await screen.findByRole('checkbox', { name: /New alerts/ }));
    await userEvent.click(screen.getByRole('radio', { name: 'Another time zone' }));
    await userEvent.type(screen.getByRole('combobox', { name: 'Time zone' }), 'asia/tokyo');
    await waitFor(() => expect(api.bodies).toEqual([{ bell: false }, { time_zone: 'Asia/Tokyo' }]));
    api.answers['POST me/settings'] = new ApiError(403, { message: 'no permission' });
    const mail = screen.getByRole<HTMLInputElement>('checkbox', { name: /E-mail/ });
    await userEvent.click(mail);
    await waitFor(() => expect(api.bodies).toHaveLength(3));
    await waitFor(() => expect(mail.checked).toBe(true));
  });
});
