import { screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { expect, test } from 'vitest';

import { ApiError } from '../../state/api';
import { show } from '../../testing/app';
import { agent, experiment, holding, HOSTILE, overview, task } from './fixtures';
import { heldOn, holderOf } from './holders';
import { Nodes } from './Nodes';

test('the holder of a slot is told from its allocation', () => {
  const node = holding('node-1', { '0': '12.uuid.1', '1': '12.other.3', '2': 'notebook-1a2b.1', '3': '99.uuid.1' });
  const held = heldOn(node, [experiment()], [task()]);
  expect(held.map(one => [one.holder.what, one.holder.owner, one.slots.length])).toEqual([
    ['experiment 12', 'ada', 2],
    ['notebook-1a2b', 'ben', 1],
    ['experiment 99', '', 1]
  ]);
  expect(held[2]!.holder.place).toBeNull();
  expect(holderOf(agent().slots[0]!, [], [])).toBeNull();
});

test('slots of others are grey to who is no administrator', async () => {
  const node = holding('node-1', { '0': 'secret.1', '1': 'other.1', '2': '12.uuid.1' });
  show(<Nodes title="Cluster" />, { overview: overview({ agents: [node], experiments: [experiment({ owner: 'ada' })], tasks: [], me: { name: 'ada', scopes: [], admin: false } }) });
  const slots = within(await screen.findByRole('list', { name: 'Slots of node-1' })).getAllByRole('listitem');
  expect(slots.slice(0, 3).map(one => one.dataset.colour)).toEqual(['others', 'others', '0']);
  expect(screen.getByRole('list', { name: 'Slot holders' }).textContent).toContain('work of others, 2 slots');
});

test('an administrator sees who holds what and disables the node', async () => {
  const node = holding('node-1', { '0': '12.uuid.1', '1': '12.other.1' });
  const shown = show(<Nodes title="Nodes" manage />, {
    overview: overview({ agents: [node], experiments: [experiment({ name: HOSTILE })], tasks: [task()] }),
    'POST agents/node-1/disable': { ...node, enabled: false }
  });
  const article = await screen.findByRole('article', { name: 'Node node-1' });
  const holders = within(article).getByRole('list', { name: 'Slot holders' });
  expect(holders.textContent).toContain(`experiment 12 ${HOSTILE} of ada, 2 slots`);
  expect(holders.textContent).toContain('notes of ben, no slot');
  expect(article.querySelector('img')).toBeNull();
  await userEvent.click(screen.getByRole('button', { name: 'Disable … node-1' }));
  expect(shown.done).toEqual(['confirm Disable node-1?']);
  await screen.findByText('Running work continues; nothing new starts.');
  expect(shown.api.asked).toContain('POST agents/node-1/disable');
  expect(screen.getByRole('button', { name: 'Enable … node-1' })).toBeTruthy();
  await userEvent.click(screen.getByRole('button', { name: 'Drain … node-1' }));
  await waitFor(() => expect(shown.api.asked).toContain('POST agents/node-1/drain'));
  expect(shown.api.bodies).toContainEqual({});
});

test('a node that is drained says how far it is', async () => {
  const leaving = agent({ enabled: false, mode: 'draining', drain_until: 2e9 });
  const empty = agent({ id: 'node-2', enabled: false, mode: 'drained' });
  show(<Nodes title="Nodes" manage />, { overview: overview({ agents: [leaving, empty] }) });
  expect((await screen.findByRole('article', { name: 'Node node-1' })).dataset['state']).toBe('draining');
  expect(screen.getByRole('article', { name: 'Node node-2' }).dataset['state']).toBe('drained');
  await screen.findByText('Nothing is running and nothing new starts: the machine can be switched off.');
});

test('removing asks first, and a refusal is told', async () => {
  const gone = new ApiError(409, { code: 'conflict', message: 'it is needed', hint: 'Wait.' });
  const shown = show(<Nodes title="Nodes" manage />, { overview: overview(), 'DELETE agents/node-1': gone });
  await userEvent.click(await screen.findByRole('button', { name: 'Remove … node-1' }));
  await waitFor(() => expect(shown.done).toContain('notify it is needed. Wait.'));
  expect(shown.done[0]).toBe('confirm Remove node-1?');
});

test('who does not administrate has no buttons', async () => {
  show(<Nodes title="Cluster" />, { overview: overview() });
  await screen.findByRole('article');
  expect(screen.queryByRole('button')).toBeNull();
});

test('without nodes the view says what to do', async () => {
  show(<Nodes title="Nodes" manage />, { overview: overview({ agents: [] }) });
  expect(await screen.findByText('No nodes are connected: nothing can run.')).toBeTruthy();
});

test('an enrolment token is shown once, with the command', async () => {
  const answers = { overview: overview(), 'POST agents/enrolments': { token: 'dtenrol_secret', expires_at: 2e9 } };
  const shown = show(<Nodes title="Nodes" manage />, answers);
  await userEvent.click(await screen.findByRole('button', { name: 'Enrol a node …' }));
  await userEvent.selectOptions(screen.getByLabelText('Valid for'), '1 day');
  await userEvent.click(screen.getByRole('button', { name: 'Create token' }));
  expect((await screen.findByLabelText<HTMLTextAreaElement>('Token')).value).toBe('dtenrol_secret');
  expect(screen.getByLabelText<HTMLTextAreaElement>('Command').value).toContain('det agent run --master http://hub/services/detlab/');
  expect(shown.api.bodies).toEqual([{ ttl: 86_400 }]);
  await userEvent.click(screen.getByRole('button', { name: 'Done' }));
  expect(screen.queryByText('dtenrol_secret')).toBeNull();
});

test('what a cluster says of a node and of its slots is shown, not that an administrator closed them', async () => {
  const plain = agent({ id: 'kube/gpu-1' });
  const off = (note: string) => plain.slots.map((slot, i) => (i < 2 ? slot : { ...slot, enabled: false, note }));
  const cordoned = 'cordoned, so it takes no new pods';
  const shut = plain.slots.map(slot => ({ ...slot, enabled: false, note: cordoned }));
  const agents = [
    agent({ id: 'kube', slots: [] }), { ...plain, slots: off('used by others on the cluster') },
    agent({ id: 'kube/gpu-2', slots: shut, note: cordoned }), agent({ id: 'kube/gpu-3', note: HOSTILE, state: 'lost' }),
    agent({ id: 'plain', slots: off('') })
  ];
  show(<Nodes title="Cluster" />, { overview: overview({ agents }) });
  const shared = await screen.findByRole('article', { name: 'Node kube/gpu-1' });
  expect(shared.dataset['state']).toBe('connected');
  expect(shared.textContent).toContain('0 of 4 slots in use, 2 used by others on the cluster, EPYC');
  expect(within(shared).getByTitle('slot 3, cpu: used by others on the cluster').dataset['off']).toBe('note');
  const closed = screen.getByRole('article', { name: 'Node kube/gpu-2' });
  expect(closed.dataset['state']).toBe('closed');
  expect(closed.textContent?.match(new RegExp(cordoned, 'g'))).toHaveLength(5); // the note once, and of each slot for screen readers
  expect(screen.getByRole('article', { name: 'Node kube/gpu-3' }).textContent).toContain(HOSTILE);
  expect(document.querySelector('img')).toBeNull();
  expect(screen.getByRole('article', { name: 'Node kube' }).textContent).toContain('Connects 3 nodes of its cluster');
  expect(screen.getByRole('article', { name: 'Node plain' }).textContent).toContain('0 of 4 slots in use, 2 disabled');
});
