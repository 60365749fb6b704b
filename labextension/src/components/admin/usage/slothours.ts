/** Slot-hours over time: folding rows into days and people, and the table as CSV. */

import type { UsageRow } from '../../../state/wire';

/** Users with a colour of their own; the others share one band. */
export const MOST_BANDS = 7;
export const OTHERS = 'others';

export interface Stack {
  days: string[];
  /** Who has a band, most slot-hours first; `others` last. */
  bands: string[];
  /** Slot-hours, by band, then by day. */
  hours: number[][];
  /** Slot-hours of each day. */
  totals: number[];
}

export interface PersonUsage {
  user: string;
  hours: number;
  /** Of all, 0 to 1. */
  share: number;
  /** At the prices that stood. */
  cost: number;
  /** Slot-hours by kind, most first. */
  kinds: { kind: string; hours: number }[];
}

const DAY_MS = 86_400_000;

/** A moment's day as YYYY-MM-DD, in UTC as the service counts. */
export function dayOf(time: number): string {
  return new Date(time).toISOString().slice(0, 10);
}

/** All days from the first to the last, both included. */
export function daysBetween(first: string, last: string): string[] {
  const found = [];
  for (let at = Date.parse(`${first}T00:00:00Z`); at <= Date.parse(`${last}T00:00:00Z`); at += DAY_MS) found.push(dayOf(at));
  return found;
}

export function byPerson(rows: readonly UsageRow[]): PersonUsage[] {
  const kinds = new Map<string, Map<string, number>>();
  const costs = new Map<string, number>();
  let all = 0;
  for (const row of rows) {
    const own = kinds.get(row.user) ?? new Map<string, number>();
    own.set(row.kind, (own.get(row.kind) ?? 0) + row.slot_hours);
    kinds.set(row.user, own);
    costs.set(row.user, (costs.get(row.user) ?? 0) + (row.cost ?? 0));
    all += row.slot_hours;
  }
  return [...kinds]
    .map(([user, own]) => {
      const hours = [...own.values()].reduce((sum, n) => sum + n, 0);
      const sorted = [...own].map(([kind, n]) => ({ kind, hours: n })).sort((a, b) => b.hours - a.hours);
      return { user, hours, share: all ? hours / all : 0, cost: costs.get(user) ?? 0, kinds: sorted };
    })
    .sort((a, b) => b.hours - a.hours || a.user.localeCompare(b.user));
}

export function stack(rows: readonly UsageRow[], first: string, last: string): Stack {
  const days = daysBetween(first, last);
  const at = new Map(days.map((day, i) => [day, i]));
  const people = byPerson(rows).map(person => person.user);
  const named = people.slice(0, people.length > MOST_BANDS + 1 ? MOST_BANDS : people.length);
  const bands = named.length < people.length ? [...named, OTHERS] : named;
  const hours = bands.map(() => days.map(() => 0));
  const totals = days.map(() => 0);
  for (const row of rows) {
    const day = at.get(row.day);
    if (day === undefined) continue;
    const band = named.indexOf(row.user);
    hours[band < 0 ? bands.length - 1 : band]![day]! += row.slot_hours;
    totals[day]! += row.slot_hours;
  }
  return { days, bands, hours, totals };
}

/** A top of the axis that is a round number, and its marks. */
export function axis(most: number): { top: number; marks: number[] } {
  if (most <= 0) return { top: 1, marks: [0, 0.5, 1] };
  const raw = most / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(n => n * power).find(n => n >= raw * 0.999)!;
  const count = Math.ceil(most / step - 1e-9);
  return { top: step * count, marks: Array.from({ length: count + 1 }, (_, i) => Number((i * step).toPrecision(12))) };
}

export function formatHours(hours: number): string {
  if (hours === 0) return '0';
  return hours < 1 ? String(Number(hours.toFixed(2))) : hours < 100 ? hours.toFixed(1) : String(Math.round(hours));
}
