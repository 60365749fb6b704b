/** Choose the code of an experiment: files of this computer, or the code of an earlier experiment. */

import { useEffect, useRef, useState, type DragEvent, type ReactElement } from 'react';

import { ErrorBanner, formatBytes, plural } from '../../components/common';
import { nameText } from '../../components/common/text';
import { EarlierCode } from '../../form/EarlierCode';
import type { ExperimentView } from '../../state/wire';
import { fromDrop, fromFiles } from './gather';
import { IGNORE_FILE } from './ignore';
import { MOST_FILES } from './select';
import type { Code, Coded } from './useCode';

const MOST_SHOWN = 200;

export function CodeChoice({ coded, mostBytes, source, onSource }: {
  coded: Coded; mostBytes: number; source: ExperimentView | null; onSource: (one: ExperimentView | null) => void;
}): ReactElement {
  const { state } = coded;
  const choose = (files: FileList | null): void => {
    if (files?.length) void coded.take(fromFiles([...files]));
  };
  const drop = useDrop(data => void coded.take(fromDrop(data)));
  return (
    <fieldset className="det-code-choice">
      <legend>Code to upload</legend>
      <div className="det-hub-drop" {...drop}>
        <div className="det-hub-dropline">
          <Picker label="Choose files or a .zip …" onFiles={choose} />
          <Picker label="Choose a folder …" folder onFiles={choose} />
          <span className="det-soft">or drop them here</span>
        </div>
        <p className="det-about">
          At most {MOST_FILES.toLocaleString('en')} files and {formatBytes(mostBytes)}. Files that match {IGNORE_FILE} are left out, as
          are .git, .venv, node_modules and __pycache__.
        </p>
        {state.kind === 'bad' && <ErrorBanner error={state.error} what="The code" />}
        {state.kind === 'ready' && <Ready code={state.code} />}
        <div className="det-hub-dropline">
          <span role="status" className={state.kind === 'busy' ? undefined : 'det-hidden'}>
            {state.kind === 'busy' ? state.word : state.kind === 'ready' ? `${sizeOf(state.code)} uploaded` : ''}
          </span>
          {state.kind !== 'none' && (
            <button type="button" className="det-button" onClick={coded.clear}>{state.kind === 'busy' ? 'Stop' : 'Remove'}</button>
          )}
        </div>
      </div>
      {state.kind === 'none' && <EarlierCode chosen={source} onChoose={onSource} />}
    </fieldset>
  );
}

function Ready({ code }: { code: Code }): ReactElement {
  const { files, left } = code.selection;
  const stay = [left && plural(left, 'file'), code.folders && plural(code.folders, 'folder')].filter(Boolean).join(' and ');
  return (
    <>
      <p className="det-hub-code">
        <strong>{sizeOf(code)}</strong>{code.from ? <> of <bdi>{nameText(code.from)}</bdi></> : null}{' '}
        <span className="det-soft">({formatBytes(code.packed)} packed){stay && `; ${stay} left out`}</span>
      </p>
      <details>
        <summary>Files</summary>
        <ul className="det-hub-files det-mono" tabIndex={0} aria-label="Files to upload">
          {[...files].sort((a, b) => (a.path < b.path ? -1 : 1)).slice(0, MOST_SHOWN).map(file => (
            <li key={file.path}><bdi>{nameText(file.path, 1024)}</bdi> <span className="det-soft">{formatBytes(file.size)}</span></li>
          ))}
          {files.length > MOST_SHOWN && <li>… and {files.length - MOST_SHOWN} more</li>}
        </ul>
      </details>
    </>
  );
}

function sizeOf({ selection }: Code): string {
  return `${plural(selection.files.length, 'file')}, ${formatBytes(selection.size)}`;
}

/** A button that opens the browser's file dialog; the input itself is hidden. */
function Picker({ label, folder, onFiles }: {
  label: string; folder?: boolean; onFiles: (files: FileList | null) => void;
}): ReactElement {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (folder) input.current!.webkitdirectory = true; // React knows no such attribute
  }, [folder]);
  return (
    <>
      <button type="button" className="det-button" onClick={() => input.current!.click()}>{label}</button>
      <input
        ref={input} type="file" multiple hidden tabIndex={-1} aria-label={label}
        onChange={event => {
          onFiles(event.target.files);
          event.target.value = ''; // so that choosing the same files again is a change
        }}
      />
    </>
  );
}

function useDrop(onDrop: (data: DataTransfer) => void): object {
  const [over, setOver] = useState(false);
  const carries = (event: DragEvent): boolean => event.dataTransfer.types.includes('Files');
  return {
    'data-over': over ? '' : undefined,
    onDragOver: (event: DragEvent) => {
      if (!carries(event)) return;
      event.preventDefault();
      setOver(true);
    },
    onDragLeave: (event: DragEvent) => {
      if (!event.currentTarget.contains(event.relatedTarget as Node | null)) setOver(false);
    },
    onDrop: (event: DragEvent) => {
      if (!carries(event)) return;
      event.preventDefault();
      setOver(false);
      onDrop(event.dataTransfer);
    }
  };
}
