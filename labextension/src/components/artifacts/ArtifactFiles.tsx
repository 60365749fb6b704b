/** The files of a version: saved by a click; a reference is its address as text, which nothing here opens. */

import type { ReactElement } from 'react';

import { useApp } from '../../state/context';
import type { ArtifactFile, ArtifactVersionView } from '../../state/wire';
import { Sheet } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, formatBytes, Loading } from '../common';
import { CopyButton } from '../common/CopyButton';
import { usePaged } from '../common/loading/usePaged';
import { nameText } from '../common/text';

const PAGE = 200;

export function ArtifactFiles({ version, path }: { version: ArtifactVersionView; path: string }): ReactElement {
  const { items, error, more, reload, showMore } = usePaged<ArtifactFile>(`${path}/files?limit=${PAGE}`);
  if (error && !items) return <ErrorBanner error={error} what="Files" onRetry={reload} />;
  if (!items) return <Loading what="Loading the list of files" />;
  if (!items.length) return <EmptyState title="No files." />;
  return (
    <>
      <Sheet label="Files" head={<><th>File</th><th className="det-right">Size</th><th>Digest</th></>}>
        {items.map(file => (
          <tr key={file.path}>
            <td className="det-adm-wide det-mono">{file.uri ? <Reference file={file} /> : <Saved file={file} path={path} />}</td>
            <td className="det-right det-num">{file.uri && !file.size ? '–' : formatBytes(file.size)}</td>
            <td className="det-mono det-soft" title={nameText(file.digest)}>{nameText(file.digest, 19)}</td>
          </tr>
        ))}
      </Sheet>
      {more && <p className="det-adm-more"><ActionButton label={`Show more of ${version.files}`} onRun={showMore} /></p>}
    </>
  );
}

function Saved({ file, path }: { file: ArtifactFile; path: string }): ReactElement {
  const { api } = useApp();
  return <a download={file.path.split('/').pop()} href={api.href(`${path}/file?path=${encodeURIComponent(file.path)}`)}><bdi>{nameText(file.path)}</bdi></a>;
}

function Reference({ file }: { file: ArtifactFile }): ReactElement {
  return (
    <>
      <bdi>{nameText(file.path)}</bdi> <span className="det-soft">→ <bdi>{nameText(file.uri, 400)}</bdi></span> <CopyButton text={file.uri} what="the address" />
    </>
  );
}
