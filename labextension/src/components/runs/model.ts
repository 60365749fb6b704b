/** What is told of runs from elsewhere, and which of them a table asks for. */

import { useEffect, useRef } from 'react';

import { type Place, useApp } from '../../state/context';
import { Follower } from '../../state/follow';
import { formatNumber } from '../common';
import { nameText } from '../common/text';
import type { RunView } from '../../state/wire';

/** Metrics that the process beside the script measures of its machine. */
export const SYSTEM = 'system/';
/** Seconds without a word after which a running one is called silent; the master gives it up later. */
const SILENT = 120;

export function goesOn(run: RunView): boolean {
  return run.status === 'RUNNING' || run.status === 'SCHEDULED';
}

export function titleOf(run: RunView): string {
  return nameText(run.name) || nameText(run.tags['detlab.key'] ?? '', 80) || run.id.slice(0, 12);
}

/** The place that compares some runs: there others, and trials, are added. */
export function comparisonOf(runs: string[]): Place {
  return { kind: 'comparison', trials: [], experiments: [], runs };
}

/** Why it is not what it seems: it should run, and is not heard from. */
export function silentFor(run: RunView, now: number): number | null {
  const silent = goesOn(run) && run.heard_at !== null ? now - run.heard_at : 0;
  return silent > SILENT ? silent : null;
}

/** The trial that a run is; null: it is none. Ids of trials are their numbers in 32 hex digits. */
export function trialOf(run: RunView): number | null {
  return /^0{16}/.test(run.id) ? Number.parseInt(run.id, 16) : null;
}

/** Any value of a result, in a line. */
export function valueText(value: unknown, most = 400): string {
  if (typeof value === 'number') return formatNumber(value);
  return nameText(typeof value === 'string' ? value : JSON.stringify(value), most);
}

/** Which runs. */
export interface RunsWanted {
  status: string;
  group: string;
  job: string;
}

const NAMES: [keyof RunsWanted, string][] = [['status', 'status'], ['group', 'group'], ['job', 'job_type']];

export function readRuns(query: string): RunsWanted {
  const found = new URLSearchParams(query);
  const [status, group, job] = NAMES.map(([, name]) => found.get(name) ?? '');
  return { status: status!, group: group!, job: job! };
}

export function writeRuns(wanted: RunsWanted): string {
  const found = new URLSearchParams();
  for (const [key, name] of NAMES) if (wanted[key]) found.set(name, wanted[key]);
  return found.toString();
}

/** Call when the master has something new of a run, until it has ended. */
export function useBeats(id: string | null, visible: boolean, call: () => void): void {
  const { api } = useApp();
  const work = useRef(call);
  work.current = call;
  const follower = useRef<Follower | null>(null);
  useEffect(() => {
    if (id === null) return;
    const made = new Follower(api, {
      path: () => `runs/${encodeURIComponent(id)}/stream`, finite: true,
      onLine: line => { if (line !== null) work.current(); }
    });
    follower.current = made;
    return () => made.stop();
  }, [api, id]);
  useEffect(() => (visible ? follower.current?.resume() : follower.current?.pause()), [visible, id]);
}
