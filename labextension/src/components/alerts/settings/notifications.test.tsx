import { screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import axe from 'axe-core';
import { describe, expect, it } from 'vitest';

import { email, rule, webhook } from '../../../harness/told';
import { ApiError } from '../../../state/api';
import type { WebhookView } from '../../../state/wire';
import { overview } from '../../../testing/fixtures';
import { show, type Shown } from '../../../testing/app';
import { NotificationsPage } from './NotificationsPage';
import { draftProblem, requestOf } from './Rules';
import { ruleWords } from './rulewords';
import { hostOf } from './Webhooks';

const HOSTILE = '<img src=x onerror="window.hurt=1">\u202e\u001b[31m';

async function page(answers: Record<string, unknown> = {}): Promise<Shown> {
  const shown = show(<NotificationsPage />, {
    overview: overview(), 'alerts/rules': { items: [], next: null }, 'alerts/email': email({ user: 'ada' }), webhooks: { items: [], next: null }, ...answers
  });
  await screen.findByRole('button', { name: 'Add the rule' });
  return shown;
}

const mine = (id: number, over: Partial<WebhookView> = {}): WebhookView => webhook(id, { owner: 'ada', ...over });

describe('rules', () => {
  it('are listed as text, deleted after a question, and name what they look at', async () => {
    const rules = [rule(1, { owner: 'ada' }), rule(2, { kind: 'waiting', amount: 7200, scope: 'workspace', scope_id: 7, scope_name: HOSTILE, webhook: 3 })];
    const { api, done, container } = await page({ 'alerts/rules': { items: rules, next: null }, webhooks: { items: [mine(3, { name: HOSTILE })], next: null }, 'DELETE alerts/rules/2': rules[1] });
    const table = screen.getByRole('region', { name: 'Rules' });
    expect(within(table).getAllByRole('row')).toHaveLength(3);
    expect(table.textContent).toContain('Waiting for 120 minutes');
    expect(table.textContent).toContain('⟨U+202E⟩');
    expect(document.querySelector('img')).toBeNull();
    expect((await axe.run(container)).violations).toEqual([]);
    await userEvent.click(within(table).getByRole('button', { name: /rule 2/ }));
    await waitFor(() => expect(api.asked).toContain('DELETE alerts/rules/2'));
    expect(done.some(one => one.startsWith('confirm Delete the rule'))).toBe(true);
  });

  it('are made by kind, amount and scope; what the master refuses stands in the form', async () => {
    const { api } = await page({ 'POST alerts/rules': new ApiError(404, { code: 'not_found', message: 'there is no such workspace', hint: 'det workspace list' }) });
    await userEvent.selectOptions(screen.getByLabelText('When'), 'waiting');
    await userEvent.type(screen.getByLabelText('Amount in minutes'), '90');
    await userEvent.selectOptions(screen.getByLabelText('Of'), 'workspace');
    expect(screen.getByRole('button', { name: 'Add the rule' }).getAttribute('aria-disabled')).toBe('true');
    await userEvent.type(screen.getByLabelText('Workspace'), 'ada/vision');
    await userEvent.click(screen.getByRole('button', { name: 'Add the rule' }));
    expect((await screen.findByRole('alert')).textContent).toContain('there is no such workspace');
    expect(api.bodies).toEqual([{ kind: 'waiting', amount: 5400, experiment_id: null, workspace: 'ada/vision', project: '', bell: true, email: false, webhook: null }]);
  });

  it('say what is missing', () => {
    const draft = { kind: 'improved', amount: '0', pattern: '', scope: 'owner', experiment: '', workspace: '', project: '', bell: true, email: false, webhook: '' } as const;
    expect(draftProblem(draft)).toBe('The amount must be a number above 0.');
    expect(draftProblem({ ...draft, amount: '', scope: 'experiment', experiment: 'x' })).toBe('Enter the id of an experiment, a number.');
    expect(draftProblem({ ...draft, amount: '', bell: false })).toBe('Choose how you are told.');
    expect(draftProblem({ ...draft, kind: 'log', amount: '' })).toBe('Enter what is looked for in lines.');
    expect(requestOf({ ...draft, kind: 'log', amount: '3', pattern: ' nan ' })).toMatchObject({ kind: 'log', amount: null, pattern: ' nan ' });
    expect(ruleWords({ kind: 'log', amount: null, pattern: HOSTILE })).toContain('A line of output fits <img src=x onerror="window.hurt=1">⟨U+202E⟩');
    expect(requestOf({ ...draft, amount: '2' })).toMatchObject({ kind: 'improved', amount: 2, experiment_id: null });
  });
});

describe('the address', () => {
  it('gets a code, which confirms it', async () => {
    let now = email({ user: 'ada' });
    const { api } = await page({
      'GET alerts/email': () => now, 'PUT alerts/email': () => (now = { ...now, pending: 'ada@example.org', code_until: 2e9 }),
      'POST alerts/email/confirm': () => (now = { ...now, pending: '', address: 'ada@example.org', set_by: 'ada' })
    });
    await userEvent.type(screen.getByLabelText('Your address'), 'ada@example.org{Enter}');
    await userEvent.type(await screen.findByLabelText('The code that came'), 'k7mq-9xwd-4tzp{Enter}');
    expect(await screen.findByText(/Sent: 0/)).toBeTruthy();
    expect(api.bodies).toEqual([{ address: 'ada@example.org' }, { code: 'k7mq-9xwd-4tzp' }]);
    expect(screen.getByRole('checkbox', { name: 'e-mail' })).toBeTruthy(); // rules may tell by it now
  });

  it('is not asked for where no mail is sent, and a wrong code is told', async () => {
    await page({ 'alerts/email': email({ offered: false }) });
    expect(screen.getByText(/This cluster sends no e-mail/)).toBeTruthy();
    expect(screen.queryByLabelText('Your address')).toBeNull();
    document.body.innerHTML = '';
    await page({ 'alerts/email': email({ pending: 'a@b.org' }), 'POST alerts/email/confirm': new ApiError(409, { message: 'this is not the code' }) });
    await userEvent.type(screen.getByLabelText('The code that came'), 'x{Enter}');
    expect((await screen.findByRole('alert')).textContent).toContain('this is not the code');
  });
});

describe('webhooks', () => {
  it('show their secret once, and never the path of their address', async () => {
    let items: WebhookView[] = [webhook(2, { owner: 'ben', name: 'of another' })];
    const { container, api } = await page({
      webhooks: () => ({ items, next: null }),
      'POST webhooks': () => { items = [...items, mine(5, { url: 'https://ci.example.com/path' })]; return { ...items[1], secret: 's3cret' }; }
    });
    expect(screen.queryByText('of another')).toBeNull(); // an administrator's list has those of everybody
    await userEvent.click(screen.getByRole('button', { name: 'New webhook …' }));
    await userEvent.type(screen.getByLabelText('Name'), 'ci');
    await userEvent.type(screen.getByLabelText('Address'), 'https://ci.example.com/path');
    await userEvent.click(screen.getByRole('button', { name: 'Create' }));
    expect(await screen.findByText('s3cret')).toBeTruthy();
    expect(api.bodies[0]).toMatchObject({ name: 'ci', format: 'default', triggers: ['completed', 'failed'] });
    expect((await screen.findByRole('region', { name: 'Webhooks' })).textContent).not.toContain('/path');
    expect((await axe.run(container)).violations).toEqual([]);
    await userEvent.click(screen.getByRole('button', { name: 'Done' }));
    expect(screen.queryByText('s3cret')).toBeNull();
  });

  it('are tested and deleted, and their calls shown', async () => {
    const hook = mine(5, { failed: 2, error: HOSTILE });
    const call = { id: 1, event: 'CUSTOM', title: HOSTILE, created_at: 1, due_at: null, attempts: 30, error: 'no answer' };
    const { done, api } = await page({
      webhooks: { items: [hook], next: null }, 'webhooks/5/calls': { items: [call], next: null }, 'POST webhooks/5/test': hook, 'webhooks/5': { ...hook, delivered: 1 }, 'DELETE webhooks/5': hook
    });
    await userEvent.click(await screen.findByRole('button', { name: 'Calls of ci' }));
    expect((await screen.findByRole('list', { name: 'Calls of ci' })).textContent).toContain('given up');
    expect(document.querySelector('img')).toBeNull();
    await userEvent.click(screen.getByRole('button', { name: 'Test ci' }));
    await waitFor(() => expect(done).toContain('notify ci has taken the call.'));
    await userEvent.click(screen.getByRole('button', { name: /Delete … ci/ }));
    await waitFor(() => expect(api.asked).toContain('DELETE webhooks/5'));
  });

  it('name their host alone', () => {
    expect(hostOf('https://hooks.slack.com/services/T0/B0/x')).toBe('hooks.slack.com');
    expect(hostOf('hooks.slack.com')).toBe('hooks.slack.com');
    expect(hostOf('')).toBe('–');
  });
});

it('who may only read has no forms', async () => {
  const me = { name: 'ada', scopes: ['custom:detlab:read'], admin: false };
  show(<NotificationsPage />, { overview: overview({ me }), 'alerts/rules': { items: [], next: null }, 'alerts/email': email(), webhooks: { items: [], next: null } });
  await screen.findByText('No rules yet.');
  await waitFor(() => expect(screen.queryByRole('button', { name: 'Add the rule' })).toBeNull());
});
