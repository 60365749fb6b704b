/** The files of a version's checkpoint. */

import type { ReactElement } from 'react';

import { useApp } from '../../../state/context';
import type { CheckpointView, VersionView } from '../../../state/wire';
import { Sheet } from '../../admin/parts';
import { EmptyState, ErrorBanner, formatBytes, Loading, useLoaded } from '../../common';
import { nameText } from '../../common/text';

export function Files({ version }: { version: VersionView }): ReactElement {
  const { api } = useApp();
  const path = `checkpoints/${encodeURIComponent(version.checkpoint)}`;
  const { data, error, reload } = useLoaded(path, signal => api.get<CheckpointView>(path, signal));
  if (error && !data) return <ErrorBanner error={error} what="Files" onRetry={reload} />;
  if (!data) return <Loading what="Loading the list of files" />;
  const files = Object.entries(data.files).sort(([a], [b]) => (a < b ? -1 : 1));
  if (!files.length) return <EmptyState title={data.state === 'DELETED' ? 'The files were deleted.' : 'No files.'} />;
  const gone = data.state === 'DELETED';
  return (
    <Sheet label="Files" head={<><th>File</th><th className="det-right">Size</th><th>Digest</th></>}>
      {files.map(([name, file]) => (
        <tr key={name}>
          <td className="det-adm-wide det-mono">
            {gone ? nameText(name) : <a download={name.split('/').pop()} href={api.href(`${path}/files/${encodeURIComponent(file.digest)}`)}>{nameText(name)}</a>}
          </td>
          <td className="det-right det-num">{formatBytes(file.size)}</td>
          <td className="det-mono det-soft" title={nameText(file.digest)}>{nameText(file.digest, 19)}</td>
        </tr>
      ))}
    </Sheet>
  );
}
