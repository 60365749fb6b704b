/** The registry's views: what they ask, what they say, and that names and notes stay text. */

import { screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import axe from 'axe-core';
import { describe, expect, test } from 'vitest';

import { HOSTILE } from '../../harness/fixtures';
import * as made from '../../harness/registry';
import { ApiError } from '../../state/api';
import { show, type Shown } from '../../testing/app';
import { overview } from '../../testing/fixtures';
import { PERSONAL, workspace } from '../workspaces/fixtures';
import { ComparePage, ModelPage, ModelsPage, VersionPage } from '.';
import { Register } from './dialogs/Register';
import { findCommand } from './paths';
import { Origin } from './versions/Origin';
import { checkpoint } from '../../harness/fixtures';

const FIRST = 'models?limit=50';

function answers(over: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    overview: overview(), [FIRST]: { items: made.models(), after: null }, models: { items: [], after: null }, 'models/digits': made.model(),
    'models/digits/versions': { items: [5, 4, 3, 2, 1].map(number => made.version(number)), after: null }, 'models/digits/labels': { items: made.moves() },
    'models/digits/versions/5': made.version(5), 'models/digits/versions/5/lineage': made.lineage(), [`checkpoints/${made.version(5).checkpoint}`]: checkpoint(5),
    'models/digits/compare': made.comparison([3, 5]), ...over
  };
}

async function serious(shown: Shown): Promise<string[]> {
  const found = await axe.run(shown.container, { resultTypes: ['violations'], rules: { region: { enabled: false }, 'color-contrast': { enabled: false } } });
  return found.violations.map(one => `${one.id}: ${one.nodes[0]!.html}`);
}

const field = (name: string | RegExp): HTMLInputElement => screen.getByLabelText(name);
const button = (name: string | RegExp): HTMLElement => screen.getByRole('button', { name });
const press = (name: string | RegExp): Promise<void> => userEvent.click(button(name));

describe('the list', () => {
  test('has models with the labels that move, and opens one', async () => {
    const shown = show(<ModelsPage />, answers());
    const row = (await screen.findByRole('button', { name: 'digits' })).closest('tr')!;
    expect(row.textContent).toContain('staging → 5');
    expect(row.textContent).toContain('production → 3');
    expect(row.textContent).toContain('#vision');
    await userEvent.click(within(row).getByRole('button', { name: '3' }));
    await userEvent.click(within(row).getByRole('button', { name: 'digits' }));
    expect(shown.done).toEqual(['navigate {"kind":"version","model":"digits","version":3}', 'navigate {"kind":"model","name":"digits"}']);
    expect(await serious(shown)).toEqual([]);
  });

  test('is searched by name, label and owner, and shows archived ones when asked', async () => {
    const { api } = show(<ModelsPage />, answers());
    await screen.findByRole('button', { name: 'digits' });
    await userEvent.type(screen.getByRole('searchbox'), 'label:vision owner:a&b  dig it');
    await waitFor(() => expect(api.asked).toContain('GET models?limit=50&label=vision&owner=a%26b&name=dig%20it'));
    expect(await screen.findByText('No model fits.')).toBeTruthy();
    await press('Archived');
    await waitFor(() => expect(api.asked).toContain('GET models?limit=50&label=vision&owner=a%26b&name=dig%20it&archived=any'));
  });

  test('says how to register the first model', async () => {
    const shown = show(<ModelsPage />, answers({ [FIRST]: { items: [], after: null } }));
    expect(await screen.findByText('No models yet.')).toBeTruthy();
    expect(shown.container.textContent).toContain('det model create digits');
    expect(shown.container.textContent).toContain('%det_model');
    expect(screen.queryByRole('searchbox')).toBeNull();
    expect(await serious(shown)).toEqual([]);
  });

  test('shows more on request', async () => {
    const { api } = show(<ModelsPage />, answers({
      [FIRST]: { items: [made.model()], after: 9 }, 'models?limit=50&after=9': { items: [made.model({ id: 2, name: 'older' })], after: null }
    }));
    await userEvent.click(await screen.findByRole('button', { name: 'Show more' }));
    expect(await screen.findByRole('button', { name: 'older' })).toBeTruthy();
    expect(screen.queryByRole('button', { name: 'Show more' })).toBeNull();
    expect(api.asked).toContain('GET models?limit=50&after=9');
  });

  test('an error can be tried again', async () => {
    const { api } = show(<ModelsPage />, answers({ [FIRST]: new ApiError(503, { message: 'the database is being recovered' }) }));
    expect(await screen.findByText('the database is being recovered')).toBeTruthy();
    api.answers[FIRST] = { items: made.models(), after: null };
    await press('Try again');
    expect(await screen.findByRole('button', { name: 'digits' })).toBeTruthy();
  });

  test('a new model is made, and its name is judged before it is sent', async () => {
    const { api, done } = show(<ModelsPage />, answers({ 'POST models': made.model({ name: 'new one' }) }));
    await press('New model …');
    await userEvent.type(field('Name'), '12');
    await press('Create');
    expect(screen.getByRole('alert').textContent).toMatch(/digits only/);
    await userEvent.clear(field('Name'));
    await userEvent.type(field('Name'), 'new one');
    await userEvent.type(field(/^Labels/), 'a, b,a');
    await press('Create');
    await waitFor(() => expect(api.bodies).toEqual([{ name: 'new one', labels: ['a', 'b'] }]));
    expect(done).toEqual(['navigate {"kind":"model","name":"new one"}']);
  });
});

describe('finding versions', () => {
  const found = 'model-versions?limit=20&best=loss&smaller_is_better=true&where=label%20%3D%20vision';

  test('is best first by a metric among those that fulfil a condition, as the command has it', async () => {
    const shown = show(<ModelsPage />, answers({ [found]: { items: [made.version(5)], after: null } }));
    await press('Find versions …');
    expect(button('Find').getAttribute('aria-disabled')).toBe('true');
    await userEvent.type(field('Best by metric'), ' loss ');
    await userEvent.selectOptions(field('Better is'), 'smaller');
    await userEvent.type(field('Among'), 'label = vision{Enter}');
    const rows = within(await screen.findByRole('region', { name: 'Versions found' })).getAllByRole('row');
    expect(rows[0]!.textContent).toContain('loss');
    expect(rows[1]!.textContent).toMatch(/^digits@5.*staging.*1\.3\.0/);
    expect(shown.api.asked).toContain(`GET ${found}`);
    await userEvent.click(within(rows[1]!).getByRole('button', { name: 'digits@5' }));
    expect(shown.done).toContain('navigate {"kind":"version","model":"digits","version":5}');
    expect(await serious(shown)).toEqual([]);
  });

  test('says where a condition cannot be read, and that nothing matches', async () => {
    const wrong = new ApiError(400, { message: 'the condition cannot be read at column 7: a value is missing' });
    const { api } = show(<ModelsPage />, answers({ 'model-versions': wrong }));
    await press('Find versions …');
    await userEvent.type(field('Among'), 'label ={Enter}');
    expect((await screen.findByRole('alert')).textContent).toContain('at column 7');
    api.answers['model-versions'] = { items: [], after: null };
    await userEvent.type(field('Among'), ' x{Enter}');
    expect(await screen.findByText('No version matches.')).toBeTruthy();
    expect(api.asked).toContain('GET model-versions?limit=20&where=label%20%3D%20x');
  });

  test('its command is quoted for a shell', () => {
    expect(findCommand({ metric: 'accuracy', smaller: false, where: "a = 'b c'" })).toBe(`det model best accuracy --where 'a = '\\''b c'\\'''`);
    expect(findCommand({ metric: '', smaller: true, where: 'experiment=7' })).toBe('det model search --where experiment=7');
  });
});

describe('sharing a model', () => {
  const path = 'models/digits/grants';
  const grant = (kind: string, name: string, write: boolean): unknown => ({ kind, name, write, granted_by: 'ada', created_at: 1_700_000_000 });

  test('lists who may do what, adds one and takes one back', async () => {
    const shown = show(<ModelPage name="digits" />, answers({
      [path]: { items: [grant('user', '<b>bob</b>', true), grant('group', 'vision', false)] }, [`PUT ${path}`]: { items: [] }, [`DELETE ${path}`]: { items: [] }
    }));
    await userEvent.click(await screen.findByRole('tab', { name: 'Sharing' }));
    const rows = within(await screen.findByRole('region', { name: 'Shared with' })).getAllByRole('row').map(row => row.textContent);
    expect(rows[1]).toMatch(/^user <b>bob<\/b>read and change/);
    expect(rows[2]).toMatch(/^group visionread/);
    expect(button('Share').getAttribute('aria-disabled')).toBe('true');
    await userEvent.selectOptions(field('Kind'), 'group');
    await userEvent.type(field('Name'), 'speech');
    await userEvent.selectOptions(field('Right'), 'write');
    await press('Share');
    await waitFor(() => expect(shown.api.bodies).toEqual([{ kind: 'group', name: 'speech', write: true }]));
    await userEvent.click(button('Remove … group vision'));
    await waitFor(() => expect(shown.api.asked).toContain(`DELETE ${path}?kind=group&name=vision`));
    expect(await serious(shown)).toEqual([]);
  });

  test('is for its owner: others see with whom it is shared, and no form', async () => {
    show(<ModelPage name="digits" />, answers({ 'models/digits': made.model({ right: 'read' }), [path]: { items: [] } }));
    await userEvent.click(await screen.findByRole('tab', { name: 'Sharing' }));
    expect(await screen.findByText('It is shared with nobody.')).toBeTruthy();
    expect(screen.queryByRole('form', { name: 'Share it' })).toBeNull();
  });
});

describe('a model', () => {
  test('shows notes as Markdown, its versions with metrics, and nothing that axe objects to', async () => {
    const shown = show(<ModelPage name="digits" />, answers());
    expect((await screen.findByRole('heading', { level: 1 })).textContent).toBe('digits');
    expect(screen.getByRole('link', { name: 'optdigits' }).getAttribute('href')).toBe('https://archive.ics.uci.edu/dataset/80');
    const grid = await screen.findByRole('grid');
    expect(within(grid).getAllByRole('columnheader').map(head => head.textContent!.replace('▾', ''))).toEqual(
      ['✓', 'Version', 'Labels', 'SemVer', 'Name', 'accuracy', 'loss', 'training.loss', 'Step', 'Size', 'Created', 'By']
    );
    expect(within(grid).getAllByRole('row')[1]!.textContent).toContain('5staging1.3.0wider0.9935');
    expect(await serious(shown)).toEqual([]);
  });

  test('compares the versions that are chosen', async () => {
    const { done } = show(<ModelPage name="digits" />, answers());
    await userEvent.click(await screen.findByRole('checkbox', { name: 'Choose version 5' }));
    expect(button('Compare (1)').getAttribute('aria-disabled')).toBe('true');
    await userEvent.click(screen.getByRole('checkbox', { name: 'Choose version 3' }));
    await press('Compare (2)');
    expect(done).toEqual(['navigate {"kind":"compare","model":"digits","versions":["3","5"]}']);
  });

  test('a label is moved with its reason and what it was expected to be', async () => {
    const { api, done } = show(<ModelPage name="digits" />, answers({ 'POST models/digits/labels/production': made.moves()[0] }));
    await userEvent.click(await screen.findByRole('button', { name: 'Move a label …' }));
    await userEvent.type(field('Label'), 'production');
    expect(screen.getByText('“production” is at version 3 now.')).toBeTruthy();
    await userEvent.type(field('Version'), '5');
    await userEvent.type(field('Reason'), 'better');
    await press('Move');
    await waitFor(() => expect(api.bodies).toEqual([{ version: 5, reason: 'better', expected: 3 }]));
    expect(done).toEqual(['notify Moved production of digits to version 5.']);
    expect(screen.queryByRole('dialog')).toBeNull();
  });

  test('if somebody moved it meanwhile, nothing changes, it says who and why, and moving again is meant', async () => {
    const clash = new ApiError(409, { code: 'conflict', message: 'production is at version 4 now' });
    const { api } = show(<ModelPage name="digits" />, answers({ 'POST models/digits/labels/production': clash }));
    await userEvent.click(await screen.findByRole('button', { name: 'Move a label …' }));
    await userEvent.type(field('Label'), 'production');
    await userEvent.type(field('Version'), '5');
    api.answers['models/digits'] = made.model({ moving: { production: 4 } });
    api.answers['models/digits/labels'] = { items: [{ ...made.moves()[2]!, id: 9, to_version: 4, by: 'bob', reason: 'hot fix' }] };
    await press('Move');
    expect((await screen.findByText(/Somebody moved it/)).textContent).toMatch(/“production” is at version 4 now \(bob, .*: hot fix\)\. Nothing was changed\./);
    api.answers['POST models/digits/labels/production'] = made.moves()[0];
    await press('Move anyway');
    await waitFor(() => expect(api.bodies.at(-1)).toEqual({ version: 5, reason: '', expected: 4 }));
    await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  });

  test('a conflict of another kind is shown as it is', async () => {
    const clash = new ApiError(409, { code: 'conflict', message: 'the model is archived' });
    show(<ModelPage name="digits" />, answers({ 'POST models/digits/labels/production': clash }));
    await userEvent.click(await screen.findByRole('button', { name: 'Move a label …' }));
    await userEvent.type(field('Label'), 'production');
    await userEvent.type(field('Version'), '5');
    await press('Move');
    expect(await screen.findByText('the model is archived')).toBeTruthy();
  });

  test.each(['1st', 'latest', 'a b', 'a/b', ''])('%j is no label, and is not sent', async label => {
    const { api } = show(<ModelPage name="digits" />, answers());
    await userEvent.click(await screen.findByRole('button', { name: 'Move a label …' }));
    if (label) await userEvent.type(field('Label'), label);
    await userEvent.type(field('Version'), '5');
    await press('Move');
    expect(field('Label').getAttribute('aria-invalid')).toBe('true');
    expect(api.asked.filter(one => one.startsWith('POST'))).toEqual([]);
  });

  test('the history says who moved what when and why; a label is removed after a question', async () => {
    const { api, done } = show(<ModelPage name="digits" />, answers({ 'POST models/digits/labels/staging/remove': made.moves()[0] }));
    await userEvent.click(await screen.findByRole('tab', { name: 'Label history' }));
    const table = await screen.findByRole('region', { name: 'Label history' });
    expect(within(table).getAllByRole('row').slice(1).map(row => row.textContent)).toEqual([
      expect.stringMatching(/^staging4 → 5bob.*passed the review/), expect.stringMatching(/^canary4 → nonealice/), expect.stringMatching(/^production2 → 3alice/), expect.stringMatching(/^productionnone → 2alice.*first$/)
    ]);
    await press('Remove … staging');
    await waitFor(() => expect(api.bodies).toEqual([{ expected: 5 }]));
    expect(done).toEqual(['confirm Remove the label staging?']);
  });

  test('an edit sends only what was changed, metadata key by key', async () => {
    const { api } = show(<ModelPage name="digits" />, answers({ 'POST models/digits/edit': made.model() }));
    await userEvent.click(await screen.findByRole('button', { name: 'Edit' }));
    await userEvent.clear(field('Description'));
    await userEvent.type(field('Description'), 'short');
    await userEvent.clear(field('Metadata'));
    await userEvent.type(field('Metadata'), 'dataset: v3{enter}reviewers: [[bob, carol]{enter}');
    await press('Save');
    await waitFor(() => expect(api.bodies).toEqual([{ description: 'short', set_metadata: { dataset: 'v3' }, remove_metadata: ['limit_ms'] }]));
    await waitFor(() => expect(screen.queryByRole('form', { name: 'Edit model digits' })).toBeNull());
  });

  test.each([['- 1', /mapping/], ['a: [', /not YAML/], ['a: &x [1]\nb: *x', /not YAML/]])('metadata of %j is refused at its field', async (text, why) => {
    const { api } = show(<ModelPage name="digits" />, answers());
    await userEvent.click(await screen.findByRole('button', { name: 'Edit' }));
    await userEvent.clear(field('Metadata'));
    await userEvent.click(field('Metadata'));
    await userEvent.paste(text);
    await press('Save');
    expect(screen.getByRole('alert').textContent).toMatch(why);
    expect(api.bodies).toEqual([]);
  });

  test("the master's problems stand at their fields", async () => {
    const taken = new ApiError(422, { code: 'invalid', message: 'it is not valid', problems: [{ path: 'name', message: 'there is a model of this name', level: 'error' } as never] });
    show(<ModelPage name="digits" />, answers({ 'POST models/digits/edit': taken }));
    await userEvent.click(await screen.findByRole('button', { name: 'Edit' }));
    await userEvent.type(field('Name'), '2');
    await press('Save');
    expect((await screen.findByRole('alert')).textContent).toBe('there is a model of this name');
  });

  test('who may only read is told so by every button', async () => {
    show(<ModelPage name="digits" />, answers({ 'models/digits': made.model({ right: 'read', owner: 'bob' }) }));
    for (const name of ['Move a label …', 'Edit', 'Move a label here …']) {
      expect((await screen.findByRole('button', { name })).getAttribute('title')).toContain('bob, can allow you');
    }
  });

  test.each([
    ['model digits', 2, <ModelPage name="bob/digits" />], ['digits@5', 1, <VersionPage model="bob/digits" version={5} />]
  ])('who may change it, and does not own it, neither archives nor deletes %s', async (name, count, page) => {
    const his = made.model({ right: 'write', owner: 'bob', reference: 'bob/digits' });
    show(page, answers({
      'models/bob%2Fdigits': his, 'models/bob%2Fdigits/versions': { items: [], after: null }, 'models/bob%2Fdigits/versions/5': made.version(5, { model_reference: 'bob/digits' })
    }));
    await userEvent.click(await screen.findByRole('button', { name: `More actions of ${name}` }));
    expect(screen.getAllByText('Only its owner, bob, and administrators may do this.')).toHaveLength(count);
  });

  test("another's model is named, asked for and loaded with its owner", async () => {
    const his = made.model({ owner: 'bob', reference: 'bob/digits' });
    const theirs = { 'models/bob%2Fdigits': his, 'models/bob%2Fdigits/versions/5': made.version(5, { model_reference: 'bob/digits' }) };
    const { api } = show(<VersionPage model="bob/digits" version={5} />, answers({ ...theirs, 'DELETE models/bob%2Fdigits/versions/5?force=true': made.version(5) }));
    expect(await screen.findByText(/det\.load_model\("bob\/digits@/)).toBeTruthy();
    await userEvent.click(screen.getByRole('button', { name: 'More actions of digits@5' }));
    await userEvent.click(screen.getByRole('menuitem', { name: 'Delete …' }));
    await waitFor(() => expect(api.asked).toContain('DELETE models/bob%2Fdigits/versions/5?force=true'));
  });

  test('archive, and delete after a question', async () => {
    const { api, done } = show(<ModelPage name="digits" />, answers({ 'POST models/digits/edit': made.model({ archived: true }), 'DELETE models/digits?force=true': made.model() }));
    await userEvent.click(await screen.findByRole('button', { name: 'More actions of model digits' }));
    await userEvent.click(screen.getByRole('menuitem', { name: 'Archive' }));
    await waitFor(() => expect(api.bodies).toEqual([{ archived: true }]));
    await press('More actions of model digits');
    await userEvent.click(screen.getByRole('menuitem', { name: 'Delete …' }));
    await waitFor(() => expect(done).toEqual(['confirm Delete model digits?', 'notify Model digits was deleted.', 'navigate {"kind":"models"}']));
  });

  test('moves to a workspace that one may put things into, and has another address then', async () => {
    const places = [PERSONAL, workspace(7, { name: 'vision' }), workspace(8, { name: 'seen', owner: 'ben', may: 'read' })];
    const { api, done } = show(<ModelPage name="digits" />, answers({
      workspaces: { items: places, after: null }, 'POST models/digits/move': made.model({ reference: 'ada/digits', workspace: 'vision', workspace_id: 7 })
    }));
    await userEvent.click(await screen.findByRole('button', { name: 'More actions of model digits' }));
    await userEvent.click(screen.getByRole('menuitem', { name: 'Move …' }));
    await screen.findByRole('option', { name: 'vision' });
    expect(screen.queryByRole('option', { name: /seen/ })).toBeNull();
    await userEvent.selectOptions(field('Workspace'), '7');
    await press('Move');
    await waitFor(() => expect(api.bodies).toEqual([{ workspace: '7' }]));
    expect(done).toEqual(['notify Model digits lies in vision.', 'navigate {"kind":"model","name":"ada/digits"}']);
  });

  test('one that is not there says so', async () => {
    show(<ModelPage name="nope" />, answers());
    expect(await screen.findByRole('heading', { name: 'Model nope not found' })).toBeTruthy();
  });
});

describe('a version', () => {
  test('of a governed checkpoint says what it was trained on, and how to check that', async () => {
    const version = made.version(5);
    version.lineage.governed = {
      key_id: 'a1', policy_hash: 'sha256:ab', s_hash: 'sha256:cd', enforce: 'strict', ledger_index: 3, ledger_hash: 'sha256:ef', privacy: null,
      sources: [{ name: 'web', license: 'CC-BY-4.0', manifest: null, expires: null, samples: 1200, reached: true, level: 'direct' }, { name: 'partner', license: '', manifest: null, expires: null, samples: 7, reached: true, level: 'isolated' }, { name: '<b>x</b>', license: '', manifest: null, expires: null, samples: 1, reached: false, level: '' }]
    };
    const view = show(<Origin version={version} />, {}).container;
    expect(view.textContent).toContain('Governedentry 3 of the trial’s ledger');
    expect(view.textContent).toContain(`det governance verify ${version.checkpoint.slice(0, 8)}`);
    expect(view.textContent).toContain('web: 1200 samples, CC-BY-4.0, level direct');
    expect(view.textContent).toContain('partner: 7 samples, level isolated');
    expect(view.textContent).toContain('direct: its loss adds nothing to what is closed to it; not promised: that it has no influence');
    expect(view.textContent).toContain('<b>x</b>: 1 sample (seen, but closed to all layers)');
    expect(view.textContent).not.toContain('Privacy');
    expect(view.textContent).not.toContain('Withdrawn');
    const marked = show(<Origin version={{ ...version, withdrawn: ['the source <b>web</b> was withdrawn'] }} />, {}).container;
    expect(marked.textContent).toContain('Withdrawnthe source <b>web</b> was withdrawn');
  });

  test('of a private training says what it has spent', async () => {
    const version = made.version(5);
    version.lineage.governed = {
      key_id: 'a1', policy_hash: 'sha256:ab', s_hash: 'sha256:cd', enforce: 'strict', ledger_index: 3, ledger_hash: 'sha256:ef', sources: [],
      privacy: { mechanism: 'rdp', epsilon: 3.5, delta: 0.00001, target_epsilon: 8, max_grad_norm: 1, noise_multiplier: 0.8, sample_rate: 0.01, steps: 400 }
    };
    expect(show(<Origin version={version} />, {}).container.textContent).toContain('epsilon 3.500 at delta 1e-5 for each record (what other trials have spent is not in it)');
  });

  test('says where it comes from, and how to load it by number or label', async () => {
    const shown = show(<VersionPage model="digits" version={5} />, answers());
    expect((await screen.findByRole('heading', { level: 1 })).textContent).toBe('digits version 5');
    const load = screen.getByRole('region', { name: 'How to load it' });
    expect(load.textContent).toContain('det.load_model("digits@5")');
    await userEvent.selectOptions(within(load).getByRole('combobox'), 'staging');
    expect(load.textContent).toContain('det.load_model("digits@staging")');
    await userEvent.click(within(load).getByRole('button', { name: 'Insert in notebook' }));
    expect(shown.done).toEqual(['insert import detlab as det\n\nmodel = det.load_model("digits@staging")']);
    const metrics = screen.getByRole('region', { name: 'Metrics at this step' });
    expect(metrics.textContent).toContain('accuracy0.9935');
    expect(metrics.textContent).not.toContain('validation.accuracy');
    expect(screen.getByRole('link', { name: 'Download' }).getAttribute('href')).toBe(`/api/v1/checkpoints/${made.version(5).checkpoint}/archive`);
    expect(await serious(shown)).toEqual([]);
  });

  test('the graph says in a list what it draws; nodes lead to their views', async () => {
    const shown = show(<VersionPage model="digits" version={5} />, answers());
    await userEvent.click(await screen.findByRole('tab', { name: 'Lineage graph' }));
    const items = within(await screen.findByRole('list', { name: 'Lineage' })).getAllByRole('listitem');
    expect(items).toHaveLength(9);
    expect(items[2]!.textContent).toBe('trial105 lr 0.0006, width 320 ← of experiment 15 ← reads data optdigits ← started from checkpoint 5791388c-59af-4c54-ae44-59fcb75a58f8');
    expect(shown.container.querySelectorAll('.det-node')).toHaveLength(9);
    await userEvent.click(within(items[2]!).getByRole('button', { name: '105' }));
    await userEvent.click(shown.container.querySelector('.det-node[data-kind=experiment]')!);
    expect(shown.done).toEqual(['navigate {"kind":"trial","id":105}', 'navigate {"kind":"experiment","id":15}']);
    expect(await serious(shown)).toEqual([]);
  });

  test('its files can be downloaded each', async () => {
    show(<VersionPage model="digits" version={5} />, answers({ [`checkpoints/${made.version(5).checkpoint}`]: { ...checkpoint(5), state: 'COMPLETED' } }));
    await userEvent.click(await screen.findByRole('tab', { name: 'Files' }));
    const link = await screen.findByRole('link', { name: 'model_0.safetensors' });
    expect(link.getAttribute('href')).toMatch(/^\/api\/v1\/checkpoints\/[0-9a-f-]{36}\/files\/sha256%3A/);
  });

  test('pickles are told, and files that are gone', async () => {
    const one = made.version(5, { format: 'pickle', checkpoint_state: 'DELETED' });
    const { container } = show(<VersionPage model="digits" version={5} />, answers({ 'models/digits/versions/5': one }));
    expect(await screen.findByText(/can no longer be loaded/)).toBeTruthy();
    expect(container.textContent).toContain('allow_pickle=True');
    expect(screen.queryByRole('link', { name: 'Download' })).toBeNull();
  });

  test('a deletion names the labels that it has', async () => {
    let body = '';
    const { api } = show(<VersionPage model="digits" version={5} />, answers({ 'DELETE models/digits/versions/5?force=true': made.version(5) }), { confirm: async question => { body = question.body; return true; } });
    await userEvent.click(await screen.findByRole('button', { name: 'More actions of digits@5' }));
    await userEvent.click(screen.getByRole('menuitem', { name: 'Delete …' }));
    await waitFor(() => expect(api.asked).toContain('DELETE models/digits/versions/5?force=true'));
    expect(body).toContain('the label staging now');
  });
});

describe('a comparison', () => {
  test('shows what differs, the best value and how far the others are, and all on request', async () => {
    const shown = show(<ComparePage model="digits" versions={['3', '5']} />, answers());
    const table = await screen.findByRole('table');
    const row = (name: string): string => within(table).getByRole('rowheader', { name }).closest('tr')!.textContent!;
    expect(row('accuracy')).toBe('accuracy0.96850.9935 best (+0.025)');
    expect(row('loss')).toBe('loss0.22000.1600 (−0.06)');
    expect(within(table).queryByRole('rowheader', { name: 'dropout' })).toBeNull();
    await press('Only differences');
    expect(row('dropout')).toBe('dropout0.10.1');
    expect(screen.getByText('only in version 3')).toBeTruthy();
    expect([...shown.container.querySelectorAll('[data-line=add]')].map(line => line.textContent)).toEqual([
      'added: +        dropout = context.get_hparam("dropout")', 'added: +        self.model = context.wrap_model(net(width, dropout))'
    ]);
    expect(shown.container.querySelectorAll('[data-line=del]')).toHaveLength(1);
    expect(await serious(shown)).toEqual([]);
  });

  test('versions are added and left out', async () => {
    const { api, done } = show(<ComparePage model="digits" versions={['3', '5']} />, answers());
    await screen.findByRole('table');
    expect(api.asked).toContain('GET models/digits/compare?versions=3,5');
    await userEvent.type(screen.getByRole('textbox', { name: 'Version' }), 'production, 5{enter}');
    await press('Leave out version 5');
    expect(done).toEqual(['navigate {"kind":"compare","model":"digits","versions":["3","5","production"]}', 'navigate {"kind":"compare","model":"digits","versions":["3"]}']);
  });
});

describe('registering a checkpoint', () => {
  const one = { ...checkpoint(3), state: 'COMPLETED' as const };
  const list = 'models?limit=200';

  test('as the next version of a model that there is', async () => {
    const { api, done } = show(<Register checkpoint={one} metric="loss" onClose={() => undefined} />, answers({ [list]: { items: made.models(), after: null }, 'POST models/digits/versions': made.version(6) }));
    await userEvent.type(await screen.findByLabelText('Model'), 'digits');
    expect(await screen.findByText('Version 6 of digits will be made.')).toBeTruthy();
    await userEvent.type(field(/^Labels/), 'staging');
    await press('Register');
    await waitFor(() => expect(api.bodies).toEqual([{ checkpoint: one.uuid, comment: '', labels: ['staging'], semver: null }]));
    expect(done).toEqual(['notify Registered as version 6 of digits.', 'navigate {"kind":"version","model":"digits","version":6}']);
  });

  test('of a new model, which is made once, also if the version is refused at first', async () => {
    const { api } = show(<Register checkpoint={one} metric="loss" onClose={() => undefined} />, answers({
      [list]: { items: made.models(), after: null }, 'POST models': made.model({ name: 'fresh' }), 'POST models/fresh/versions': new ApiError(409, { message: 'the checkpoint was deleted' })
    }));
    await userEvent.type(await screen.findByLabelText('Model'), 'fresh');
    expect(await screen.findByText(/it will be made, with this as its version 1/)).toBeTruthy();
    await press('Register');
    expect(await screen.findByText('the checkpoint was deleted')).toBeTruthy();
    api.answers['POST models/fresh/versions'] = made.version(1, { model: 'fresh' });
    await press('Register');
    await waitFor(() => expect(api.asked.filter(one => one.startsWith('POST'))).toEqual(['POST models', 'POST models/fresh/versions', 'POST models/fresh/versions']));
  });
});

describe('names of people', () => {
  const SLY = /[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\u001b\u0000\u0008]/;

  function clean(shown: Shown): void {
    expect(shown.container.querySelector('script, img, iframe, [onerror], [onload]')).toBeNull();
    expect(shown.container.querySelectorAll('svg').length).toBe(shown.container.querySelectorAll('.det-lineage-figure svg').length);
    expect(shown.container.textContent).not.toMatch(SLY);
    for (const element of shown.container.querySelectorAll('[title], [aria-label]')) {
      expect(`${element.getAttribute('title')} ${element.getAttribute('aria-label')}`).not.toMatch(SLY);
    }
    for (const link of shown.container.querySelectorAll('a')) expect(link.protocol).toMatch(/^https?:$/);
  }

  const bad = made.hostileModel(1);
  const path = `models/${encodeURIComponent(bad.name)}`;
  const hostile = answers({
    [FIRST]: { items: [bad, made.hostileModel(2)], after: null }, [path]: bad, [`${path}/versions`]: { items: [made.hostileVersion(5), made.hostileVersion(4)], after: null },
    [`${path}/labels`]: { items: made.moves(true) }, [`${path}/versions/5`]: made.hostileVersion(5), [`${path}/versions/5/lineage`]: made.lineage(true), [`${path}/compare`]: made.comparison([3, 5], true)
  });

  test('stay text in the list', async () => {
    const shown = show(<ModelsPage />, hostile);
    await screen.findByRole('table');
    clean(shown);
  });

  test.each(['Versions', 'Label history', 'Metadata'])('stay text in the tab %s of a model', async tab => {
    const shown = show(<ModelPage name={bad.name} />, hostile);
    await userEvent.click(await screen.findByRole('tab', { name: new RegExp(`^${tab}`) }));
    await waitFor(() => expect(shown.container.textContent).not.toContain('Loading'));
    clean(shown);
    expect(shown.container.textContent).toContain('⟨U+202E⟩');
  });

  test.each(['Origin', 'Lineage graph', 'Metadata'])('stay text in the tab %s of a version', async tab => {
    const shown = show(<VersionPage model={bad.name} version={5} />, hostile);
    await userEvent.click(await screen.findByRole('tab', { name: new RegExp(`^${tab}`) }));
    await waitFor(() => expect(shown.container.textContent).not.toContain('Loading'));
    clean(shown);
  });

  test('stay text in a comparison and its diff', async () => {
    const shown = show(<ComparePage model={bad.name} versions={['3', '5']} />, hostile);
    await screen.findByRole('table');
    clean(shown);
    expect(shown.container.querySelector('[data-line=del]')!.textContent).toContain('<script>');
    expect(shown.container.textContent).toContain(HOSTILE.value);
  });
});
