/** The code that an experiment runs, file by file. */

import type { ReactElement } from 'react';

import { everyItem } from '../../state/api';
import { useApp } from '../../state/context';
import type { CodeFile } from '../../state/wire';
import { EmptyState, ErrorBanner, Loading, useLoaded } from '../common';
import { FileBrowser } from '../view/FileBrowser';

export function CodeTab({ id }: { id: number }): ReactElement {
  const { api } = useApp();
  const { data, error, reload } = useLoaded(`${id}`, signal => everyItem<CodeFile>(api, `experiments/${id}/code`, 'skip', signal));
  if (error) {
    return error.status === 404
      ? <EmptyState title="This experiment was submitted without code." />
      : <ErrorBanner error={error} what="Code" onRetry={reload} />;
  }
  if (!data) return <Loading what="Loading the list of files" />;
  if (!data.length) return <EmptyState title="This experiment was submitted without code." />;
  return <FileBrowser files={data.map(file => ({ path: file.path, size: file.size, address: `experiments/${id}/code/${encodeURIComponent(file.digest)}`, text: true, version: file.digest }))} />;
}
