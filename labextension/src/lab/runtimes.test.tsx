/** JupyterLab's form offers what the nodes can do, and says why it offers nothing else. */

import { screen, waitFor } from '@testing-library/react';
import { expect, test } from 'vitest';

import schema from '../../../docs/reference/experiment-config.schema.json';
import { agent, overview } from '../components/admin/fixtures';
import { show } from '../testing/app';
import type { LabApi } from './api';
import { FormTab } from './tabs/FormTab';

const own = async (path: string): Promise<unknown> => (path === 'code' ? { bundle: null, files: [], size: 0 } : { problems: [], config: {} });

async function choices(runtimes: string[]): Promise<string[]> {
  const chosen = { kind: 'experiment' as const, path: null, folder: '', schema, text: null };
  const agents = [agent({ runtimes })];
  const { app } = show(
    <FormTab chosen={chosen} api={{ own } as unknown as LabApi} pick={null} onFile={() => undefined} submit={async () => undefined} />, { overview: overview({ agents }) }
  );
  await waitFor(() => expect(app.store.getSnapshot().ready).toBe(true));
  const field = screen.getByLabelText('runtime') as HTMLSelectElement;
  return [...field.options].map(option => `${option.text}${option.disabled ? ' (closed)' : ''}`);
}

test('a runtime that no node has is closed, with the reason', async () => {
  expect(await choices(['process'])).toEqual(['default', 'process', 'docker (closed)']);
  expect(screen.getByText(/no node has a container engine now/)).toBeTruthy();
});

test('what nodes have is offered without a word', async () => {
  expect(await choices(['process', 'docker'])).toEqual(['default', 'process', 'docker']);
  expect(screen.queryByText(/no node/)).toBeNull();
});

test('a runtime of a node that detlab does not bring is offered too', async () => {
  expect(await choices(['process', 'slurm'])).toEqual(['default', 'process', 'docker (closed)', 'slurm']);
});
