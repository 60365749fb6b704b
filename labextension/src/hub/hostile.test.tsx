/** Names that people may have, or give themselves: on the hub page they are text, and links lead where they should. */

import { render, screen, waitFor } from '@testing-library/react';
import { beforeEach, expect, test } from 'vitest';

import { experiment, holding, overview, task, waiting } from '../components/admin/fixtures';
import { visible } from '../components/common/text';
import { workspace } from '../components/workspaces/fixtures';
import { artifact } from '../harness/artifacts';
import { trials, views } from '../harness/finding';
import { model, storage } from '../harness/registry';
import { email, rule, schedule, template, webhook } from '../harness/told';
import { run } from '../harness/tracked';
import { FakeApi, show } from '../testing/app';
import type { HubApi } from './api';
import { App } from './App';
import type { PageInfo } from './page';
import { LISTS, Router } from './router';
import { Started } from './start/Started';

const NAMES = [
  '<img src=x onerror=alert(1)>', '"><script>alert(1)</script>', "' onmouseover='alert(1)", '100%20sure%2f..%2f', 'two words', 'javascript:alert(1)',
  'ädä 漢字 😀', 'ada\u202egnp.nimda\u202c', 'ada\u200b\ufeff\u2066', '..', '__proto__', 'others', 'constructor'
];
const SLY = /[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/;
// The settings show nothing of anybody.
const VIEWS = [...LISTS.filter(view => view !== 'settings'), 'nodes', 'everybody', 'usage', 'tokens', 'audit', 'log', 'service'];

/** Something of everybody in every list. */
function answers(): Record<string, unknown> {
  const each = <T,>(make: (name: string, i: number) => T): T[] => NAMES.map(make);
  const me = { name: NAMES[0]!, scopes: ['custom:detlab:admin', 'custom:detlab:write'], admin: true };
  const item = (name: string, id: number) => ({ id, time: 1e9, actor: name, action: 'task.create', subject: `task ${name}`, detail: name });
  return {
    overview: overview({
      me,
      experiments: each((name, i) => experiment({ id: i, owner: name, name })),
      tasks: each((name, i) => task({ id: `shell-${i}`, kind: 'shell', owner: name, name, agent_id: name, pending_reason: name })),
      queue: each((name, i) => waiting({ allocation_id: `${i}.u.2`, owner: name, name, reason: name })),
      agents: each((name, i) => ({ ...holding(name, { '0': `${i}.u.1` }), serves_user: name, address: name, version: name }))
    }),
    experiments: {
      items: each((name, i) => experiment({
        id: i, owner: name, name, labels: [name], workspace: `${name}/${name}`, workspace_id: i, project: name, project_id: i
      })),
      columns: [], notes: NAMES, next: null
    },
    trials: {
      items: each((name, i) => ({ ...trials(1, new URLSearchParams()).items[0]!, id: i, owner: name, name, labels: [name] })), columns: [], notes: NAMES, next: null
    },
    runs: { items: each((name, i) => ({ ...run(i), id: `${i}`.padStart(32, 'a'), name, owner: name, group: name, end_reason: name })), next: null },
    artifacts: { items: each((name, i) => ({ ...artifact(0), id: i, name, kind: name, owner: name, description: name, aliases: { [name]: 1 }, reference: `${name}/${name}` })), next: null },
    'saved-views': { items: each((name, i) => ({ ...views()[0]!, id: i, name })), next: null },
    usage: { first: '2026-03-01', last: '2026-03-01', items: each((user, i) => ({ day: '2026-03-01', user, kind: 'trial', slot_hours: 99 - i })) },
    models: { items: each((name, i) => model({ id: i, name, owner: name, description: name, labels: [name], moving: { [name]: i + 1 } })), after: null },
    'storage/usage': { ...storage('user'), items: each(name => ({ ...storage('user').items[0]!, name, owner: name })), warnings: NAMES },
    workspaces: { items: each((name, i) => workspace(i, { name, owner: name, description: name })), after: null },
    schedules: { items: each((name, i) => schedule(i, { name, owner: name, notebook: name, cron: name, time_zone: name, reason: name, note: name, last_task: `shell-${i}` })), next: null },
    'alerts/rules': { items: each((name, i) => rule(i, { scope: 'experiment', scope_id: i, scope_name: name, webhook: i })), next: null },
    'alerts/email': email({ set_by: NAMES[0]!, address: 'a@b.org', error: NAMES[2]! }),
    webhooks: { items: each((name, i) => webhook(i, { name, owner: me.name, url: name, error: name })), next: null },
    templates: { items: each((name, i) => template({ name, reference: `${name}:${i}`, base: name, description: name, set_by: name })), after: null },
    tokens: { items: each((subject, i) => ({ id: `t${i}`, kind: 'agent', subject, created_at: 1e9, expires_at: null })) },
    audit: { items: each(item), next: null },
    'master/logs': { items: each((text, id) => ({ id, at: 1e9, level: 'info', logger: text, text })), last: NAMES.length, dropped: 0 },
    service: { ok: true, version: '0.1.0', started_at: 1e9, items: each((detail, i) => ({ name: `part ${i}`, ok: true, detail })) }
  };
}

beforeEach(() => {
  window.scrollTo = () => undefined;
  // jsdom lays nothing out: a table of no height would have no rows.
  Object.defineProperty(HTMLElement.prototype, 'clientHeight', { configurable: true, get: () => 600 });
});

test.each(VIEWS)('everybody is text in the view %s, and no link leads elsewhere', async view => {
  const page: PageInfo = { base: '/services/detlab/', hub: '/hub/', xsrf: 't', user: NAMES[7]!, admin: true, version: '0.1.0', schema: '/s', bundleLimit: 1e6 };
  window.history.replaceState(null, '', page.base + (view === 'work' ? '' : view));
  const { container } = render(<App page={page} api={new FakeApi(answers()) as unknown as HubApi} router={new Router(page.base)} />);
  const main = container.querySelector('main')!;
  await waitFor(() => expect(main.textContent).toContain(visible(NAMES.at(-1)!)), { timeout: 10_000 });
  for (const name of NAMES) expect(main.textContent).toContain(visible(name));
  expect(container.querySelector('header')!.textContent).toContain('ada⟨U+202E⟩gnp.nimda⟨U+202C⟩');
  expect(container.querySelector('img, script, iframe, [onerror], [onmouseover]')).toBeNull();
  expect(container.textContent).not.toMatch(SLY);
  for (const element of container.querySelectorAll('[aria-label], [title]')) {
    expect(`${element.getAttribute('aria-label')} ${element.getAttribute('title')}`).not.toMatch(SLY);
  }
  for (const link of container.querySelectorAll('a')) {
    expect(new URL(link.href).origin, link.outerHTML).toBe(window.location.origin);
    expect(new URL(link.href).pathname, link.outerHTML).toMatch(/^\/(services\/detlab|hub|api)\//);
  }
});

// a server of ".." has no address anywhere: to browsers the quoted name is a step up, too
test.each(NAMES.filter(name => name !== '..'))('the server of %j is opened by a link that is quoted once', async name => {
  const server = task({ id: 'shell-1', kind: 'shell', owner: name, name, url: `/user/${encodeURIComponent(name)}/sh/` });
  const { done, container } = show(<Started id="shell-1" kind="shell" onClose={() => undefined} />, { overview: overview({ tasks: [server] }) });
  const to = (await screen.findByRole('link', { name: 'Open' })).getAttribute('href')!;
  const [, hub, user, who, own] = to.split('/');
  expect([hub, user, decodeURIComponent(who!), own]).toEqual(['hub', 'user', name, 'sh']);
  expect(new URL(to, 'http://here').pathname).toBe(to);
  expect(done).toEqual([`open ${server.url}`]);
  expect(container.textContent).toContain(visible(name));
});
