/** JupyterLab's form: files and folders by its file dialog, and the code of an earlier experiment. */

import { fireEvent, screen, waitFor } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { describe, expect, it, vi } from 'vitest';

import schema from '../../../../docs/reference/experiment-config.schema.json';
import { show, Shown } from '../../testing/app';
import { experiment, overview } from '../../testing/fixtures';
import type { ExperimentView } from '../../state/wire';
import { forkText } from '../../form';
import type { LabApi } from '../api';
import { NewExperiment } from './NewExperiment';
import type { Picker } from '../pick';

/** The server extension: it packs what it is told to, and checks that the entrypoint is in there. */
function server(): { own: LabApi['own']; asked: [string, unknown][] } {
  const asked: [string, unknown][] = [];
  const own = async (path: string, body?: unknown): Promise<unknown> => {
    asked.push([path, body]);
    const { context } = (body ?? {}) as { context?: string };
    if (path.startsWith('schema')) return schema;
    if (path === 'code') return context === 'none' ? { bundle: null, files: [], size: 0 } : { bundle: 'tree:abc', files: ['train.py'], size: 9 };
    if (path === 'submit') return { experiment_id: 7, task_id: null, created: true, warnings: [] };
    const { bundle } = body as { bundle: string | null };
    const problem = { path: 'entrypoint', message: 'names train.py, which is not in the code', hint: null, level: 'error' };
    return { problems: bundle ? [] : [problem], config: {} };
  };
  return { own: own as LabApi['own'], asked };
}

function opened(pick: Partial<Picker>, forked: ExperimentView | null = null): Shown & { asked: [string, unknown][]; posted: unknown[] } {
  const { own, asked } = server();
  const posted: unknown[] = [];
  const post = async (path: string, body: unknown): Promise<unknown> => {
    posted.push([path, body]);
    return { experiment: experiment(8), created: true, warnings: [], config: {}, forecast: null };
  };
  const contents = {
    localPath: (path: string) => path, get: async () => ({ content: 'name: from a file\nentrypoint: python3 train.py\n' })
  };
  const none = async (): Promise<null> => null;
  let shown: Shown;
  const Form = (): React.ReactElement => (
    <NewExperiment
      app={shown?.app ?? ({ navigate: vi.fn() } as never)} api={{ own, post, get: async () => forked } as unknown as LabApi} from={forked?.id} contents={contents as never}
      pick={{ file: none, folder: none, ...pick }} folder="work" onDone={() => undefined}
    />
  );
  shown = show(<Form />, { overview: overview({ experiments: [experiment(3, { bundle: 'tree:old' }), experiment(2)] }) });
  return { ...shown, asked, posted };
}

const template = 'a template: choose code and fill it in';

describe('a new experiment in JupyterLab', () => {
  it('opens without an error and submits the folder that is chosen', async () => {
    const { asked } = opened({ folder: async () => 'work/digits' });
    await screen.findByText(template);
    await userEvent.click(screen.getByRole('button', { name: 'Choose a folder …' }));
    expect((screen.getByRole('radio', { name: 'the whole folder work/digits' }) as HTMLInputElement).checked).toBe(true);
    await screen.findByText('no errors');
    await userEvent.click(screen.getByRole('button', { name: 'Submit' }));
    await waitFor(() => expect(asked.at(-1)![0]).toBe('submit'));
    expect(asked.at(-1)![1]).toMatchObject({ kind: 'experiment', path: null, folder: 'work/digits', context: 'folder' });
  });

  it('becomes the form of the file that is chosen', async () => {
    opened({ file: async () => 'work/digits/search.yaml' });
    await screen.findByText(template);
    await userEvent.click(screen.getByRole('button', { name: 'Choose a file …' }));
    await screen.findByRole('heading', { name: 'Run search.yaml as an experiment' });
    expect(screen.getByLabelText<HTMLTextAreaElement>('YAML').value).toContain('name: from a file');
    await screen.findByText('no errors');
  });

  it('becomes a notebook run where a notebook is chosen', async () => {
    const { asked } = opened({ file: async () => 'work/report.ipynb' });
    await screen.findByText(template);
    await userEvent.click(screen.getByRole('button', { name: 'Choose a file …' }));
    await screen.findByRole('heading', { name: 'Run report.ipynb on the cluster' });
    expect(asked.map(([path]) => path)).toContain('schema?kind=notebook_run');
  });

  it('runs the code of an earlier experiment', async () => {
    const { posted } = opened({});
    await screen.findByText(template);
    const earlier = screen.getByLabelText('Or use the code of an earlier experiment') as HTMLSelectElement;
    expect([...earlier.options].map(option => option.text)).toEqual(['none', 'experiment 3, search 3']);
    await userEvent.selectOptions(earlier, '3');
    expect(screen.getAllByRole('radio').filter(radio => (radio as HTMLInputElement).checked)).toEqual([]);
    await screen.findByText('no errors');
    await userEvent.click(screen.getByRole('button', { name: 'Submit' }));
    await waitFor(() => expect(posted.length).toBe(1));
    expect(posted[0]).toMatchObject(['experiments', { bundle: 'tree:old', activate: true, source: { from: 'jupyterlab' } }]);
  });

  it('forks an experiment: its config to change, its code, and what it is a fork of', async () => {
    const config = { entrypoint: 'python3 train.py', name: 'first', searcher: { name: 'tpe' } };
    const { posted } = opened({}, experiment(1, { bundle: 'tree:its', config: config as never }));
    await screen.findByRole('heading', { name: 'Fork experiment 1' });
    const yaml = screen.getByLabelText<HTMLTextAreaElement>('YAML');
    expect(yaml.value).toBe('name: first\nentrypoint: python3 train.py\nsearcher:\n  name: tpe\n');
    fireEvent.change(yaml, { target: { value: yaml.value.replace('first', 'second') } });
    await screen.findByText('no errors');
    await userEvent.click(screen.getByRole('button', { name: 'Submit' }));
    await waitFor(() => expect(posted.length).toBe(1));
    expect(posted[0]).toMatchObject(['experiments', { bundle: 'tree:its', forked_from: 1, source: { from: 'jupyterlab' } }]);
    expect((posted[0] as [string, { config_yaml: string }])[1].config_yaml).toContain('name: second');
  });

  it('leaves masks to the master, and says of which experiment they are', async () => {
    const config = { entrypoint: 'true', environment: { registry_auth: { password: '********' } } };
    const { asked } = opened({}, experiment(1, { bundle: 'tree:its', config: config as never }));
    await screen.findByText('no errors');
    expect(asked.at(-1)).toMatchObject(['judge', { forked_from: 1 }]);
    expect(screen.getByLabelText<HTMLTextAreaElement>('YAML').value).toContain('********');
  });

  it.each([
    ['own', 'vision', 'digits', 'workspace: ada/vision\nproject: digits\n'], ['write', 'ben/vision', 'Uncategorized', 'workspace: ben/vision\n'],
    ['read', 'vision', 'digits', ''], ['own', 'Uncategorized', 'mine', 'project: mine\n'], ['write', 'Uncategorized', 'mine', '']
  ])('lies beside the experiment for who may %s it', (may, workspace, project, text) => {
    const of = experiment(1, { owner: 'ada', may: may as 'own', workspace, project, config: { name: 'x', workspace: 'old' } as never });
    expect(forkText(of)).toBe(`name: x\n${text}`);
  });
});
