/** The code that an experiment runs, file by file. */

import { ReactElement, useMemo, useState } from 'react';

import { everyItem } from '../../state/api';
import { useApp } from '../../state/context';
import type { CodeFile } from '../../state/wire';
import { EmptyState, ErrorBanner, formatBytes, Loading, useLoaded } from '../common';
import { nameText, visible } from '../common/text';
import { CopyButton } from '../common/CopyButton';

/** Larger files are offered for download only. */
const MOST_BYTES = 1_000_000;

export function CodeTab({ id }: { id: number }): ReactElement {
  const { api } = useApp();
  const { data, error, reload } = useLoaded(`${id}`, signal => everyItem<CodeFile>(api, `experiments/${id}/code`, 'skip', signal));
  const [path, setPath] = useState<string | null>(null);
  if (error) {
    return error.status === 404
      ? <EmptyState title="This experiment was submitted without code." />
      : <ErrorBanner error={error} what="Code" onRetry={reload} />;
  }
  if (!data) return <Loading what="Loading the list of files" />;
  if (!data.length) return <EmptyState title="This experiment was submitted without code." />;
  const files = [...data].sort((a, b) => (a.path < b.path ? -1 : 1));
  const chosen = files.find(file => file.path === path) ?? likely(files);
  return (
    <div className="det-code-tab">
      <ul className="det-file-list" aria-label="Files">
        {files.map(file => (
          <li key={file.path}>
            <button type="button" className="det-file" aria-current={file === chosen || undefined} onClick={() => setPath(file.path)}>
              <span className="det-ellipsis det-mono" title={nameText(file.path)}>{nameText(file.path)}</span>
              <span className="det-soft det-num">{formatBytes(file.size)}</span>
            </button>
          </li>
        ))}
      </ul>
      <FileText key={chosen.digest + chosen.path} id={id} file={chosen} />
    </div>
  );
}

/** The file to show first: the likely entrypoint. */
function likely(files: readonly CodeFile[]): CodeFile {
  const rank = (file: CodeFile): number =>
    (/(^|\/)(train|main|model_def|run)\w*\.py$/.test(file.path) ? 0 : file.path.endsWith('.py') ? 1 : 2);
  return [...files].sort((a, b) => rank(a) - rank(b) || a.path.length - b.path.length)[0]!;
}

function FileText({ id, file }: { id: number; file: CodeFile }): ReactElement {
  const { api } = useApp();
  const address = `experiments/${id}/code/${encodeURIComponent(file.digest)}`;
  const fits = file.size <= MOST_BYTES;
  const { data, error, reload } = useLoaded(fits ? address : null, () => api.text(address));
  const lines = useMemo(() => (data === null ? [] : visible(data.replace(/\r\n?/g, '\n')).split('\n')), [data]);
  const download = <a className="det-button" href={api.href(address)} download={file.path.split('/').pop()}>Download</a>;
  return (
    <section className="det-file-text" aria-label={nameText(file.path)}>
      <div className="det-controls">
        <strong className="det-mono det-grow det-ellipsis">{nameText(file.path)}</strong>
        {data !== null && <CopyButton text={data} />}
        {download}
      </div>
      {error && <ErrorBanner error={error} what={nameText(file.path, 60)} onRetry={reload} />}
      {!fits && <EmptyState title={`${formatBytes(file.size)}: too large to show here.`} />}
      {fits && !error && data === null && <Loading what="Loading the file" />}
      {data !== null && (
        <div className="det-code-lines" tabIndex={0} role="group" aria-label="Text of the file">
          <pre className="det-line-numbers" aria-hidden="true">{lines.map((_, i) => i + 1).join('\n')}</pre>
          <pre className="det-code-text">{lines.join('\n')}</pre>
        </div>
      )}
    </section>
  );
}
