/** A form offers what the nodes can do, and says why it offers nothing else. */

import { render, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import schema from '../../../docs/reference/experiment-config.schema.json';
import { agent, overview } from '../components/admin/fixtures';
import type { AgentView } from '../state/wire';
import { FakeApi } from '../testing/app';
import type { HubApi } from './api';
import { App } from './App';
import type { PageInfo } from './page';
import { Router } from './router';
import { closedRuntimes } from '../form/runtimes';

const PAGE: PageInfo = { base: '/services/detlab/', hub: '/hub/', xsrf: 't', user: 'root', admin: true, version: '0.1.0', schema: '/s.json', bundleLimit: 1e6 };
const NO_ENGINE = 'no node has a container engine now';

beforeEach(() => {
  window.scrollTo = () => undefined;
  vi.stubGlobal('fetch', async () => new Response(JSON.stringify(schema), { status: 200 }));
});
afterEach(() => vi.unstubAllGlobals());

function open(view: string, agents: AgentView[]): void {
  window.history.replaceState(null, '', PAGE.base + view);
  const checked = { experiment: null, created: false, warnings: [], config: {} };
  const api = new FakeApi({ overview: overview({ agents }), 'POST experiments': checked });
  render(<App page={PAGE} api={api as unknown as HubApi} router={new Router(PAGE.base)} />);
}

const choices = (field: HTMLElement): string[] =>
  [...(field as HTMLSelectElement).options].map(option => `${option.text}${option.disabled ? ' (closed)' : ''}`);

test('a runtime is closed when no node that is there, and serves this user, has it', () => {
  const both = agent({ runtimes: ['process', 'docker'] });
  expect(closedRuntimes([agent(), both], 'root')).toEqual({});
  expect(closedRuntimes([agent()], 'root')).toEqual({ docker: NO_ENGINE });
  expect(closedRuntimes([agent({ runtimes: ['docker'] })], 'root')).toEqual({ process: 'no node runs processes now' });
  expect(closedRuntimes([agent(), { ...both, state: 'lost' }], 'root')).toEqual({ docker: NO_ENGINE });
  expect(closedRuntimes([agent(), { ...both, serves_user: 'ada' }], 'root')).toEqual({ docker: NO_ENGINE });
  expect(closedRuntimes([agent(), { ...both, state: 'suspect', serves_user: 'root' }], 'root')).toEqual({});
  const nobody = 'no node is connected now';
  expect(closedRuntimes([], 'root')).toEqual({ process: nobody, docker: nobody });
});

test('a start dialog offers no container without an engine, and says so', async () => {
  open('', [agent()]);
  await userEvent.click(await screen.findByRole('button', { name: 'Notebook, shell …' }));
  await userEvent.click(screen.getByRole('menuitem', { name: 'New notebook …' }));
  const field = screen.getByLabelText(/^Runtime/);
  expect(choices(field)).toEqual(['cluster default', 'process', 'container (closed)']);
  expect(screen.getByText('No node has a container engine now.')).toBeTruthy();
});

test('a start dialog offers both where both are, and has nothing to explain', async () => {
  open('', [agent({ runtimes: ['process', 'docker'] })]);
  await userEvent.click(await screen.findByRole('button', { name: 'Notebook, shell …' }));
  await userEvent.click(screen.getByRole('menuitem', { name: 'New shell …' }));
  const field = screen.getByLabelText(/^Runtime/);
  expect(choices(field)).toEqual(['cluster default', 'process', 'container']);
  await userEvent.selectOptions(field, 'docker');
  expect(screen.getByLabelText(/^Image/)).toBeTruthy();
  expect(screen.queryByText(/No node/)).toBeNull();
});

test('a runtime of which the page knows only the name is offered by it where a node has it', async () => {
  open('', [agent({ runtimes: ['process', 'slurm'] })]);
  await userEvent.click(await screen.findByRole('button', { name: 'Notebook, shell …' }));
  await userEvent.click(screen.getByRole('menuitem', { name: 'New shell …' }));
  const field = screen.getByLabelText(/^Runtime/);
  expect(choices(field)).toEqual(['cluster default', 'process', 'container (closed)', 'slurm']);
  await userEvent.selectOptions(field, 'slurm');
  expect(screen.getByLabelText(/^Image/)).toBeTruthy();
});

test('without any node the dialog says that, once', async () => {
  open('', []);
  await userEvent.click(await screen.findByRole('button', { name: 'Notebook, shell …' }));
  await userEvent.click(screen.getByRole('menuitem', { name: 'New command …' }));
  expect(choices(screen.getByLabelText(/^Runtime/))).toEqual(['cluster default', 'process (closed)', 'container (closed)']);
  expect(screen.getByText('No node is connected now.')).toBeTruthy();
});

test("the experiment's form closes it as well, with the reason at the field", async () => {
  open('new', [agent()]);
  const field = await screen.findByLabelText('runtime', {}, { timeout: 10_000 });
  expect(choices(field)).toEqual(['default', 'process', 'docker (closed)']);
  const told = field.getAttribute('aria-describedby')!.split(' ').map(id => document.getElementById(id)?.textContent);
  expect(told).toContain(`docker: ${NO_ENGINE}.`);
});

test("the experiment's form offers both where both are", async () => {
  open('new', [agent({ runtimes: ['process', 'docker'] })]);
  expect(choices(await screen.findByLabelText('runtime', {}, { timeout: 10_000 }))).toEqual(['default', 'process', 'docker']);
  expect(document.body.textContent).not.toContain('no node');
});
