import { cleanup, fireEvent, screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import axe from 'axe-core';
import { describe, expect, it, vi } from 'vitest';

import schemaJson from '../../../docs/reference/experiment-config.schema.json';
import { ApiError } from '../state/api';
import type { ProblemView } from '../state/wire';
import { show } from '../testing/app';
import { overview } from '../testing/fixtures';
import { parseConfig, typed, withKey, withValue } from './document';
import { ExperimentForm, planOf } from './ExperimentForm';
import { assign } from './problems';
import { fieldsOf, resolve, Schema, variant } from './schema';
import { EXPERIMENT_SECTIONS, experimentText, shellWord } from './starting';

const schema = schemaJson as unknown as Schema;
const problem = (path: string, message = 'is wrong', level: 'error' | 'warning' = 'error'): ProblemView =>
  ({ path, message, hint: null, level });

describe('fields from the schema', () => {
  it('has what one line can hold, with kinds, defaults and what is needed', () => {
    const resources = fieldsOf(schema, resolve(schema, schema.properties!['resources']!), ['resources']);
    const slots = resources.find(f => f.path[1] === 'slots_per_trial')!;
    expect(slots).toMatchObject({ kind: 'integer', standard: '1', needed: false });
    expect(resources.map(f => f.path[1])).not.toContain('agent_label');
    const { names, chosen } = variant(schema, resolve(schema, schema.properties!['searcher']!), 'adaptive_asha');
    expect(names).toContain('grid');
    const searcher = fieldsOf(schema, chosen!, ['searcher']);
    expect(searcher.find(f => f.path[1] === 'mode')).toMatchObject({
      kind: 'choice', choices: ['aggressive', 'standard', 'conservative']
    });
    expect(searcher.find(f => f.path[1] === 'max_time')!.needed).toBe(true);
  });

  it('asks for what is needed before what may be left out, and in the order in which a person fills it', () => {
    const { sections } = planOf(schema, EXPERIMENT_SECTIONS, { searcher: { name: 'adaptive_asha' } });
    expect(sections.map(s => s.title).slice(0, 4)).toEqual(['What to run', 'Search', 'Resources', 'Hyperparameters']);
    expect(sections[0]!.fields.map(f => f.path[0]).slice(0, 2)).toEqual(['name', 'entrypoint']);
    const search = sections[1]!.fields;
    expect(search.slice(0, 4).map(f => f.path[1])).toEqual(['metric', 'time_metric', 'max_trials', 'max_time']);
    expect(search.map(f => f.needed)).toEqual([...search].map((_, i) => i < 4));
  });

  it('covers every section', () => {
    const { sections } = planOf(schema, EXPERIMENT_SECTIONS, { searcher: { name: 'single' } });
    for (const section of sections) {
      expect(section.fields.length + (section.kind === 'hyperparameters' ? 1 : 0), section.title).toBeGreaterThan(0);
    }
  });
});

describe('the YAML', () => {
  const text = '# mine\nname: a # the name\nsearcher:\n  name: single\n  metric: loss # reported\n';

  it('keeps comments and order when a field changes', () => {
    expect(withValue(text, ['searcher', 'metric'], 'acc')).toBe(text.replace('loss', 'acc'));
    expect(withValue(text, ['resources', 'slots_per_trial'], 2)).toBe(`${text}resources:\n  slots_per_trial: 2\n`);
    expect(withValue(`${text}resources:\n  slots_per_trial: 2\n`, ['resources', 'slots_per_trial'], undefined)).toBe(text);
  });

  // Everything here would be printed in another way: quotes, comments, blank lines, indentation, numbers, flow mappings.
  const written = [
    '# A search over digits.', '', 'name:   "digits"   # double quotes', "entrypoint: 'python3 train.py'", '', 'hyperparameters:',
    '    # the learning rate', '    lr: {type: log, base: 10,   minval: -4, maxval: -1}   # exponents',
    '    width:', '        type: int', '        minval: 0x10 # hexadecimal', '        maxval: 512', '    seed: 1e3', '',
    'searcher:', '    name: random   # later: grid', '    max_trials: 8', '    metric: "loss"', 'labels: [ a,b ,"c" ]',
    'environment:', '# comment at the wrong column', '    environment_variables:', '    - A=1', '    - B=2   # two', 'description: >-',
    '    folded', '    text', ''
  ].join('\n');

  it.each<[string, (string | number)[], unknown, string, string]>([
    ['a number', ['searcher', 'max_trials'], 16, 'max_trials: 8', 'max_trials: 16'],
    ['a text, which keeps its quotes', ['searcher', 'metric'], 'acc', '"loss"', '"acc"'],
    ['a text in single quotes', ['entrypoint'], "it's", "'python3 train.py'", "'it''s'"],
    ['a text that needs quotes now', ['searcher', 'name'], 'a: b', 'name: random', 'name: "a: b"'],
    ['a list on one line', ['labels'], ['a', 'd'], '[ a,b ,"c" ]', '[ a, d ]'],
    ['one key of a mapping in braces', ['hyperparameters', 'lr'], { type: 'log', base: 10, minval: -5, maxval: -1 }, 'minval: -4', 'minval: -5'],
    ['a key added in braces', ['hyperparameters', 'lr', 'count'], 3, 'maxval: -1}', 'maxval: -1, count: 3}'],
    ['a key taken out of braces', ['hyperparameters', 'lr', 'base'], undefined, 'base: 10,   minval', 'minval'],
    ['one key of a mapping', ['hyperparameters', 'width'], { type: 'int', minval: 16, maxval: 64 }, 'maxval: 512', 'maxval: 64'],
    ['a new key in a section', ['searcher', 'max_concurrent_trials'], 2, 'metric: "loss"', 'metric: "loss"\n    max_concurrent_trials: 2'],
    ['a key taken away with its line', ['hyperparameters', 'seed'], undefined, '    seed: 1e3\n', ''],
    ['a new section', ['resources', 'slots_per_trial'], 2, '    folded\n    text\n', '    folded\n    text\nresources:\n    slots_per_trial: 2\n'],
    ['a text of several lines', ['description'], 'short', '>-\n    folded\n    text', 'short']
  ])('keeps all else as it is written when a field changes: %s', (_, path, value, from, to) => {
    expect(written.split(from).length).toBe(2);
    const now = withValue(written, path, value);
    expect(now).toBe(written.replace(from, () => to));
    expect(parseConfig(now).error).toBeNull();
  });

  it('keeps the line breaks of another system', () => {
    const other = 'name: a # x\r\nsearcher:\r\n  name:   single\r\n';
    expect(withValue(other, ['name'], 'b')).toBe(other.replace('a #', 'b #'));
    expect(withValue(other, ['searcher', 'metric'], 'loss')).toBe(`${other}  metric: loss\r\n`);
  });

  it('fills a section that is empty, and renames only the key', () => {
    expect(withValue('a:   1\nresources: # none yet\nb:  2\n', ['resources', 'slots_per_trial'], 1))
      .toBe('a:   1\nresources: # none yet\n  slots_per_trial: 1\nb:  2\n');
    expect(withValue('a:   1\nresources: {}\nb:  2\n', ['resources', 'slots_per_trial'], 1))
      .toBe('a:   1\nresources:\n  slots_per_trial: 1\nb:  2\n');
    expect(withKey(written, ['hyperparameters'], 'width', 'size')).toBe(written.replace('width:', 'size:'));
  });

  it('never gives another config than asked for, wherever the edit cannot be made in place', () => {
    const odd = 'base: &base\n  x: 1\nother:\n  <<: *base\n  y: 2\nlist:\n- a: 1\n  b: 2\n? long key\n: 3\nname:\n';
    for (const [path, value] of [[['base', 'x'], 5], [['list', 0, 'a'], undefined], [['name'], 'n'], [['other', 'y'], ['k', 'l']]] as const) {
      const now = parseConfig(withValue(odd, [...path], value));
      expect(now.error).toBeNull();
      expect(path.reduce<unknown>((at, key) => (at as Record<string | number, unknown>)?.[key], now.value)).toEqual(value);
    }
  });

  it('renames a key at its place', () => {
    const two = 'hyperparameters:\n  a: 1\n  b: 2\n';
    expect(withKey(two, ['hyperparameters'], 'a', 'lr')).toBe('hyperparameters:\n  lr: 1\n  b: 2\n');
    expect(withKey(two, ['hyperparameters'], 'a', 'b')).toBe(two);
  });

  it('says where it cannot be read', () => {
    expect(parseConfig('a: [1,\nb: 2').error).toMatch(/^line \d/);
    expect(parseConfig('- 1').error).toMatch(/mapping/);
    expect(parseConfig('a: 1\na: 2').error).toMatch(/line 2/);
    expect(parseConfig('').error).toBeNull();
  });

  it('takes numbers as numbers and leaves the rest to the master', () => {
    expect(typed('integer', '3')).toBe(3);
    expect(typed('integer', 'many')).toBe('many');
    expect(typed('integer', '')).toBeUndefined();
    expect(typed('words', 'a, b')).toEqual(['a', 'b']);
    expect(parseConfig(withValue('name: a\n', ['name'], 'no: "x" #')).value['name']).toBe('no: "x" #');
  });

  it('starts from any file name', () => {
    for (const file of ['train.py', "it's a; rm -rf $(x).py", 'yes.py', '日本.py', 'null.py']) {
      const value = parseConfig(experimentText(`dir/${file}`)).value;
      expect(value['name']).toBe(file.replace(/\.py$/, ''));
      expect(value['entrypoint']).toBe(`python3 ${shellWord(file)}`);
    }
  });
});

describe('problems', () => {
  it('go to their field, or the nearest above it, or to the rest', () => {
    const { at, rest } = assign(
      [problem('a.b'), problem('a.b[0].c'), problem('z'), problem('')], ['a', 'a.b']
    );
    expect(at.get('a.b')!.length).toBe(2);
    expect(rest.length).toBe(2);
  });
});

function form(validate: (text: string) => unknown, submit = vi.fn()): { submit: typeof submit; container: HTMLElement } {
  const { container } = show(
    <ExperimentForm
      title="New experiment" schema={schema} sections={EXPERIMENT_SECTIONS} initial={experimentText('train.py')}
      submitLabel="Submit" validate={async text => (await validate(text)) as never} submit={submit}
    />,
    { overview: overview() }
  );
  return { submit, container };
}

const yaml = (): HTMLTextAreaElement => screen.getByLabelText('YAML');
const fine = () => ({ problems: [], config: {} });

describe('the form', () => {
  it('writes the current YAML into the YAML, and shows what is written there', async () => {
    form(fine);
    await userEvent.type(screen.getByLabelText(/slots per trial/), '6');
    expect(yaml().value).toContain('slots_per_trial: 16');
    await userEvent.clear(yaml());
    await userEvent.type(yaml(), 'name: other');
    expect(screen.getByLabelText<HTMLInputElement>('name').value).toBe('other');
  });

  it('is told apart from another one that is open beside it', () => {
    form(fine);
    form(fine);
    const texts = screen.getAllByLabelText('YAML');
    expect(texts.map(text => text.tagName)).toEqual(['TEXTAREA', 'TEXTAREA']);
    expect(texts[0]).not.toBe(texts[1]);
    const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
    expect(ids.filter((id, i) => ids.indexOf(id) < i)).toEqual([]);
  });

  it('shows every mistake at its field and in the list, and does not submit', async () => {
    const { submit } = form(() => ({
      problems: [
        problem('searcher.metric', 'is empty'), problem('resources.slots_per_trial', 'too many'),
        problem('bind_mounts[0].host_path', 'is relative'), problem('hyperparameters.lr', 'minval over maxval')
      ],
      config: null
    }));
    await screen.findByText('4 errors');
    const metric = screen.getByLabelText(/^metric/);
    expect(metric.getAttribute('aria-invalid')).toBe('true');
    expect(document.getElementById(metric.getAttribute('aria-describedby')!.split(' ').pop()!)!.textContent).toBe('is empty');
    const list = screen.getByRole('list', { name: 'Errors and warnings' });
    expect(within(list).getAllByRole('listitem').length).toBe(4);
    const button = screen.getByRole('button', { name: 'Submit' });
    expect(button.getAttribute('aria-disabled')).toBe('true');
    await userEvent.click(button);
    expect(submit).not.toHaveBeenCalled();
    await userEvent.click(within(list).getByRole('button', { name: 'resources.slots_per_trial' }));
    expect(document.activeElement).toBe(screen.getByLabelText(/slots per trial/));
  });

  it('shows names in hints as code and never a backtick, and whatever a hint holds as text', async () => {
    const { container } = form(() => ({
      problems: [{ ...problem('searcher.metric', 'not `<img src=x>`, `'), hint: 'did you mean `loss`?' }], config: null
    }));
    await screen.findByText('1 error');
    const about = [...container.querySelectorAll('.det-about')].map(el => el.textContent).join('\n');
    expect(about).not.toContain('`');
    const variables = screen.getByLabelText('environment variables');
    const hint = document.getElementById(variables.getAttribute('aria-describedby')!)!;
    expect(hint.querySelector('code')!.textContent).toBe('NAME=VALUE');
    const told = document.getElementById(screen.getByLabelText(/^metric/).getAttribute('aria-describedby')!.split(' ').pop()!)!;
    expect(told.textContent).toBe('not <img src=x>, ` (did you mean loss?)');
    expect([...told.querySelectorAll('code')].map(el => el.textContent)).toEqual(['<img src=x>', 'loss']);
    expect(container.querySelector('img')).toBeNull();
  });

  it('holds the errors of a template back until the user changes something or submits', async () => {
    const submit = vi.fn();
    const wrong = async () => ({ problems: [problem('entrypoint', 'is not in the code')], config: null });
    const template = (): void => {
      show(
        <ExperimentForm
          title="New experiment" schema={schema} sections={EXPERIMENT_SECTIONS} initial={experimentText(null)} template
          submitLabel="Submit" validate={wrong} submit={submit}
        />,
        { overview: overview() }
      );
    };
    template();
    await screen.findByText('a template: choose code and fill it in');
    expect(screen.queryByText('is not in the code')).toBeNull();
    await userEvent.click(screen.getByRole('button', { name: 'Submit' }));
    await screen.findByText('1 error');
    screen.getByText('is not in the code'); // at its field
    expect(submit).not.toHaveBeenCalled();
    cleanup();
    template();
    await screen.findByText('a template: choose code and fill it in');
    await userEvent.type(screen.getByLabelText('name'), 'x');
    await screen.findByText('1 error');
  });

  it('waits while the YAML cannot be read', async () => {
    form(fine);
    await userEvent.type(yaml(), '  [[broken');
    expect(await screen.findByText(/The fields are disabled/)).toBeTruthy();
    expect(screen.getByLabelText<HTMLInputElement>('name').disabled).toBe(true);
    expect(screen.getByRole('alert').textContent).toMatch(/^line/);
  });

  it('validates the last text only, once typing has settled', async () => {
    const validate = vi.fn(fine);
    form(validate);
    await userEvent.type(screen.getByLabelText('name'), 'abc');
    await screen.findByText('no errors');
    expect(validate.mock.calls.length).toBeLessThan(4);
    expect((validate.mock.calls as unknown as string[][]).at(-1)![0]).toContain('name: trainabc');
  });

  it('submits what is written there, and tells a refusal', async () => {
    const { submit } = form(fine);
    await screen.findByText('no errors');
    submit.mockRejectedValueOnce(new ApiError(422, { message: 'the code is too large', hint: 'leave data out' }));
    await userEvent.click(screen.getByRole('button', { name: 'Submit' }));
    expect(await screen.findByText(/the code is too large/)).toBeTruthy();
    await userEvent.click(screen.getByRole('button', { name: 'Submit' }));
    await waitFor(() => expect(submit).toHaveBeenCalledTimes(2));
    expect(submit.mock.calls[1]![0]).toBe(yaml().value);
  });

  it('edits the search space by rows', async () => {
    form(fine);
    await userEvent.click(screen.getByRole('button', { name: 'Add hyperparameter' }));
    const row = screen.getByRole('group', { name: 'Hyperparameter parameter_1' });
    await userEvent.clear(within(row).getByLabelText('name'));
    await userEvent.type(within(row).getByLabelText('name'), 'lr{Enter}');
    await userEvent.selectOptions(within(screen.getByRole('group', { name: 'Hyperparameter lr' })).getByRole('combobox'), 'categorical');
    const vals = within(screen.getByRole('group', { name: 'Hyperparameter lr' })).getByLabelText('values');
    await userEvent.clear(vals);
    await userEvent.type(vals, '8, 32, big{Enter}');
    expect(parseConfig(yaml().value).value['hyperparameters']).toEqual({ lr: { type: 'categorical', vals: [8, 32, 'big'] } });
    await userEvent.click(screen.getByRole('button', { name: 'Remove lr' }));
    expect(yaml().value).not.toContain('hyperparameters');
  });

  it('keeps what its rows do not show, and says so', async () => {
    form(fine);
    const space = 'hyperparameters:\n  o: {type: categorical, vals: [a, b]}\n  lr: {type: double, minval: 0, maxval: 1, step: 0.5, when: {o: a}}\n';
    fireEvent.change(yaml(), { target: { value: `${yaml().value}\n${space}` } });
    const row = screen.getByRole('group', { name: 'Hyperparameter lr' });
    expect(within(row).getByText('step 0.5 · when { o: a } (see the YAML)')).toBeTruthy();
    const to = within(row).getByLabelText('to');
    await userEvent.clear(to);
    await userEvent.type(to, '2{Enter}');
    const lr = (): unknown => (parseConfig(yaml().value).value['hyperparameters'] as Record<string, unknown>)['lr'];
    expect(lr()).toEqual({ type: 'double', minval: 0, maxval: 2, step: 0.5, when: { o: 'a' } });
    await userEvent.selectOptions(within(screen.getByRole('group', { name: 'Hyperparameter lr' })).getByRole('combobox'), 'ordinal');
    expect(lr()).toEqual({ type: 'ordinal', vals: [16, 32, 64], when: { o: 'a' } });
  });

  it('has no serious accessibility finding', async () => {
    const { container } = form(() => ({ problems: [problem('searcher.metric')], config: null }));
    await screen.findByText('1 error');
    const found = await axe.run(container, { rules: { 'color-contrast': { enabled: false }, region: { enabled: false } } });
    expect(found.violations.map(v => `${v.id}: ${v.nodes[0]!.html}`)).toEqual([]);
  });
});
