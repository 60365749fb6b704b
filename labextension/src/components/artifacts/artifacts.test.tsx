/** Pages of artifacts: list, one, a version with files and lineage, those of a run; rights, deletion, hostile names. */

import { fireEvent, screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { describe, expect, it } from 'vitest';

import { FixtureApi } from '../../harness/api';
import { artifact, files, lineage, ofRun, RUN, version } from '../../harness/artifacts';
import { pathOf, placeOf } from '../../hub/router';
import { type Api, ApiError } from '../../state/api';
import { show, type Shown } from '../../testing/app';
import { overview } from '../../testing/fixtures';
import { Panel } from '../panel';
import { ArtifactPage, ArtifactsPage, ArtifactVersionPage, RunArtifacts, runOfTrial } from './index';
import { artifactsPath, downloadCommand, useCode } from './paths';

const page = (items: unknown[], next: unknown = null): unknown => ({ items, next });
const answers = { overview: overview(), artifacts: page([artifact(0), artifact(1)]), 'artifacts/cats': artifact(0), 'artifacts/cats/versions': page([version(3), version(1)]) };
const OF_VERSION = {
  ...answers, 'artifacts/cats/versions/3': version(3), 'artifacts/cats/versions/3/files': page(files()), 'artifacts/cats/versions/3/lineage': lineage()
};
const opened = (more: Record<string, unknown> = {}): Shown => show(<ArtifactVersionPage artifact="cats" version={3} />, { ...OF_VERSION, ...more });

describe('the list', () => {
  it('teaches where there is none', async () => {
    show(<ArtifactsPage />, { overview: overview(), artifacts: page([]) });
    expect(await screen.findByText('det artifact log cats data/cats')).toBeTruthy();
    expect(screen.getAllByRole('button', { name: 'Copy' })).toHaveLength(2);
    expect(screen.queryByRole('searchbox')).toBeNull();
  });

  it('shows kind, aliases, versions, size and owner, and opens one', async () => {
    const { done } = show(<ArtifactsPage />, answers);
    const [, first, second] = within(await screen.findByRole('region', { name: 'Artifacts' })).getAllByRole('row');
    for (const text of ['cats', 'dataset', 'production', 'v3', '7.0 MiB', 'alice']) expect(first!.textContent).toContain(text);
    fireEvent.click(within(second!).getByRole('button', { name: 'lines' }));
    expect(done.at(-1)).toBe(`navigate ${JSON.stringify({ kind: 'artifact', artifact: 'bob/lines' })}`);
  });

  it('asks the master for a name, an owner and a kind, and for the next page', async () => {
    const { api } = show(<ArtifactsPage />, { ...answers, artifacts: page([artifact(0)], 7), 'artifacts?limit=50&after=7': page([artifact(2)]) });
    fireEvent.click(await screen.findByRole('button', { name: 'Show more' }));
    expect(await screen.findByRole('button', { name: 'line-fit' })).toBeTruthy();
    await userEvent.selectOptions(screen.getByRole('combobox', { name: 'Kind' }), 'dataset');
    await waitFor(() => expect(api.asked).toContain('GET artifacts?limit=50&kind=dataset'));
    expect(artifactsPath({ search: 'owner:ada%b big cats', kind: '' })).toBe('artifacts?limit=50&owner=ada%25b&name=big%20cats');
  });
});

describe('one artifact', () => {
  it('shows its versions, and leads to one', async () => {
    const { done } = show(<ArtifactPage artifact="cats" />, answers);
    const rows = within(await screen.findByRole('region', { name: 'Versions of cats' })).getAllByRole('row');
    expect(rows).toHaveLength(3);
    expect(rows[1]!.textContent).toContain('Without the blurred ones');
    fireEvent.click(within(rows[1]!).getByRole('button', { name: 'v3' }));
    expect(done.at(-1)).toBe(`navigate ${JSON.stringify({ kind: 'artifactversion', artifact: 'cats', version: 3 })}`);
  });

  it('is deleted after a question, and after another one if it is in use', async () => {
    const refused = new ApiError(409, { code: 'conflict', message: "artifact 'cats' is not deleted: 2 runs use it", hint: '--force' });
    const { api, done } = show(<ArtifactPage artifact="cats" />, { ...answers, 'DELETE artifacts/cats': refused, 'DELETE artifacts/cats?force=true': {} });
    fireEvent.click(await screen.findByRole('button', { name: /More actions/ }));
    fireEvent.click(screen.getByRole('menuitem', { name: /Delete/ }));
    await waitFor(() => expect(api.asked).toContain('DELETE artifacts/cats?force=true'));
    expect(done.filter(line => line.startsWith('confirm'))).toEqual(['confirm Delete artifact cats?', 'confirm Delete artifact cats nevertheless?']);
    await waitFor(() => expect(done).toContain(`navigate ${JSON.stringify({ kind: 'artifacts' })}`));
  });

  it('of somebody else is neither changed nor deleted', async () => {
    show(<ArtifactPage artifact="bob/lines" />, { ...answers, 'artifacts/bob%2Flines': artifact(1), 'artifacts/bob%2Flines/versions': page([]) });
    expect((await screen.findByRole('button', { name: 'Edit' })).getAttribute('aria-disabled')).toBe('true');
    fireEvent.click(screen.getByRole('button', { name: /More actions/ }));
    expect(screen.getByRole('menuitem', { name: /Delete/ }).getAttribute('aria-disabled')).toBe('true');
  });

  it('sends only what was changed', async () => {
    const { api } = show(<ArtifactPage artifact="cats" />, { ...answers, 'POST artifacts/cats/edit': artifact(0) });
    fireEvent.click(await screen.findByRole('button', { name: 'Edit' }));
    fireEvent.change(screen.getByLabelText('Description'), { target: { value: 'Only small ones' } });
    fireEvent.click(screen.getByRole('button', { name: 'Save' }));
    await waitFor(() => expect(api.bodies).toEqual([{ description: 'Only small ones' }]));
  });

  it('that is not there says so', async () => {
    show(<ArtifactPage artifact="dogs" />, { overview: overview() });
    expect(await screen.findByText(/Artifact dogs/)).toBeTruthy();
  });
});

describe('a version', () => {
  it('has its files as downloads, and references as text', async () => {
    const { container } = opened();
    const table = await screen.findByRole('region', { name: 'Files' });
    const links = within(table).getAllByRole('link');
    expect(links.map(link => link.getAttribute('href'))).toContain('/api/v1/artifacts/cats/versions/3/file?path=images%2Fa%26b.png');
    expect(links).toHaveLength(3);
    expect(links[0]!.hasAttribute('download')).toBe(true);
    expect(table.textContent).toContain('s3://bucket/cats/train.tar');
    expect(container.querySelector('a[href^="s3"]')).toBeNull();
  });

  it('draws where it comes from and what was made with it, with ways there', async () => {
    const { done } = opened();
    fireEvent.click(await screen.findByRole('tab', { name: /Lineage/ }));
    const list = await screen.findByRole('list', { name: 'Lineage' });
    expect(screen.getByRole('img', { name: 'Lineage graph of 7 nodes' })).toBeTruthy();
    for (const [name, place] of [
      ['bob/lines:v1', { kind: 'artifactversion', artifact: 'bob/lines', version: 1 }], ['digits@5', { kind: 'version', model: 'digits', version: 5 }], [RUN, { kind: 'run', id: RUN }]
    ] as const) {
      fireEvent.click(within(list).getByRole('button', { name }));
      expect(done.at(-1)).toBe(`navigate ${JSON.stringify(place)}`);
    }
  });

  it('names its runs, of which one is a trial, and its metadata', async () => {
    const { done } = opened();
    fireEvent.click(await screen.findByRole('tab', { name: /Runs/ }));
    fireEvent.click(screen.getByRole('button', { name: 'Trial 105' }));
    expect(done.at(-1)).toBe(`navigate ${JSON.stringify({ kind: 'trial', id: 105 })}`);
    fireEvent.click(screen.getByRole('tab', { name: /Metadata/ }));
    expect(screen.getByRole('rowheader', { name: 'rows' })).toBeTruthy();
  });

  it('takes aliases and gives them', async () => {
    const { api } = opened({ 'POST artifacts/cats/versions/3/edit': version(3) });
    fireEvent.click(await screen.findByRole('button', { name: 'Edit' }));
    expect((screen.getByLabelText(/^Aliases/) as HTMLInputElement).value).toBe('production');
    fireEvent.change(screen.getByLabelText(/^Aliases/), { target: { value: 'best, checked' } });
    fireEvent.click(screen.getByRole('button', { name: 'Save' }));
    await waitFor(() => expect(api.bodies).toEqual([{ add_aliases: ['best', 'checked'], remove_aliases: ['production'] }]));
  });

  it('is used by code that names it safely', () => {
    const odd = version(2, { artifact_reference: 'bob/it\'s "new"' });
    expect(useCode(odd)).toBe('artifact = run.use_artifact("bob/it\'s \\"new\\":v2")\nfolder = artifact.download()');
    expect(downloadCommand(odd)).toBe(`det artifact download 'bob/it'\\''s "new":v2'`);
  });
});

describe('the artifacts of a run', () => {
  it('are those that it made and used', async () => {
    const { api, done } = show(<RunArtifacts run={runOfTrial(105)} round={0} over />, { overview: overview(), [`runs/${runOfTrial(105)}/artifacts`]: page(ofRun()) });
    const rows = within(await screen.findByRole('region', { name: 'Artifacts' })).getAllByRole('row');
    expect(rows.slice(1).map(row => within(row).getAllByRole('cell')[1]!.textContent)).toEqual(['used it', 'made it']);
    fireEvent.click(screen.getByRole('button', { name: 'cats:v3' }));
    expect(done.at(-1)).toContain('artifactversion');
    expect(api.asked.some(path => path.includes('00000069'))).toBe(true);
  });

  it('teach where there are none', async () => {
    show(<RunArtifacts run={RUN} round={0} over={false} />, { overview: overview(), [`runs/${RUN}/artifacts`]: page([]) });
    expect(await screen.findByText('No artifacts yet.')).toBeTruthy();
  });
});

it('the panel has the newest, those that fit its filter', async () => {
  const { done } = show(<Panel />, { ...answers, models: { items: [], after: null } });
    const list = await screen.findByRole('list', { name: 'Artifacts' });
    expect(within(list).getAllByRole('listitem')).toHaveLength(2);
    fireEvent.click(screen.getByRole('button', { name: 'All artifacts' }));
    expect(done.at(-1)).toBe(`navigate ${JSON.stringify({ kind: 'artifacts' })}`);
    fireEvent.change(screen.getByLabelText('Filter'), { target: { value: 'lines' } });
    expect(within(list).getAllByRole('listitem')).toHaveLength(1);
});

it('addresses lead back to their places', () => {
  for (const place of [{ kind: 'artifact', artifact: 'bob/big cats' }, { kind: 'artifactversion', artifact: 'cats', version: 3 }] as const) expect(placeOf(pathOf(place))).toEqual(place);
  expect(placeOf('artifacts')).toEqual({ kind: 'list', view: 'artifacts' });
  for (const path of ['artifacts/cats/versions', 'artifacts/cats/versions/x', 'artifacts/cats/files/1']) expect(placeOf(path).kind).toBe('nowhere');
});

it('hostile names are text on every page', async () => {
  const pages = [<ArtifactsPage key="a" />, <ArtifactPage key="b" artifact="x" />, <ArtifactVersionPage key="c" artifact="x" version={3} />];
  for (const element of pages) {
    const { container, unmount } = show(element, {}, { api: new FixtureApi({ trials: 3, curves: 0, points: 0, logs: 0, experiments: 1, hostile: true }) as Api });
    await waitFor(() => expect(container.textContent).toContain('<script>window.hacked=1'));
    const lines = screen.queryByRole('tab', { name: /Lineage/ });
    if (lines) {
      await screen.findByRole('region', { name: 'Files' });
      expect(container.textContent).toContain('javascript:alert(1)');
      fireEvent.click(lines);
      await screen.findByRole('list', { name: 'Lineage' });
    }
    expect(container.querySelector('script, img, svg[onload], a[href^="javascript"]')).toBeNull();
    expect(container.textContent).not.toContain('\u202e');
    unmount();
  }
});
