/** The code of a new experiment: packed and uploaded when it is chosen, so that a config can be validated with it. */

import { useCallback, useEffect, useRef, useState } from 'react';

import { formatBytes, plural } from '../../components/common';
import { ApiError, asApiError } from '../../state/api';
import type { HubApi } from '../api';
import { pack } from './bundle';
import type { Gathered } from './gather';
import { check, joined, select, type Selection } from './select';
import { Unusable, type Source } from './source';

export interface Code {
  from: string | null;
  selection: Selection;
  /** Folders that were left out as a whole. */
  folders: number;
  /** The digest by which the master knows it. */
  bundle: string;
  /** Bytes that were sent. */
  packed: number;
}

export type CodeState =
  | { kind: 'none' }
  | { kind: 'busy'; word: string }
  | { kind: 'ready'; code: Code }
  | { kind: 'bad'; error: Pick<ApiError, 'message' | 'hint'> };

export interface Coded {
  state: CodeState;
  take(gathered: Promise<Gathered>): Promise<void>;
  clear(): void;
}

class Replaced extends Error {}

export function useCode(api: HubApi, mostBytes: number): Coded {
  const [state, setState] = useState<CodeState>({ kind: 'none' });
  const round = useRef(0);
  const sending = useRef<AbortController | null>(null);
  const single = useRef<Source[]>([]);

  const stop = useCallback((): number => {
    sending.current?.abort();
    return ++round.current;
  }, []);
  useEffect(() => () => void stop(), [stop]);

  const take = useCallback(
    async (gathered: Promise<Gathered>): Promise<void> => {
      const mine = stop();
      const alive = (): void => { if (mine !== round.current) throw new Replaced(); };
      const say = (word: string): void => { alive(); setState({ kind: 'busy', word }); };
      try {
        say('Reading the files …');
        const { sources, from, folders } = await gathered;
        alive();
        const all = from === null ? joined(single.current, sources) : sources;
        const selection = await select(all);
        check(selection, mostBytes);
        single.current = from === null ? all : [];
        say(`Packing ${plural(selection.files.length, 'file')}, ${formatBytes(selection.size)} …`);
        const { digest: bundle, packed } = await pack(selection.files, alive);
        if (packed.size > mostBytes) throw new Unusable(`${formatBytes(packed.size)} packed exceed the limit of ${formatBytes(mostBytes)}`);
        say(`Uploading ${formatBytes(packed.size)} …`);
        const control = (sending.current = new AbortController());
        await api.put(`bundles/${bundle}`, packed, control.signal);
        alive();
        setState({ kind: 'ready', code: { from, selection, folders, bundle, packed: packed.size } });
      } catch (error) {
        if (error instanceof Replaced || mine !== round.current) return;
        setState({ kind: 'bad', error: error instanceof Unusable ? error : asApiError(error) });
      }
    },
    [api, mostBytes, stop]
  );
  const clear = useCallback((): void => {
    stop();
    single.current = [];
    setState({ kind: 'none' });
  }, [stop]);
  return { state, take, clear };
}

/** Configs and scripts in the top folder: what a form may start from. */
export function startingPoints(files: readonly Source[]): { configs: Source[]; scripts: Source[] } {
  const top = files.filter(file => !file.path.includes('/')).sort((a, b) => (a.path < b.path ? -1 : 1));
  return {
    configs: top.filter(file => /\.ya?ml$/i.test(file.path) && file.size < 1_000_000),
    scripts: top.filter(file => /\.py$/.test(file.path))
  };
}
