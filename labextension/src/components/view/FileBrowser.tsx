/** Files with the text of one of them beside their list. */

import { ReactElement, useMemo, useState } from 'react';

import { useApp } from '../../state/context';
import { EmptyState, ErrorBanner, formatBytes, Loading, useLoaded } from '../common';
import { nameText, visible } from '../common/text';
import { CopyButton } from '../common/CopyButton';

/** Larger files are offered for download only. */
const MOST_BYTES = 1_000_000;
/** Files that are listed at first. */
const MOST_LISTED = 500;

export interface ShownFile {
  path: string;
  /** Bytes. */
  size: number;
  /** Of its bytes, below the API. */
  address: string;
  /** Shown as text; else it is saved. */
  text: boolean;
  /** Changes with its bytes. */
  version: string;
}

export function FileBrowser({ files: given }: { files: readonly ShownFile[] }): ReactElement {
  const [path, setPath] = useState<string | null>(null);
  const [most, setMost] = useState(MOST_LISTED);
  const files = useMemo(() => [...given].sort((a, b) => (a.path < b.path ? -1 : 1)), [given]);
  const chosen = files.find(file => file.path === path) ?? likely(files);
  return (
    <div className="det-code-tab">
      <ul className="det-file-list" aria-label="Files">
        {files.slice(0, most).map(file => (
          <li key={file.path}>
            <button type="button" className="det-file" aria-current={file === chosen || undefined} onClick={() => setPath(file.path)}>
              <span className="det-ellipsis det-mono" title={nameText(file.path)}>{nameText(file.path)}</span>
              <span className="det-soft det-num">{formatBytes(file.size)}</span>
            </button>
          </li>
        ))}
        {files.length > most && <li><button type="button" className="det-link" onClick={() => setMost(10 * most)}>Show more ({files.length - most})</button></li>}
      </ul>
      <FileText key={chosen.version + chosen.path} file={chosen} />
    </div>
  );
}

/** The file to show first: the likely entrypoint. */
function likely(files: readonly ShownFile[]): ShownFile {
  const rank = (file: ShownFile): number =>
    (/(^|\/)(train|main|model_def|run)\w*\.py$/.test(file.path) ? 0 : file.path.endsWith('.py') ? 1 : 2);
  return [...files].sort((a, b) => rank(a) - rank(b) || a.path.length - b.path.length)[0]!;
}

function FileText({ file }: { file: ShownFile }): ReactElement {
  const { api } = useApp();
  const { address } = file;
  const fits = file.size <= MOST_BYTES;
  const { data, error, reload } = useLoaded(fits && file.text ? `${address} ${file.version}` : null, () => api.text(address));
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
      {fits && !file.text && <EmptyState title="Not shown here: save it to look." />}
      {fits && file.text && !error && data === null && <Loading what="Loading the file" />}
      {data !== null && (
        <div className="det-code-lines" tabIndex={0} role="group" aria-label="Text of the file">
          <pre className="det-line-numbers" aria-hidden="true">{lines.map((_, i) => i + 1).join('\n')}</pre>
          <pre className="det-code-text">{lines.join('\n')}</pre>
        </div>
      )}
    </section>
  );
}
