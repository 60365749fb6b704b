/** Workspaces, members and roles, projects with notes, moves, and views whose object is taken away. */

import { act, fireEvent, render, screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { ApiError } from '../../state/api';
import { show, type Shown } from '../../testing/app';
import { experiment, overview, task } from '../../testing/fixtures';
import type { TaskView } from '../../state/wire';
import { ExperimentView } from '../experiment';
import { Panel } from '../panel';
import { SettingsPage } from '../settings/SettingsPage';
import { chooseZone } from '../common/zone';
import { formatTime } from '../common';
import { member, PERSONAL, project, workspace } from './fixtures';
import { MoveExperiment } from './MoveExperiment';
import { ProjectPage } from './ProjectPage';
import { SharedPage } from './SharedPage';
import { WorkspacePage } from './WorkspacePage';
import { WorkspacesPage } from './WorkspacesPage';
import { TaskView as TaskPage } from '../trial';

const HOSTILE = '# Plan\n<script>window.hurt=1</script> <svg onload="window.hurt=1"> [x](javascript:window.hurt=1) ![i](https://evil.example/p.png)';
const conflict = (message: string, hint = ''): ApiError => new ApiError(409, { code: 'conflict', message, hint });
const gone = new ApiError(404, { code: 'not_found', message: 'there is no such thing' });

const VISION = workspace(7, { name: 'vision', description: 'of the group' });
const OVERVIEW = { overview: overview({ experiments: [], tasks: [], queue: [] }) };

/** Look at the page again, as after a pause: views then ask whether they may still be shown. */
function lookAgain(): void {
  act(() => void document.dispatchEvent(new Event('visibilitychange')));
}

describe('the list', () => {
  it('has mine and those that are shared with me apart, each with my role', async () => {
    const items = [PERSONAL, VISION, workspace(8, { name: 'speech', owner: 'ben', role: 'editor', may: 'write' })];
    show(<WorkspacesPage />, { ...OVERVIEW, workspaces: { items, after: null } });
    const others = await screen.findByRole('region', { name: 'Shared with you' });
    expect(within(others).getAllByRole('row')[1]!.textContent).toMatch(/ben\/speecheditor/);
    expect(within(screen.getByRole('region', { name: 'Yours' })).getAllByRole('row').map(row => row.textContent)).toEqual([
      expect.stringContaining('Workspace'), expect.stringContaining('Personal'), expect.stringMatching(/^visionof the groupadmin/)
    ]);
  });

  it('teaches what a workspace is for where there is only the personal one', async () => {
    show(<WorkspacesPage />, { ...OVERVIEW, workspaces: { items: [PERSONAL], after: null } });
    expect(await screen.findByText('No workspace is shared yet.')).toBeTruthy();
    expect(screen.queryByRole('table')).toBeNull();
  });

  it('tells at the field that a name is taken, also one that differs only in case or Unicode form', async () => {
    const { api, done } = show(<WorkspacesPage />, {
      ...OVERVIEW, workspaces: { items: [PERSONAL], after: null },
      'POST workspaces': () => { throw conflict('ada has made a workspace \'Vision\' already, with the id 7: names are the same if they differ only in case'); }
    });
    await screen.findByText('No workspace is shared yet.');
    await waitFor(() => expect(screen.getByRole('button', { name: 'New workspace …' }).getAttribute('aria-disabled')).toBeNull());
    fireEvent.click(screen.getByRole('button', { name: 'New workspace …' }));
    const name = screen.getByLabelText('Name');
    expect(document.activeElement).toBe(name); // what is typed at once is a name, and Enter does not close
    fireEvent.change(name, { target: { value: '12' } });
    fireEvent.click(screen.getByRole('button', { name: 'Create' }));
    expect((await screen.findByRole('alert')).textContent).toContain('digits only');
    fireEvent.change(name, { target: { value: 'VISION' } });
    fireEvent.click(screen.getByRole('button', { name: 'Create' }));
    await waitFor(() => expect(screen.getByRole('alert').textContent).toContain('differ only in case'));
    expect(name.getAttribute('aria-invalid')).toBe('true');
    expect(document.activeElement).toBe(name);
    api.answers['POST workspaces'] = VISION;
    fireEvent.change(name, { target: { value: 'vision' } });
    fireEvent.click(screen.getByRole('button', { name: 'Create' }));
    await waitFor(() => expect(done).toEqual(['navigate {"kind":"workspace","workspace":"7"}']));
  });
});

describe('who works alone', () => {
  it('meets no workspaces in the panel, and nowhere to move to', async () => {
    const view = experiment(5, { owner: 'ada' });
    const { unmount } = show(<Panel />, { ...OVERVIEW, workspaces: { items: [PERSONAL], after: null } });
    await screen.findByRole('button', { name: /^Models/ });
    expect(screen.queryByText(/workspace/i)).toBeNull();
    unmount();
    show(<ExperimentView id={5} />, { ...OVERVIEW, ...answersOf(view), workspaces: { items: [PERSONAL], after: null } });
    fireEvent.click(await screen.findByRole('button', { name: 'More actions of experiment 5' }));
    expect(screen.getByRole('menuitem', { name: /^Edit/ })).toBeTruthy();
    expect(screen.queryByRole('menuitem', { name: /^Move/ })).toBeNull();
  });

  it('has a section of them in the panel once there is one', async () => {
    const { done } = show(<Panel />, { ...OVERVIEW, workspaces: { items: [PERSONAL, VISION], after: null } });
    fireEvent.click(await screen.findByRole('button', { name: 'vision' }));
    expect(done).toEqual(['navigate {"kind":"workspace","workspace":"7"}']);
  });
});

describe('tasks', () => {
  const others = { owner: 'ben', may: 'read', opens: false, url: null, workspace: 'ada/vision', workspace_id: 7, project: 'digits', project_id: 3 } as const;
  const open = (items: TaskView[], more = {}): Shown =>
    show(<WorkspacePage workspace="7" tab="tasks" />, { ...OVERVIEW, 'workspaces/7': { ...VISION, tasks: items.length }, 'tasks?limit=50&workspace=7': { items, next: null }, ...more });

  it('are those of all members, with their state, and only the owner\'s and an admin\'s to end', async () => {
    const items = [task('sh-1', { ...others, kind: 'shell', name: HOSTILE }), task('nb-2', { ...others, owner: 'cleo', may: 'write', pending_reason: 'needs 4 slots' })];
    const { api } = open(items, { 'POST tasks/nb-2/kill': items[1] });
    const rows = within(await screen.findByRole('region', { name: 'Tasks' })).getAllByRole('row').slice(1);
    expect(rows.map(row => row.textContent)).toEqual([expect.stringMatching(/shell.*ben.*digits.*default/), expect.stringMatching(/notebook.*cleo/)]);
    expect(document.querySelector('script, svg[onload]')).toBeNull();
    fireEvent.click(within(rows[0]!).getByRole('button', { name: /^Actions of/ }));
    const barred = await screen.findByRole('menuitem', { name: /^Kill/ });
    expect(barred.getAttribute('aria-disabled')).toBe('true');
    fireEvent.keyDown(barred, { key: 'Escape' });
    fireEvent.click(within(rows[1]!).getByRole('button', { name: /^Actions of/ }));
    fireEvent.click(await screen.findByRole('menuitem', { name: /^Kill/ }));
    await waitFor(() => expect(api.asked).toContain('POST tasks/nb-2/kill'));
  });

  it('of others have a page with their state, and neither logs nor outputs nor a way in', async () => {
    const shell = task('sh-1', { ...others, kind: 'shell', config: { resources: { slots: 1 } } });
    const { api } = show(<TaskPage id="sh-1" />, { ...OVERVIEW, 'tasks/sh-1': shell });
    expect(await screen.findByText(/Only ben opens it/)).toBeTruthy();
    expect(screen.getAllByRole('tab').map(tab => tab.textContent)).toEqual(['Config']);
    expect(screen.queryByRole('button', { name: 'Open' })).toBeNull();
    expect(api.asked.filter(one => /logs|outputs/.test(one))).toEqual([]);
  });

  it('are taught where there are none', async () => {
    open([]);
    expect(await screen.findByText('det notebook start -w vision')).toBeTruthy();
  });
});

describe('members', () => {
  const members = { items: [member('ada', 'admin'), member('ben', 'viewer'), member('vision-team', 'editor', 'group')] };
  const open = (over = {}, answers = {}): Shown =>
    show(<WorkspacePage workspace="7" tab="members" />, { ...OVERVIEW, 'workspaces/7': { ...VISION, ...over }, 'workspaces/7/members': members, ...answers });

  it('are added, get another role, and are removed', async () => {
    const { api, done } = open({}, { 'PUT workspaces/7/members': members, 'DELETE workspaces/7/members': members });
    const form = await screen.findByRole('form', { name: 'Add a member' });
    fireEvent.change(within(form).getByLabelText('Name'), { target: { value: ' cleo ' } });
    fireEvent.change(within(form).getByLabelText('Role'), { target: { value: 'editor' } });
    fireEvent.click(within(form).getByRole('button', { name: 'Add' }));
    await waitFor(() => expect(api.bodies).toEqual([{ kind: 'user', name: 'cleo', role: 'editor' }]));
    fireEvent.change(await screen.findByLabelText('Role of group vision-team'), { target: { value: 'admin' } });
    await waitFor(() => expect(api.bodies.at(-1)).toEqual({ kind: 'group', name: 'vision-team', role: 'admin' }));
    fireEvent.click(await screen.findByRole('button', { name: /^Remove … user ben/ }));
    await waitFor(() => expect(api.asked).toContain('DELETE workspaces/7/members?kind=user&name=ben'));
    expect(done).toContain('confirm Remove user ben?');
  });

  it('the last admin can neither leave nor become less, and is told why and what to do', async () => {
    const refusal = conflict('ada is the last user who is an admin of workspace \'vision\', and would leave', 'Make somebody else an admin first');
    const { done } = open({}, { 'DELETE workspaces/7/members': () => { throw refusal; }, 'PUT workspaces/7/members': () => { throw refusal; } });
    fireEvent.click(await screen.findByRole('button', { name: /^Leave … user ada/ }));
    const told = await screen.findByRole('alert');
    expect(told.textContent).toContain('last user who is an admin');
    expect(told.textContent).toContain('Make somebody else an admin first');
    expect(done.some(one => one.startsWith('navigate'))).toBe(false);
    const role = screen.getByLabelText<HTMLSelectElement>('Role of user ada');
    fireEvent.change(role, { target: { value: 'viewer' } });
    await waitFor(() => expect(screen.getByLabelText<HTMLSelectElement>('Role of user ada').value).toBe('admin'));
  });

  it('a viewer changes nothing, and may leave', async () => {
    const { api, done } = show(<WorkspacePage workspace="7" tab="members" />, {
      overview: overview({ me: { name: 'ben', scopes: ['custom:detlab:write'], admin: false }, experiments: [], tasks: [], queue: [] }),
      'workspaces/7': { ...VISION, role: 'viewer', may: 'read' }, 'workspaces/7/members': members, 'DELETE workspaces/7/members': { items: [] }
    });
    await screen.findByText('vision-team');
    expect(screen.queryByRole('form', { name: 'Add a member' })).toBeNull();
    expect(screen.queryByRole('combobox')).toBeNull();
    expect(screen.getByRole('button', { name: 'New project …' }).getAttribute('aria-disabled')).toBe('true');
    fireEvent.click(screen.getByRole('button', { name: /^Leave … user ben/ }));
    await waitFor(() => expect(done).toContain('navigate {"kind":"workspaces"}'));
    expect(api.asked).toContain('DELETE workspaces/7/members?kind=user&name=ben');
  });
});

describe('defaults', () => {
  it('say who may set them; an admin of the workspace alone sets no environment', async () => {
    const defaults = { resource_pool: 'a100', checkpoint_storage: { type: 's3', bucket: 'vision' }, environment: { image: 'x' }, task_container_defaults: {}, template: '' };
    const { api } = show(<WorkspacePage workspace="7" tab="defaults" />, {
      ...OVERVIEW, 'workspaces/7': { ...VISION, defaults }, 'POST workspaces/7/edit': VISION
    });
    await screen.findByText('a100');
    expect(document.querySelector('main, .det-app')!.textContent).toMatch(/Environment.*Only administrators of the cluster may set it/s);
    fireEvent.click(screen.getByRole('button', { name: 'Change …' }));
    expect(screen.queryByLabelText('Environment')).toBeNull();
    fireEvent.change(screen.getByLabelText('Checkpoint storage'), { target: { value: 'type: [' } });
    fireEvent.click(screen.getByRole('button', { name: 'Save' }));
    expect((await screen.findByRole('alert')).textContent).toContain('YAML');
    fireEvent.change(screen.getByLabelText('Checkpoint storage'), { target: { value: 'type: s3\nbucket: other' } });
    fireEvent.click(screen.getByRole('button', { name: 'Save' }));
    await waitFor(() => expect(api.bodies).toEqual([{ defaults: { ...defaults, checkpoint_storage: { type: 's3', bucket: 'other' } } }]));
  });

  it('show the template and what every task container gets; an administrator of the cluster changes both, others the template', async () => {
    const defaults = { ...VISION.defaults, template: 'base', task_container_defaults: { startup_hook: 'module load cuda' } };
    const root = { overview: overview({ me: { name: 'root', scopes: ['custom:detlab:admin', 'custom:detlab:write'], admin: true } }) };
    const answers = { 'workspaces/7': { ...VISION, defaults }, 'POST workspaces/7/edit': VISION };
    const { api, unmount } = show(<WorkspacePage workspace="7" tab="defaults" />, { ...root, ...answers });
    await screen.findByText('base');
    expect(document.body.textContent).toContain('startup_hook: module load cuda');
    fireEvent.click(screen.getByRole('button', { name: 'Change …' }));
    fireEvent.change(screen.getByLabelText('Template'), { target: { value: ' wide ' } });
    fireEvent.change(screen.getByLabelText('Task container defaults'), { target: { value: '' } });
    fireEvent.click(screen.getByRole('button', { name: 'Save' }));
    await waitFor(() => expect(api.bodies).toEqual([{ defaults: { ...defaults, template: 'wide', task_container_defaults: {} } }]));
    unmount();
    show(<WorkspacePage workspace="7" tab="defaults" />, { ...OVERVIEW, ...answers });
    fireEvent.click(await screen.findByRole('button', { name: 'Change …' }));
    expect(screen.getByLabelText<HTMLInputElement>('Template').value).toBe('base');
    expect(screen.queryByLabelText('Task container defaults')).toBeNull();
  });
});

describe('a project', () => {
  const open = (over = {}, answers = {}): Shown => show(<ProjectPage workspace="7" project="3" />, {
    ...OVERVIEW, 'workspaces/7/projects/3': project(3, over), experiments: { items: [experiment(9)], next: null }, ...answers
  });

  it('shows notes as Markdown that runs nothing and loads nothing', async () => {
    open({ notes: HOSTILE });
    const notes = await screen.findByRole('note', { name: 'Notes' });
    expect(notes.querySelector('h2')!.textContent).toBe('Plan');
    expect(notes.querySelector('script, svg, img, iframe')).toBeNull();
    for (const link of notes.querySelectorAll('a')) expect(link.protocol).toMatch(/^https?:$/);
    expect((window as { hurt?: number }).hurt).toBeUndefined();
  });

  it('asks only for its own experiments', async () => {
    const { api } = open();
    await screen.findByText('search 9');
    expect(api.asked).toContain('GET experiments?limit=50&workspace=7&project=3');
  });

  it('keeps what a second person writes while a first one saves: they see both and decide', async () => {
    const { api } = open({ notes: 'first' }, { 'POST workspaces/7/projects/3/edit': () => { throw conflict('the notes have been changed since you opened them'); } });
    await waitFor(() => expect(screen.getByRole('button', { name: 'Edit notes' }).getAttribute('aria-disabled')).toBeNull());
    fireEvent.click(screen.getByRole('button', { name: 'Edit notes' }));
    const field = screen.getByLabelText<HTMLTextAreaElement>('Notes');
    fireEvent.change(field, { target: { value: 'of ada' } });
    api.answers['workspaces/7/projects/3'] = project(3, { notes: 'of ben <img src=x>' });
    fireEvent.click(screen.getByRole('button', { name: 'Save' }));
    const told = await screen.findByRole('alert');
    expect(told.textContent).toContain('of ben <img src=x>');
    expect(told.querySelector('img')).toBeNull();
    expect(field.value).toBe('of ada');
    expect(api.bodies).toEqual([{ notes: 'of ada', notes_before: 'first' }]);
    api.answers['POST workspaces/7/projects/3/edit'] = project(3, { notes: 'of ada' });
    fireEvent.click(screen.getByRole('button', { name: 'Replace theirs by mine' }));
    await waitFor(() => expect(api.bodies.at(-1)).toEqual({ notes: 'of ada', notes_before: 'of ben <img src=x>' }));
    await waitFor(() => expect(screen.queryByRole('form')).toBeNull());
  });

  it('goes on from theirs if one chooses so', async () => {
    const { api } = open({ notes: 'first' }, { 'POST workspaces/7/projects/3/edit': () => { throw conflict('changed'); } });
    await waitFor(() => expect(screen.getByRole('button', { name: 'Edit notes' }).getAttribute('aria-disabled')).toBeNull());
    fireEvent.click(screen.getByRole('button', { name: 'Edit notes' }));
    fireEvent.change(screen.getByLabelText('Notes'), { target: { value: 'of ada' } });
    api.answers['workspaces/7/projects/3'] = project(3, { notes: 'of ben' });
    fireEvent.click(screen.getByRole('button', { name: 'Save' }));
    fireEvent.click(await screen.findByRole('button', { name: 'Go on from theirs' }));
    expect(screen.getByLabelText<HTMLTextAreaElement>('Notes').value).toBe('of ben');
    api.answers['POST workspaces/7/projects/3/edit'] = project(3);
    fireEvent.click(screen.getByRole('button', { name: 'Save' }));
    await waitFor(() => expect(api.bodies.at(-1)).toEqual({ notes: 'of ben', notes_before: 'of ben' }));
  });

  it('is not deleted while something lies in it', async () => {
    open({ experiments: 2 });
    fireEvent.click(await screen.findByRole('button', { name: 'More actions of project project 3' }));
    expect(screen.getByRole('menuitem', { name: /^Delete/ }).textContent).toContain('2 experiments lie in it');
  });
});

describe('a move', () => {
  const places = { items: [PERSONAL, VISION, workspace(8, { name: 'seen', owner: 'ben', may: 'read', role: 'viewer' })], after: null };

  it('offers where one may put things, and says where it lies then', async () => {
    const moved = experiment(5, { workspace: 'vision', workspace_id: 7, project: 'digits', project_id: 3 });
    const onMoved = vi.fn();
    const { api, done } = show(<MoveExperiment experiment={experiment(5, { workspace_id: 1, project_id: 2 })} onClose={() => undefined} onMoved={onMoved} />, {
      ...OVERVIEW, workspaces: places, 'workspaces/1/projects': { items: [project(2, { name: 'Uncategorized' })], after: null },
      'workspaces/7/projects': { items: [project(3, { name: 'digits' })], after: null }, 'POST experiments/5/move': moved
    });
    const choice = await screen.findByLabelText<HTMLSelectElement>('Workspace');
    await waitFor(() => expect([...choice.options].map(option => option.text)).toEqual(['Personal', 'vision']));
    fireEvent.change(choice, { target: { value: '7' } });
    await screen.findByRole('option', { name: 'digits' });
    fireEvent.change(screen.getByLabelText('Project'), { target: { value: '3' } });
    fireEvent.click(screen.getByRole('button', { name: 'Move' }));
    await waitFor(() => expect(onMoved).toHaveBeenCalledOnce());
    expect(api.bodies).toEqual([{ workspace: '7', project: '3', keep_storage: false }]);
    expect(done.at(-1)).toContain('vision, project digits');
  });

  it('to where checkpoints are stored elsewhere is refused until it is said that they may stay', async () => {
    const { api } = show(<MoveExperiment experiment={experiment(5, { workspace_id: 7 })} onClose={() => undefined} onMoved={() => undefined} />, {
      ...OVERVIEW, workspaces: places, 'workspaces/7/projects': { items: [], after: null },
      'POST experiments/5/move': () => { throw conflict('experiment 5 lies in a workspace whose storage is another'); }
    });
    await screen.findByRole('option', { name: 'vision' });
    expect(screen.queryByRole('checkbox')).toBeNull();
    fireEvent.click(screen.getByRole('button', { name: 'Move' }));
    fireEvent.click(await screen.findByRole('checkbox', { name: /Leave its checkpoints/ }));
    fireEvent.click(screen.getByRole('button', { name: 'Move' }));
    await waitFor(() => expect(api.bodies.at(-1)).toMatchObject({ keep_storage: true }));
  });
});

function answersOf(view: ReturnType<typeof experiment>): Record<string, unknown> {
  return {
    [`experiments/${view.id}`]: { ...view, config: {} }, [`experiments/${view.id}/trials`]: { items: [], next: null },
    [`experiments/${view.id}/curves`]: { experiment: view, trials: [], curves: [], cursor: 1, next: null, attempts: [], parents: [] },
    [`experiments/${view.id}/grants`]: { items: [] }
  };
}

describe('what is taken away while it is shown', () => {
  it('an experiment of another says so and leaves', async () => {
    const view = experiment(5, { owner: 'ben', may: 'write', name: 'secret search', state: 'COMPLETED' });
    const { api, done } = show(<ExperimentView id={5} />, { ...OVERVIEW, ...answersOf(view) }, { host: 'hub' });
    await screen.findByText('secret search');
    api.answers['experiments/5'] = () => { throw gone; };
    lookAgain();
    await screen.findByRole('heading', { name: 'You can no longer see experiment 5' });
    expect(screen.queryByText('secret search')).toBeNull();
    fireEvent.click(screen.getByRole('button', { name: 'What others share with me' }));
    expect(done).toContain('navigate {"kind":"shared"}');
  });

  it('a role that became less closes the buttons', async () => {
    const view = experiment(5, { owner: 'ben', may: 'write', name: 'search', state: 'ACTIVE' });
    const { api } = show(<ExperimentView id={5} />, { ...OVERVIEW, ...answersOf(view) });
    await waitFor(() => expect(screen.getByRole('button', { name: 'Kill' }).getAttribute('aria-disabled')).toBeNull());
    api.answers['experiments/5'] = { ...view, may: 'read', config: {} };
    lookAgain();
    await waitFor(() => expect(screen.getByRole('button', { name: 'Kill' }).getAttribute('aria-disabled')).toBe('true'));
  });

  it('nobody asks again for what is one\'s own', async () => {
    const { api } = show(<ExperimentView id={5} />, { ...OVERVIEW, ...answersOf(experiment(5, { owner: 'ada', name: 'mine' })) });
    await screen.findByText('mine');
    const before = api.asked.filter(path => path === 'GET experiments/5').length;
    lookAgain();
    await act(() => new Promise(done => window.setTimeout(done, 20)));
    expect(api.asked.filter(path => path === 'GET experiments/5').length).toBe(before);
  });

  it('a workspace and a project say so, too', async () => {
    const one = show(<WorkspacePage workspace="7" />, { ...OVERVIEW, 'workspaces/7': VISION, 'workspaces/7/projects': { items: [project(3)], after: null } });
    await screen.findByText('project 3');
    one.api.answers['workspaces/7'] = () => { throw gone; };
    lookAgain();
    await screen.findByRole('heading', { name: 'You can no longer see workspace vision' });
    expect(screen.queryByText('project 3')).toBeNull();
    one.unmount();
    const two = show(<ProjectPage workspace="7" project="3" />, { ...OVERVIEW, 'workspaces/7/projects/3': project(3, { notes: 'plans' }), experiments: { items: [], next: null } });
    await screen.findByText('plans');
    two.api.answers['workspaces/7/projects/3'] = () => { throw gone; };
    // The master says so at once; an event that is not about rights asks nothing.
    const asked = two.api.asked.length;
    act(() => two.api.say('stream', { id: 20, kind: 'cursor', time: 0, experiment_id: null, trial_id: null, task_id: null, data: {} }));
    expect(two.api.asked.length).toBe(asked);
    act(() => two.api.say('stream', { id: 21, kind: 'cursor', time: 0, experiment_id: null, trial_id: null, task_id: null, data: { rights: true } }));
    await screen.findByRole('heading', { name: 'You can no longer see project project 3' });
    expect(screen.queryByText('plans')).toBeNull();
  });
});

describe('what others share with me', () => {
  it('asks for what is of others, and teaches where there is nothing', async () => {
    const { api } = show(<SharedPage />, { ...OVERVIEW, workspaces: { items: [], after: null }, experiments: { items: [], next: null }, models: { items: [], after: null } });
    await screen.findByText('Nobody shares an experiment with you.');
    expect(api.asked).toContain(`GET experiments?limit=50&filter=${encodeURIComponent('owner != me')}`);
  });

  it('shows what is shared while it is open', async () => {
    const { api } = show(<SharedPage />, { ...OVERVIEW, workspaces: { items: [], after: null }, experiments: { items: [], next: null }, models: { items: [], after: null } });
    await screen.findByText('Nobody shares an experiment with you.');
    const view = experiment(9, { owner: 'ben' });
    api.answers.experiments = { items: [view], next: null };
    await waitFor(() => expect(api.streams).toContain('stream'));
    act(() => api.say('stream', { id: 20, kind: 'experiment', time: 0, experiment_id: 9, trial_id: null, task_id: null, data: view }));
    await screen.findByText('search 9');
  });

  it('a name in the filter stays a text in it', async () => {
    const { api } = show(<SharedPage />, { ...OVERVIEW, workspaces: { items: [], after: null }, experiments: { items: [experiment(9)], next: null }, models: { items: [], after: null } });
    await screen.findByText('search 9');
    await userEvent.type(screen.getByLabelText('Filter by name'), 'a" or id > 0');
    await waitFor(() => expect(api.asked).toContain(`GET experiments?limit=50&filter=${encodeURIComponent('owner != me and name contains "a\\" or id > 0"')}`));
  });
});

describe('settings', () => {
  beforeEach(() => window.localStorage.clear());
  afterEach(() => chooseZone('local'));

  it('choose the time zone of all times, and the colours where they are the page\'s own', async () => {
    let colours = 'system';
    show(<SettingsPage />, OVERVIEW, { host: 'hub', theme: { chosen: () => 'system', choose: choice => { colours = choice; } } });
    fireEvent.click(screen.getByRole('radio', { name: 'UTC' }));
    expect(formatTime(1e9)).toBe('2001-09-09 01:46:40 UTC');
    expect(window.localStorage.getItem('detlab:zone')).toBe('UTC');
    fireEvent.click(screen.getByRole('radio', { name: 'Dark' }));
    expect(colours).toBe('dark');
    fireEvent.click(screen.getByRole('radio', { name: 'Local time' }));
    expect(formatTime(1e9)).not.toContain('UTC');
  });

  it('leave the colours to JupyterLab there', () => {
    render(<div />);
    show(<SettingsPage />, OVERVIEW);
    expect(screen.queryByRole('radio', { name: 'Dark' })).toBeNull();
    expect(screen.getByText(/JupyterLab's/)).toBeTruthy();
  });
});
