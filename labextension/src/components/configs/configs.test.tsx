import { screen, waitFor } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import axe from 'axe-core';
import { expect, it } from 'vitest';

import { policy, template } from '../../harness/told';
import { ApiError } from '../../state/api';
import { overview } from '../../testing/fixtures';
import { show, type Shown } from '../../testing/app';
import { workspace } from '../workspaces/fixtures';
import { policyText } from './Policies';
import { TemplatesPage } from './TemplatesPage';

const HOSTILE = '<img src=x onerror="window.hurt=1">\u202e\u001b[31m';
const ADMIN = { name: 'root', scopes: ['custom:detlab:admin'], admin: true };

function page(answers: Record<string, unknown> = {}, admin = false): Shown {
  return show(<TemplatesPage />, {
    overview: overview(admin ? { me: ADMIN } : {}), templates: { items: [], after: null }, workspaces: { items: [], next: null }, 'config-policies': policy(), ...answers
  });
}

it('lists templates with their YAML as text; only who may change them can', async () => {
  const items = [template({ owner: 'ada', description: HOSTILE }), template({ workspace: 'cluster', name: 'site', reference: 'cluster:site', owner: 'root' })];
  const { container, api } = page({ templates: { items, after: null }, 'templates/one': template({ config: { name: HOSTILE } }), 'DELETE templates/one': items[0] });
  await userEvent.click(await screen.findByRole('button', { name: 'Show alice/vision:a100' }));
  expect((await screen.findByLabelText('YAML of alice/vision:a100')).textContent).toContain('<img');
  expect(document.querySelector('img')).toBeNull();
  expect((await axe.run(container)).violations).toEqual([]);
  expect(screen.getByRole('button', { name: 'Delete … cluster:site' }).getAttribute('aria-disabled')).toBe('true');
  await userEvent.click(screen.getByRole('button', { name: 'Delete … alice/vision:a100' }));
  await waitFor(() => expect(api.asked).toContain('DELETE templates/one?name=alice%2Fvision%3Aa100'));
});

it('makes a template; what the master objects to is named by its path', async () => {
  const problems = [{ path: 'resources.slots_per_trial', message: 'must be a whole number', hint: null, level: 'error' as const }];
  const { api } = page({ 'PUT templates': new ApiError(422, { message: 'the template has 1 mistake', problems }) });
  await userEvent.click(await screen.findByRole('button', { name: 'New template …' }));
  await userEvent.type(screen.getByLabelText('Name'), 'gpu');
  await userEvent.type(screen.getByLabelText('A part of a config, as YAML'), 'resources:{enter}  slots_per_trial: x');
  await userEvent.click(screen.getByRole('button', { name: 'Save' }));
  expect((await screen.findByRole('alert')).textContent).toContain('resources.slots_per_trial: must be a whole number');
  expect(api.bodies[0]).toMatchObject({ name: 'gpu', workspace: '', create: true });
});

it('sets and deletes a policy as YAML, of the cluster or of a workspace, and tells what runs beyond it', async () => {
  const set = policy({ set_at: 1, set_by: 'root', constraints: { resources: { max_slots: 8 }, priority_limit: null } });
  const warned = { ...set, warnings: [{ path: 'constraints', message: 'experiment 4 holds 16 slots', hint: null, level: 'warning' }] };
  const { api } = page({
    'config-policies?workload=experiment': set, workspaces: { items: [workspace(7, { name: HOSTILE, owner: 'root', may: 'own' })], next: null }, 'PUT config-policies': warned, 'DELETE config-policies': set
  }, true);
  await userEvent.click(await screen.findByRole('button', { name: 'Change … for experiments of the cluster' }));
  const field = screen.getByLabelText('Policy for experiments of the cluster, as YAML') as HTMLTextAreaElement;
  expect(field.value).toBe('constraints:\n  resources:\n    max_slots: 8\n');
  await userEvent.click(screen.getByRole('button', { name: 'Save' }));
  expect((await screen.findByText(/experiment 4 holds 16 slots/))).toBeTruthy();
  expect(api.bodies).toEqual([{ constraints: { resources: { max_slots: 8 } }, workload: 'experiment', workspace: '' }]);
  await userEvent.click(await screen.findByRole('button', { name: /that for experiments of the cluster/ }));
  await waitFor(() => expect(api.asked).toContain('DELETE config-policies?workload=experiment'));
  await userEvent.selectOptions(screen.getByLabelText('Of'), '7');
  await waitFor(() => expect(api.asked).toContain('GET config-policies?workload=tasks&workspace=7'));
  expect(document.querySelector('img')).toBeNull();
});

it('is read-only where the user decides nothing', async () => {
  page({ 'config-policies': policy({ set_at: 1, invariant_config: { name: 'x' } }) });
  expect((await screen.findByRole('button', { name: 'Change … for experiments of the cluster' })).getAttribute('aria-disabled')).toBe('true');
  expect(policyText(policy())).toBe('');
});
