import { render, screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { overview, task, waiting } from '../components/admin/fixtures';
import { FixtureApi } from '../harness/api';
import { FakeApi } from '../testing/app';
import { HubApi } from './api';
import { App } from './App';
import { interceptLinks } from './links';
import { readPage, type PageInfo } from './page';
import { ofMlflow, pathOf, placeOf, Router, type HubPlace } from './router';
import { blank, missing, byField, requestOf, problemsOf } from './start/task';

const PAGE: PageInfo = { base: '/services/detlab/', hub: '/hub/', xsrf: 'tok', user: 'root', admin: true, version: '0.1.0', schema: '/s.json', bundleLimit: 1_000_000 };
const PLAIN = { ...overview(), me: { name: 'ben', scopes: ['custom:detlab:read', 'custom:detlab:write'], admin: false } };

beforeEach(() => {
  window.scrollTo = () => undefined;
  window.history.replaceState(null, '', '/services/detlab/');
});
afterEach(() => {
  document.cookie = '_xsrf=; max-age=0';
});

function open(path: string, api: FakeApi, page = PAGE): Router {
  window.history.replaceState(null, '', page.base + path);
  const router = new Router(page.base);
  render(<App page={page} api={api as unknown as HubApi} router={router} />);
  return router;
}

test('every place has an address that leads back to it', () => {
  const places: HubPlace[] = [
    { kind: 'list', view: 'work' }, { kind: 'list', view: 'audit' }, { kind: 'experiment', id: 12 },
    { kind: 'trial', id: 3, tab: 'logs' }, { kind: 'trial', id: 3, tab: 'hparams' }, { kind: 'experiment', id: 12, tab: 'checkpoints' }, { kind: 'workspace', workspace: 'ada/vision' },
    { kind: 'workspace', workspace: '7', tab: 'members' }, { kind: 'project', workspace: '../x', project: 'a b/../%2f?#' }, { kind: 'list', view: 'shared' }, { kind: 'list', view: 'settings' }, { kind: 'trial', id: 3 }, { kind: 'task', id: 'nb/../x y' }, { kind: 'new' },
    { kind: 'new', from: 7 }, { kind: 'list', view: 'models' }, { kind: 'list', view: 'storage' }, { kind: 'model', name: 'two words/../%2f?x#y' },
    { kind: 'version', model: 'digits', version: 3 }, { kind: 'compare', model: 'ä b', versions: ['3', 'production', '1.0.0+a'] }, { kind: 'compare', model: 'm', versions: [] }
  ];
  for (const place of places) {
    const [path, search] = pathOf(place).split('?');
    expect(placeOf(path!, search ? `?${search}` : '')).toEqual(place);
  }
  const compared = placeOf('compare', '?trials=12,15&experiments=3&x=time&token=secret');
  expect(compared).toEqual({ kind: 'comparison', trials: [12, 15], experiments: [3], view: 'x=time' });
  expect(pathOf(compared)).toBe('compare?trials=12,15&experiments=3&x=time');
  expect(placeOf('experiments/x')).toEqual({ kind: 'nowhere', path: 'experiments/x' });
  for (const none of ['models/digits/versions/x', 'models/digits/versions', 'models/digits/versions/3/4', 'models/digits/else', 'models/digits/compare/3']) {
    expect(placeOf(none)).toEqual({ kind: 'nowhere', path: none });
  }
  expect(placeOf('nonsense')).toEqual({ kind: 'nowhere', path: 'nonsense' });
  expect(placeOf('tasks/%E0%A4%A')).toEqual({ kind: 'task', id: '%E0%A4%A' });
});

test('an address that clients of MLflow print leads to the run, or to the trial that it is', () => {
  const run = 'a'.repeat(32);
  expect(ofMlflow(`#/experiments/12/runs/${run}`)).toEqual({ kind: 'run', id: run });
  expect(ofMlflow(`#/experiments/12/runs/${'0'.repeat(30)}1f`)).toEqual({ kind: 'trial', id: 31 });
  expect(ofMlflow('#/experiments/12')).toEqual({ kind: 'tracked' });
  expect(ofMlflow('#/experiments/12/runs/x"y')).toBeNull();
  window.history.replaceState(null, '', `/services/detlab/#/experiments/12/runs/${run}`);
  expect(new Router('/services/detlab/').place).toEqual({ kind: 'run', id: run });
  expect(window.location.pathname + window.location.hash).toBe(`/services/detlab/runs/${run}`);
  window.history.replaceState(null, '', '/');
});

test('the options of a comparison are in its address, and are no steps back', async () => {
  const api = new FixtureApi({ trials: 3, curves: 3, points: 20, logs: 1, experiments: 1 });
  const router = open('compare?trials=100,101&x=time', api as never);
  const over = await screen.findByLabelText('over');
  const steps = window.history.length;
  await userEvent.selectOptions(over, 'wall');
  expect(window.location.href).toMatch(/\/services\/detlab\/compare\?trials=100,101&x=wall$/);
  expect(window.history.length).toBe(steps);
  expect(screen.getByLabelText('over')).toBe(over);
  expect(router.place).toMatchObject({ kind: 'comparison', view: 'x=wall' });
  expect(document.title).toBe('Compare · detlab');
});

test('the page is read from its meta tags', () => {
  const shell = new DOMParser().parseFromString(
    '<meta name="detlab-xsrf" content="a&quot;b"><meta name="detlab-admin" content="yes"><meta name="detlab-user" content="x">', 'text/html'
  );
  expect(readPage(shell)).toMatchObject({ xsrf: 'a"b', admin: true, user: 'x', base: '/services/detlab/' });
});

function reply(status: number, body: unknown): Response {
  return new Response(JSON.stringify(body), { status });
}

test('requests carry the token; a newer one in the cookie is tried once', async () => {
  const seen: string[] = [];
  const fetcher = vi.fn(async (_: unknown, init?: RequestInit) => {
    const token = new Headers(init?.headers).get('X-XSRFToken')!;
    seen.push(`${init?.method} ${token}`);
    return token === 'newer' ? reply(200, { name: 'root' }) : reply(401, { code: 'auth', message: 'no' });
  });
  const api = new HubApi(PAGE, fetcher as typeof fetch);
  document.cookie = '_xsrf=newer';
  expect(await api.get('me')).toEqual({ name: 'root' });
  expect(await api.post('tasks', { a: 1 })).toEqual({ name: 'root' });
  expect(seen).toEqual(['GET tok', 'GET newer', 'POST newer']);
});

test('an ended session is told once', async () => {
  const api = new HubApi(PAGE, (async () => reply(401, { code: 'auth', message: 'no' })) as typeof fetch);
  const told = vi.fn();
  api.onSessionEnd = told;
  await expect(api.get('me')).rejects.toMatchObject({ code: 'session_ended' });
  await expect(api.del('tokens/x')).rejects.toMatchObject({ status: 401 });
  expect(told).toHaveBeenCalledTimes(1);
});

test('nobody answering is an error that passes', async () => {
  const api = new HubApi(PAGE, (async () => { throw new TypeError('Failed to fetch'); }) as typeof fetch);
  await expect(api.get('me')).rejects.toMatchObject({ status: 0, retryable: true });
});

test('an administrator finds every view; one click leads there and takes the focus along', async () => {
  const api = new FakeApi({ overview: overview(), audit: { items: [], next: null } });
  const router = open('', api);
  const undo = interceptLinks(document.body, router);
  await screen.findByText('Getting started');
  const nav = screen.getByRole('navigation', { name: 'Views' });
  expect(within(nav).getAllByRole('link').map(link => link.textContent)).toEqual([
    'My work', 'Experiments', 'Trials', 'Runs', 'Schedules', 'Shared with me', 'Queue', 'Cluster', 'Models', 'Artifacts', 'Storage', 'Templates', 'Notifications', 'Nodes', 'All work', 'Quotas', 'Usage', 'Tokens', 'Audit log', 'Master log', 'Service'
  ]);
  await userEvent.click(within(nav).getByRole('link', { name: 'Audit log' }));
  const heading = await screen.findByRole('heading', { name: 'Audit log', level: 1 });
  expect(window.location.pathname).toBe('/services/detlab/audit');
  await waitFor(() => expect(document.activeElement).toBe(heading));
  expect(document.title).toBe('Audit log · detlab');
  expect(within(nav).getByRole('link', { name: 'Audit log' }).getAttribute('aria-current')).toBe('page');
  window.history.back();
  await screen.findByRole('heading', { name: 'My work', level: 1 });
  undo();
});

test('others see no admin entry, and a direct link says clearly why', async () => {
  for (const view of ['nodes', 'everybody', 'tokens', 'audit', 'log', 'service']) {
    const api = new FakeApi({ overview: PLAIN });
    open(view, api, { ...PAGE, user: 'ben', admin: false });
    expect(await screen.findByText('This page is for administrators.')).toBeTruthy();
    expect(screen.queryByText('Administration')).toBeNull();
    expect(api.asked.some(one => /audit|tokens|service|all=true/.test(one))).toBe(false);
    document.body.innerHTML = '';
  }
});

test('only the store in use has a stream', async () => {
  const asked: string[] = [];
  const api = new FakeApi({ overview: () => { asked.push('overview'); return overview(); } });
  const router = open('', api);
  await waitFor(() => expect(api.asked).toContain('GET overview'));
  router.go({ kind: 'list', view: 'nodes' });
  await waitFor(() => expect(api.asked).toContain('GET overview?all=true'));
  expect(api.streams).toHaveLength(1);
});

test('an unknown address says so', async () => {
  open('nonsense', new FakeApi({ overview: overview() }));
  expect(await screen.findByText('There is no page “nonsense”.')).toBeTruthy();
});

test('a shell is started, waited for and opened', async () => {
  const shell = task({ id: 'shell-1', kind: 'shell', owner: 'root', name: 'sh', url: null, place: 2, pending_reason: 'no free slot' });
  const api = new FakeApi({ overview: overview(), 'POST tasks': { task: shell, created: true, warnings: [], config: {} } });
  const opened = vi.spyOn(window, 'open').mockReturnValue(null);
  open('', api);
  await userEvent.click(await screen.findByRole('button', { name: 'Notebook, shell …' }));
  await userEvent.click(screen.getByRole('menuitem', { name: 'New shell …' }));
  await userEvent.type(screen.getByLabelText('Name'), 'sh');
  await userEvent.click(screen.getByRole('button', { name: 'Start' }));
  expect(await screen.findByText(/Position 2 in the queue: no free slot/)).toBeTruthy();
  expect(api.bodies[0]).toMatchObject({ kind: 'shell', name: 'sh', config: { resources: { slots: 0 } } });
  api.say('stream', { id: 8, kind: 'task', time: 1, experiment_id: null, trial_id: null, task_id: 'shell-1', data: { ...shell, url: '/user/root/sh/', place: null } });
  const link = await screen.findByRole('link', { name: 'Open' });
  expect(link.getAttribute('href')).toBe('/hub/user/root/sh/');
  expect(opened).toHaveBeenCalledWith('/hub/user/root/sh/', '_blank', 'noopener');
});

test('the queue tells the place of what was started when the reply to the start is older', async () => {
  const shell = task({ id: 'shell-1', kind: 'shell', owner: 'root', name: 'sh', url: null, place: null, allocation_state: 'PENDING' });
  const queue = [waiting({ task_id: 'shell-1', experiment_id: null, trial_id: null, place: 3, reason: 'needs 4 slots' })];
  const api = new FakeApi({ overview: { ...overview(), queue }, 'POST tasks': { task: shell, created: true, warnings: [], config: {} } });
  open('', api);
  await userEvent.click(await screen.findByRole('button', { name: 'Notebook, shell …' }));
  await userEvent.click(screen.getByRole('menuitem', { name: 'New shell …' }));
  await userEvent.click(screen.getByRole('button', { name: 'Start' }));
  expect(await screen.findByText(/Position 3 in the queue: needs 4 slots/)).toBeTruthy();
});

test('mistakes of a form stand at their fields', () => {
  const found = byField([
    { path: 'resources.slots', message: 'must be a number', hint: null, level: 'error' },
    { path: 'environment.image.cpu', message: 'is empty', hint: null, level: 'error' },
    { path: 'resources.devices', message: 'no', hint: null, level: 'error' }
  ]);
  expect(Object.keys(found.fields)).toEqual(['slots', 'image']);
  expect(found.others.map(one => one.path)).toEqual(['resources.devices']);
  const answers = { ...blank('command'), slots: 'many', entrypoint: 'true', runtime: 'process' as const, image: 'x' };
  expect(requestOf('command', answers, 'k')).toEqual({
    kind: 'command', idempotency_key: 'k', config: { resources: { slots: 'many' }, runtime: 'process', entrypoint: 'true' }
  });
});

test('what the Hub says as text stands at its fields, too; a TensorBoard wants an experiment', () => {
  const message = 'the Hub says: The options have 2 errors:\n- resources.slots: must be a number, not "- x"\n- idle_timeout: is no time';
  expect(problemsOf({ message, problems: [] }).map(one => `${one.path} ${one.message}`)).toEqual([
    'resources.slots must be a number, not "- x"', 'idle_timeout is no time'
  ]);
  expect(problemsOf({ message: 'x has 1 mistake: - experiment_ids: name one', problems: [] }).map(one => one.path)).toEqual(['experiment_ids']);
  expect(problemsOf({ message: 'the Hub says: no', problems: [] })).toEqual([]);
  expect(missing('tensorboard', blank('tensorboard'))?.problems[0]?.path).toBe('experiment_ids');
  expect(missing('shell', blank('shell'))).toBeNull();
});
