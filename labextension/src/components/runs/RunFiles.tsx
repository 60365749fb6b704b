/** The code of a run: commit, what differs from it, script, packages; and its other files. */

import { ReactElement } from 'react';

import { everyItem } from '../../state/api';
import { useApp } from '../../state/context';
import type { RunFileView, RunView } from '../../state/wire';
import { EmptyState, ErrorBanner, Loading, useLoaded } from '../common';
import { nameText } from '../common/text';
import { FileBrowser, type ShownFile } from '../view/FileBrowser';
import { goesOn } from './model';

const PACKAGES = 'requirements.txt';
/** What is shown as text; all else is saved. */
const TEXT = /(^|\/)[^/.]+$|\.(py|txt|md|rst|json|jsonl|ya?ml|toml|cfg|ini|csv|tsv|log|sh|patch|diff|xml|html?|svg|js|ts|c|h|cpp|cu|r|jl|ipynb)$/i;
const FACTS: [string, string][] = [
  ['mlflow.source.git.commit', 'Commit'], ['mlflow.source.git.branch', 'Branch'], ['mlflow.source.git.repoURL', 'Repository'],
  ['detlab.git.changed', 'Changed files'], ['mlflow.source.name', 'Script'], ['detlab.command', 'Command'], ['detlab.folder', 'Folder'],
  ['detlab.host', 'Machine'], ['detlab.python', 'Python'], ['detlab.platform', 'Platform']
];

function isCode(path: string): boolean {
  return path.startsWith('code/') || path === PACKAGES;
}

function useFiles(run: RunView, base: string): { files: RunFileView[] | null; failed: ReactElement | null } {
  const { api } = useApp();
  // Files come with the first seconds of a run, and may come until its end.
  const { data, error, reload } = useLoaded(`${run.id} ${run.status} ${goesOn(run) ? run.heard_at : ''}`, signal => everyItem<RunFileView>(api, `${base}/files`, 'skip', signal));
  return { files: data, failed: error && !data ? <ErrorBanner error={error} what="Files" onRetry={reload} /> : null };
}

function shown(base: string, file: RunFileView): ShownFile {
  return { path: file.path, size: file.size, address: `${base}/file?path=${encodeURIComponent(file.path)}`, text: TEXT.test(file.path), version: String(file.updated_at) };
}

export function RunCode({ run, base }: { run: RunView; base: string; reload: () => void }): ReactElement {
  const { files, failed } = useFiles(run, base);
  const facts = FACTS.filter(([tag]) => run.tags[tag]);
  const code = files?.filter(file => isCode(file.path)) ?? [];
  if (failed) return failed;
  if (!files) return <Loading what="Loading the list of files" />;
  if (!code.length && !facts.length) {
    return (
      <EmptyState title={goesOn(run) ? 'No code yet.' : 'The code of this run was not kept.'}>
        <p><code>det.init</code> and <code>det track</code> keep the commit, what differs from it, the script and the installed packages.</p>
      </EmptyState>
    );
  }
  return (
    <div className="det-run-code">
      {facts.length > 0 && (
        <table className="det-facts-table">
          <tbody>{facts.map(([tag, name]) => <tr key={tag}><th scope="row">{name}</th><td className="det-mono">{nameText(run.tags[tag]!, 1000)}</td></tr>)}</tbody>
        </table>
      )}
      {code.length > 0 && <FileBrowser files={code.map(file => shown(base, file))} />}
    </div>
  );
}

export function RunFiles({ run, base }: { run: RunView; base: string }): ReactElement {
  const { files, failed } = useFiles(run, base);
  const others = files?.filter(file => !isCode(file.path)) ?? [];
  if (failed) return failed;
  if (!files) return <Loading what="Loading the list of files" />;
  if (!others.length) {
    return (
      <EmptyState title={goesOn(run) ? 'No files yet.' : 'This run has no files beside its code.'}>
        <p>Clients of MLflow log some with <code>mlflow.log_artifact(path)</code>; code and packages are in the tab Code.</p>
      </EmptyState>
    );
  }
  return <FileBrowser files={others.map(file => shown(base, file))} />;
}
