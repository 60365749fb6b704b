import { act, cleanup, fireEvent, screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import axe from 'axe-core';
import { beforeEach, describe, expect, it } from 'vitest';

import { ApiError } from '../../state/api';
import { show, Shown } from '../../testing/app';
import type { Question } from '../../state/context';
import type { ExperimentView } from '../../state/wire';
import { agent, experiment, NOW, overview, task, waiting } from '../../testing/fixtures';
import { Panel } from './Panel';
import { together } from './Queue';
import { matches, workList } from './work';
import { taskCode } from './workactions';

const HOSTILE = '<img src=x onerror="window.hurt=1">{{7*7}}\u202e';

async function panel(over = {}, answers: Record<string, unknown> = {}): Promise<Shown> {
  const shown = show(<Panel />, { overview: overview(over), ...answers });
  await screen.findByText('My work');
  return shown;
}

const menuOf = async (name: RegExp): Promise<HTMLElement> => {
  await userEvent.click(screen.getByRole('button', { name }));
  return screen.getByRole('menu');
};

describe('the panel', () => {
  beforeEach(() => localStorage.clear());

  it('shows my work, the queue and the cluster', async () => {
    await panel({ experiments: [experiment(1, { best: { trial_id: 3, trial_index: 0, steps_completed: 9, value: 0.125, checkpoint: null, failed: false } })] });
    const work = screen.getByRole('list', { name: 'My work' });
    expect(within(work).getByText('search 1')).toBeTruthy();
    expect(within(work).getByText('best 0.1250')).toBeTruthy();
    expect(within(work).getByText('notebook nb-1')).toBeTruthy();
    expect(within(screen.getByRole('list', { name: 'Queue' })).getByText('needs 1 slot')).toBeTruthy();
    expect(screen.getByLabelText('slot 0: experiment 1 (you)')).toBeTruthy();
    expect(screen.getByLabelText('slot 1: free')).toBeTruthy();
  });

  it('says what a cluster tells of a node and of its slots', async () => {
    const shared = agent('kube/gpu-1');
    const shut = agent('kube/gpu-2', { note: `cordoned ${HOSTILE}` });
    const off = (view: typeof shared, note: string) => view.slots.map(slot => ({ ...slot, allocation_id: null, enabled: false, note }));
    await panel({
      agents: [
        { ...shared, slots: [{ ...shared.slots[0]!, allocation_id: null }, off(shared, 'used by others on the cluster')[1]!] },
        { ...shut, slots: off(shut, shut.note) }, agent('kube/gpu-3', { state: 'lost', note: 'not ready: no answer' })
      ]
    });
    const [first, second, third] = within(screen.getByRole('list', { name: 'Nodes' })).getAllByRole('listitem')
      .filter(item => item.classList.contains('det-item')).map(item => item.textContent ?? '');
    expect(first).toContain('1/2 slots free');
    expect(first).toContain('1 used by others on the cluster');
    expect(screen.getByLabelText('slot 1: used by others on the cluster')).toBeTruthy();
    expect(second).toContain('closedcordoned <img src=x onerror');
    expect(second).not.toContain('free');
    expect(third).toContain('lostnot ready: no answer');
    expect(document.querySelector('img')).toBeNull();
  });

  it('leaves archived experiments out, and shows them when the filter asks for them', async () => {
    const kept = experiment(1, { state: 'COMPLETED' });
    const gone = experiment(2, { state: 'COMPLETED', name: `old ${HOSTILE}`, archived_at: 5 });
    const { api, app } = await panel(
      { experiments: [kept, experiment(2, { state: 'COMPLETED' })] },
      { 'experiments?archived=only&limit=200': { items: [gone] }, 'POST experiments/2/edit': { ...gone, archived_at: null } }
    );
    act(() => app.store.learn({ experiment: gone }));
    const work = screen.getByRole('list', { name: 'My work' });
    expect(work.textContent).toContain('search 1');
    expect(work.textContent).not.toContain('search 2');
    fireEvent.change(screen.getByRole('searchbox'), { target: { value: 'state:archived old' } });
    await screen.findByRole('list', { name: 'Archived experiments' });
    expect(screen.queryByRole('list', { name: 'My work' })).toBeNull();
    expect(document.querySelector('.det-list img')).toBeNull();
    fireEvent.click(screen.getByRole('button', { name: 'Unarchive' }));
    await waitFor(() => expect(api.asked).toContain('POST experiments/2/edit'));
    expect(api.bodies).toEqual([{ archived: false }]);
    fireEvent.change(screen.getByRole('searchbox'), { target: { value: '' } });
    await waitFor(() => expect(screen.getByRole('list', { name: 'My work' }).textContent).toContain('old'));
  });

  it('shows shells and commands beside experiments, the progress of what goes on and the age of all', async () => {
    const now = Date.now() / 1000;
    await panel({
      experiments: [
        experiment(1, { progress: 0.425, created_at: now - 250 }),
        experiment(2, { state: 'COMPLETED', progress: 1, created_at: now - 9000, ended_at: now - 7500 })
      ],
      tasks: [
        task('sh-1', { kind: 'shell', name: 'brave-otter', created_at: now - 150, started_at: now - 100 }),
        task('cmd-1', {
          kind: 'command', name: 'tidy-lynx', server_name: null, url: null, slots_needed: 2, state: 'ERROR', created_at: now - 85_000,
          ended_at: now - 80_000
        })
      ]
    });
    const items = within(screen.getByRole('list', { name: 'My work' })).getAllByRole('listitem');
    expect(items.map(item => item.querySelector('.det-name')!.textContent)).toEqual(['brave-otter', 'search 1', 'search 2', 'tidy-lynx']);
    expect(items.map(item => item.querySelector('time')!.textContent)).toEqual(['for 1 min', '4 min ago', '2 h ago', '22 h ago']);
    expect(items.map(item => item.querySelector('time')!.title.split(' ')[0])).toEqual(['started', 'created', 'ended', 'ended']);
    expect(items.map(item => item.querySelector('.det-facts')!.textContent)).toEqual([
      expect.stringMatching(/running.*shell/), expect.stringContaining('trials'), expect.stringContaining('completed'),
      expect.stringMatching(/failed.*command.*2 slots/)
    ]);
    const bars = screen.getAllByRole('progressbar');
    expect(bars.map(bar => [bar.getAttribute('aria-label'), bar.getAttribute('aria-valuenow')])).toEqual([['Progress of experiment 1', '42']]);
    expect(items[1]!.contains(bars[0]!)).toBe(true);
  });

  it('marks an experiment that completed without a result, and says why', async () => {
    const warning = "trial 27 never reported 'loss' (its validations reported: accuracy)";
    await panel({
      experiments: [
        experiment(3, { state: 'COMPLETED', warnings: ["trial 28 never reported 'loss'"], created_at: NOW - 5 }), // it validates nothing: no mistake
        experiment(2, { state: 'COMPLETED', warnings: [warning], created_at: NOW - 9 }),
        experiment(1, { state: 'COMPLETED', best: { trial_id: 3, trial_index: 0, steps_completed: 9, value: 0.125, checkpoint: null, failed: false } })
      ],
      tasks: []
    });
    const items = within(screen.getByRole('list', { name: 'My work' })).getAllByRole('listitem');
    const badges = items.map(item => item.querySelector<HTMLElement>('.det-badge')!);
    expect(badges.map(badge => [badge.dataset['tone'], badge.textContent, badge.title])).toEqual([['good', '✓completed', ''], ['warn', '!completed', warning], ['good', '✓completed', '']]);
    expect(items.map(item => item.querySelector('.det-reason')?.textContent)).toEqual([undefined, warning, undefined]);
  });

  it.each([null, { trial_id: 3, trial_index: 0, steps_completed: 9, value: 'Infinity' as unknown as number, checkpoint: null, failed: false }])('marks an experiment all of whose values are NaN or infinite (best %j)', async best => {
    const warning = "no finite value of 'loss' was reported";
    await panel({ experiments: [experiment(2, { state: 'COMPLETED', warnings: [warning], best })], tasks: [] });
    const badge = screen.getByRole('list', { name: 'My work' }).querySelector<HTMLElement>('.det-badge')!;
    expect([badge.dataset['tone'], badge.title]).toEqual(['warn', warning]);
  });

  it('does not say that trials run which are leaving a paused or ending experiment', async () => {
    const states = ['ACTIVE', 'PAUSED', 'STOPPING_KILLED'] as const;
    await panel({ experiments: states.map((state, i) => experiment(i + 1, { state })), tasks: [] });
    const facts = within(screen.getByRole('list', { name: 'My work' })).getAllByRole('listitem').map(item => item.querySelector('.det-facts')!.textContent);
    for (const words of ['0/4 trials, 2 running', '0/4 trials, 2 pausing', '0/4 trials, 2 stopping']) {
      expect(facts.filter(said => said!.includes(words)).length).toBe(1);
    }
  });

  it('says when what is idle will be ended', async () => {
    const now = Date.now() / 1000;
    const idle = { kind: 'tensorboard', last_activity: now - 3000 } as const;
    await panel({
      experiments: [],
      tasks: [
        task('a', { ...idle, cull_at: now + 270 }), task('b', { ...idle, cull_at: now - 5 }),
        task('c', { ...idle, cull_at: now + 270, state: 'COMPLETED', ended_at: now - 1 }), task('d', idle)
      ]
    });
    const said = ['a', 'b', 'c', 'd'].map(id => screen.getByText(`notebook ${id}`).closest('li')!.querySelector('.det-reason')?.textContent);
    expect(said).toEqual(['idle, will be ended in 5 min', 'idle, will be ended now', undefined, undefined]);
  });

  it('says whose GPUs do nothing, and when that ends', async () => {
    const now = Date.now() / 1000;
    await panel({
      experiments: [],
      tasks: [
        task('a', { gpus_idle_since: now - 3000 }), task('b', { gpus_idle_since: now - 3000, gpus_released_at: now + 270 }),
        task('c', { gpus_idle_since: now - 3000, state: 'COMPLETED', ended_at: now - 1 }), task('d')
      ]
    });
    const said = ['a', 'b', 'c', 'd'].map(id => screen.getByText(`notebook ${id}`).closest('li')!.querySelector('.det-reason')?.textContent);
    expect(said).toEqual(['GPUs at 0 %', 'GPUs at 0 %, will be ended in 5 min', undefined, undefined]);
  });

  it('says so where there is nothing', async () => {
    const { done } = await panel({ experiments: [], tasks: [], queue: [], agents: [] });
    expect(screen.getByText('Queue is empty.')).toBeTruthy();
    expect(screen.getByText('No nodes.')).toBeTruthy();
    const card = screen.getByRole('region', { name: 'Getting started' });
    await userEvent.click(within(card).getByRole('button', { name: 'New experiment' }));
    expect(done).toEqual(['navigate {"kind":"new"}']);
    expect(within(card).queryByRole('button', { name: /tutorial/ })).toBeNull(); // no notebooks here
    await userEvent.click(within(card).getByRole('button', { name: 'Dismiss' }));
    expect(screen.queryByRole('region', { name: 'Getting started' })).toBeNull();
    expect(screen.getByText('Nothing here yet.')).toBeTruthy();
  });

  it('leads a newcomer to the tutorial where there are notebooks', async () => {
    const done: string[] = [];
    show(<Panel />, { overview: overview({ experiments: [], tasks: [] }) }, { openTutorial: async () => void done.push('tutorial') });
    await userEvent.click(await screen.findByRole('button', { name: 'Open the tutorial' }));
    expect(done).toEqual(['tutorial']);
    cleanup();
    await panel({ experiments: [], tasks: [task('nb-1')] }); // the notebook server that they are in
    expect(screen.getByRole('region', { name: 'Getting started' })).toBeTruthy();
    expect(screen.getByText('notebook nb-1')).toBeTruthy();
    cleanup();
    await panel({ experiments: [], tasks: [task('c-1', { kind: 'command' })] });
    expect(screen.queryByRole('region', { name: 'Getting started' })).toBeNull();
  });

  it('filters by words', async () => {
    await panel({ experiments: [experiment(12, { name: 'digits' }), experiment(13, { name: 'letters', state: 'PAUSED' })] });
    await userEvent.type(screen.getByRole('searchbox'), 'paused letters');
    const work = screen.getByRole('list', { name: 'My work' });
    expect(within(work).queryByText('digits')).toBeNull();
    expect(within(work).getByText('letters')).toBeTruthy();
    await userEvent.type(screen.getByRole('searchbox'), ' nothing');
    expect(screen.getByText(/No work matches/)).toBeTruthy();
  });

  it('offers in a menu only what can be done, and says in one line why nothing can', async () => {
    const offered = (): (string | null)[] => within(screen.getByRole('menu')).getAllByRole('menuitem').map(item => item.textContent);
    await panel({
      experiments: [experiment(1, { state: 'COMPLETED', ended_at: NOW - 60, trials: {} }), experiment(2, { owner: 'bob', may: 'read' })],
      queue: []
    });
    await menuOf(/Actions of experiment 1/);
    expect(offered()).toEqual(['Open', 'Copy id', 'Insert code into the notebook', 'Remove from this list']);
    await userEvent.keyboard('{Escape}');
    await menuOf(/Actions of experiment 2/);
    const why = 'Read-only: bob can allow you to change it (det experiment share 2 --user … --write).';
    expect(offered()).toEqual(['Open', why, 'Logs of the best or first trial', 'TensorBoard', 'Copy id', 'Insert code into the notebook']);
    expect(screen.getByRole('menuitem', { name: /Read-only/ }).getAttribute('aria-disabled')).toBe('true');
    const shared = screen.getByText('search 2').closest('li')!;
    expect(shared.querySelector('.det-facts')!.textContent).toContain('of bob, read-only');
  });

  it('folds away what ended long ago, and what the user clears or removes; a filter still finds it', async () => {
    const failed = (id: number, ended: number): ExperimentView => experiment(id, { state: 'ERROR', ended_at: ended, created_at: ended - 60 });
    const experiments = [experiment(9), failed(8, NOW - 60), failed(7, NOW - 120), failed(6, NOW - 90_000), failed(5, NOW - 2_000_000)];
    const shown = (): string[] => within(screen.getByRole('list', { name: 'My work' })).queryAllByRole('listitem')
      .map(item => item.querySelector('.det-name')!.textContent!);
    const { unmount } = await panel({ experiments, tasks: [] });
    expect(shown()).toEqual(['search 9', 'search 8', 'search 7']);
    await menuOf(/Actions of experiment 8/);
    await userEvent.click(screen.getByRole('menuitem', { name: 'Remove from this list' }));
    expect(shown()).toEqual(['search 9', 'search 7']);
    await userEvent.click(screen.getByRole('button', { name: 'Clear ended' }));
    expect(shown()).toEqual(['search 9']);
    expect(screen.queryByRole('button', { name: 'Clear ended' })).toBeNull();
    const fold = screen.getByRole('button', { name: /4 older/ });
    expect(fold.getAttribute('aria-expanded')).toBe('false');
    await userEvent.click(fold);
    expect(shown()).toEqual(['search 9', 'search 8', 'search 7', 'search 6', 'search 5']);
    await userEvent.click(fold);
    await userEvent.type(screen.getByRole('searchbox'), 'state:error #6');
    expect(shown()).toEqual(['search 6']);
    unmount();
    await panel({ experiments: [...experiments, failed(10, NOW + 60)], tasks: [] }); // another day: what was cleared stays so
    expect(shown()).toEqual(['search 9', 'search 10']);
  });

  it('asks before a pause that loses the work of trials without a checkpoint', async () => {
    const trial = (id: number, over = {}): unknown => ({ id, allocation_state: 'RUNNING', latest_checkpoint: null, ...over });
    const items = [trial(3, { latest_checkpoint: 'c0ffee' }), trial(4), trial(5, { allocation_state: null })];
    let question: Question | null = null;
    const answers = { overview: overview(), 'experiments/1/trials': { items, next: null } };
    const { api } = show(<Panel />, answers, { confirm: async asked => { question = asked; return false; } });
    await screen.findByText('My work');
    await menuOf(/Actions of experiment 1/);
    await userEvent.click(screen.getByRole('menuitem', { name: 'Pause' }));
    await waitFor(() => expect(question).not.toBeNull());
    expect(question!).toMatchObject({ title: 'Pause experiment 1?', yes: 'Pause', danger: true });
    expect(question!.body).toMatch(/^Trial 4 has no checkpoint yet\. .* it starts over from step 0/);
    expect(api.asked).not.toContain('POST experiments/1/pause');
  });

  it('pauses at once where all is saved and asks before it kills', async () => {
    const { api, done } = await panel({}, {
      'experiments/1/trials': { items: [{ id: 3, allocation_state: 'RUNNING', latest_checkpoint: 'c0ffee' }], next: null },
      'POST experiments/1/pause': experiment(1, { state: 'PAUSED' }),
      'POST experiments/1/kill': experiment(1, { state: 'STOPPING_KILLED' })
    });
    await menuOf(/Actions of experiment 1/);
    await userEvent.click(screen.getByRole('menuitem', { name: 'Pause' }));
    expect(done).toEqual([]);
    await screen.findByText('paused');
    await menuOf(/Actions of experiment 1/);
    await userEvent.click(screen.getByRole('menuitem', { name: 'Kill' }));
    await screen.findByText('being killed');
    expect(done).toEqual(['confirm Kill experiment 1?']);
    expect(api.asked.filter(a => a.startsWith('POST'))).toEqual(['POST experiments/1/pause', 'POST experiments/1/kill']);
  });

  it('opens, kills, copies and inserts a notebook, a shell and a command by the menu of each', async () => {
    userEvent.setup(); // jsdom has no clipboard; this brings one
    const tasks = [
      task('nb-1'), task('sh-1', { kind: 'shell', name: 'brave-otter', url: null }),
      task('cmd-1', { kind: 'command', name: 'tidy-lynx', server_name: null, url: null })
    ];
    const { api, done } = await panel({ tasks }, {
      'POST tasks/cmd-1/kill': { ...tasks[2]!, state: 'STOPPING_KILLED', display_state: 'STOPPING_KILLED' }
    });
    const offered = (menu: HTMLElement): string[] => within(menu).getAllByRole('menuitem').map(item => item.textContent!);
    const choose = async (of: RegExp, name: string | RegExp): Promise<void> => {
      await menuOf(of);
      await userEvent.click(screen.getByRole('menuitem', { name }));
    };
    expect(offered(await menuOf(/Actions of notebook notebook nb-1/))).toEqual(['Open', 'Details and logs', 'Kill', 'Copy id', 'Insert code into the notebook']);
    await userEvent.click(screen.getByRole('menuitem', { name: 'Open' }));
    const shell = await menuOf(/Actions of shell brave-otter/);
    expect(offered(shell)[0]).toBe('Details and logs');
    const open = within(screen.getByText('brave-otter').closest('li')!).getByRole('button', { name: /^Open/ });
    expect(open.title).toBe('Open: It is still starting.');
    await userEvent.click(within(shell).getByRole('menuitem', { name: 'Details and logs' }));
    expect(done.splice(0)).toEqual(['open /user/ada/nb-1/lab', 'navigate {"kind":"task","id":"sh-1"}']);

    const command = /Actions of command tidy-lynx/;
    expect(offered(await menuOf(command))[0]).toBe('Details and logs'); // there is nothing to open
    await userEvent.keyboard('{Escape}');
    await choose(command, 'Copy id');
    await waitFor(() => expect(done).toEqual(['notify Copied cmd-1']));
    done.length = 0;
    expect(await navigator.clipboard.readText()).toBe('cmd-1');
    await choose(command, 'Insert code into the notebook');
    expect(done.splice(0)).toEqual([`insert ${taskCode('cmd-1')}`]);
    await choose(command, 'Kill');
    await screen.findByText('being killed');
    expect(done).toEqual(['confirm Kill this command?']);
    expect(api.asked.filter(a => a.startsWith('POST'))).toEqual(['POST tasks/cmd-1/kill']);
    await menuOf(command);
    expect(screen.queryByRole('menuitem', { name: /^Kill/ })).toBeNull();
  });

  it('tells a refusal', async () => {
    const { done } = await panel({}, {
      'POST experiments/1/pause': new ApiError(409, { code: 'conflict', message: 'it has ended', hint: null })
    });
    await menuOf(/Actions of experiment 1/);
    await userEvent.click(screen.getByRole('menuitem', { name: 'Pause' }));
    await waitFor(() => expect(done).toEqual(['notify Pause experiment 1: it has ended']));
  });

  it('is worked by keyboard alone', async () => {
    const { done } = await panel({ tasks: [] });
    screen.getByRole('button', { name: /Actions of experiment 2/ }).focus();
    await userEvent.keyboard('{Enter}{ArrowUp}{ArrowUp}{Home}{ArrowDown}');
    expect(document.activeElement!.textContent).toBe('Pause');
    await userEvent.keyboard('{Escape}');
    expect(screen.queryByRole('menu')).toBeNull();
    expect(document.activeElement!.getAttribute('aria-label')).toBe('Actions of experiment 2');
    await userEvent.keyboard('{Enter}{End}{Enter}');
    expect(done).toEqual(['insert %load_ext detlab_magics\n%det_watch 2']);
  });

  it('shows hostile names as text', async () => {
    await panel({
      experiments: [experiment(1, { name: HOSTILE, pending_reason: HOSTILE, trials: { ACTIVE: 1 } })],
      tasks: [task('nb-1', { name: HOSTILE, stage_message: HOSTILE })],
      queue: [waiting(1, { name: HOSTILE, reason: HOSTILE, owner: HOSTILE, mine: false })],
      agents: [agent(HOSTILE)]
    });
    expect(screen.getAllByText(HOSTILE.replace('\u202e', '⟨U+202E⟩')).length).toBeGreaterThan(4);
    expect(document.body.textContent).not.toContain('\u202e');
    expect(document.querySelector('img')).toBeNull();
    expect((window as unknown as { hurt?: number }).hurt).toBeUndefined();
  });

  it('says that the connection is lost, why and when it is tried again, keeps what it knew, and comes back', async () => {
    const { api } = await panel();
    act(() => api.fail('stream', new ApiError(503, { message: 'the `master` starts\u202e.', hint: 'see `det status`' })));
    const banner = (await screen.findByText(/Connection lost/)).closest('.det-banner')!;
    expect(banner.textContent).toMatch(/^Connection lost: the master starts⟨U\+202E⟩\. Trying again (in \d+ s\.|…)see det statusRetry now$/);
    expect(banner.querySelector('[aria-hidden]')!.textContent).toMatch(/^Trying again/);
    expect(screen.getByText('search 1')).toBeTruthy();
    await userEvent.click(screen.getByRole('button', { name: 'Retry now' }));
    await waitFor(() => expect(screen.queryByText(/Connection lost/)).toBeNull());
  });

  it('says why there is no cluster, and what to do', async () => {
    const answers: Record<string, unknown> = {
      overview: new ApiError(503, { code: 'cluster.not_found', message: 'no cluster is known', hint: 'det up' })
    };
    const { api } = show(<Panel />, answers);
    expect(await screen.findByText(/no cluster is known/)).toBeTruthy();
    expect(screen.getByText('det up')).toBeTruthy();
    expect(screen.getByText(/^Trying again/)).toBeTruthy();
    api.answers['overview'] = overview();
    fireEvent.click(screen.getByRole('button', { name: 'Try again' }));
    expect(await screen.findByText('search 1')).toBeTruthy();
  });

  it('has no serious accessibility finding', async () => {
    const { container } = await panel();
    const found = await axe.run(container, { rules: { 'color-contrast': { enabled: false }, region: { enabled: false } } });
    expect(found.violations.map(v => `${v.id}: ${v.nodes[0]!.html}`)).toEqual([]);
  });

  it('draws of 1,000 experiments first what can be seen, and tells each its place among all', async () => {
    const many = Array.from({ length: 1000 }, (_, i) => experiment(1000 - i));
    await panel({ experiments: many, tasks: [] });
    const list = screen.getByRole('list', { name: 'My work' });
    const inSight = Math.ceil(window.innerHeight / 60) + 1;
    expect(list.children.length).toBe(inSight);
    expect([...list.children].map(item => item.getAttribute('aria-posinset'))).toEqual(Array.from({ length: inSight }, (_, i) => String(i + 1)));
    expect(new Set([...list.children].map(item => item.getAttribute('aria-setsize')))).toEqual(new Set(['1000']));
    await waitFor(() => expect(list.children.length).toBe(50));
    fireEvent.click(screen.getByText('Show more (950)'));
    expect(screen.getByText('Show more (750)')).toBeTruthy();
    await waitFor(() => expect(list.children.length).toBeGreaterThan(50));
  });

  it('finds what is not drawn, and counts anew what a filter leaves', async () => {
    await panel({ experiments: Array.from({ length: 1000 }, (_, i) => experiment(1000 - i)), tasks: [] });
    await userEvent.type(screen.getByRole('searchbox'), '#7 random');
    const list = screen.getByRole('list', { name: 'My work' });
    expect(list.firstElementChild!.textContent).toContain('#799');
    expect(list.firstElementChild!.getAttribute('aria-setsize')).toBe('111'); // 7, 70 to 79, 700 to 799
    await userEvent.type(screen.getByRole('searchbox'), ' 77');
    expect([...list.children].map(item => item.getAttribute('aria-setsize'))).toEqual(Array(11).fill('11'));
  });

  it('makes the actions of an entry when its menu opens', async () => {
    const { app } = await panel({ experiments: [experiment(1)], tasks: [] });
    const offered = (name: string): boolean => screen.queryByRole('menuitem', { name }) !== null;
    await menuOf(/Actions of experiment 1/);
    expect([offered('Pause'), offered('Activate')]).toEqual([true, false]);
    await userEvent.keyboard('{Escape}');
    act(() => app.store.learn({ experiment: experiment(1, { state: 'PAUSED' }) }));
    await menuOf(/Actions of experiment 1/);
    expect([offered('Pause'), offered('Activate')]).toEqual([false, true]);
  });
});

describe('work', () => {
  it('puts the living first, newest first', () => {
    const all = workList([experiment(3, { state: 'ERROR' }), experiment(2)], [task('a', { created_at: 1 })]);
    expect(all.map(w => w.key)).toEqual(['e2', 'ta', 'e3']);
    expect(matches(all[0]!, '#2 running')).toBe(true);
    expect(all.map(work => matches(work, 'state:error'))).toEqual([false, false, true]);
    expect(all.map(work => matches(work, 'kind:experiment id:2'))).toEqual([true, false, false]);
    expect(all.map(work => matches(work, 'name:error') || matches(work, 'constructor:error'))).toEqual([false, false, false]);
  });

  it('puts neighbours of one experiment together', () => {
    const groups = together([waiting(1), waiting(2), waiting(3, { experiment_id: 9 }), waiting(4)]);
    expect(groups.map(g => g.map(i => i.place))).toEqual([[1, 2], [3], [4]]);
  });
});
