/** How a file of the code differs: lines as text, their signs and colours by what was done to them. */

import { ReactElement, useMemo } from 'react';

import type { FileDifference, VersionView } from '../../../state/wire';
import { visible, nameText } from '../../common/text';
import { diffLines } from '../model';

/** Lines that are drawn. */
const MOST = 3000;
const WORDS = { add: 'added: ', del: 'removed: ', hunk: '', head: '', same: '' };

export function CodeDiff({ file, versions = [], names }: {
  file: FileDifference; versions?: readonly Pick<VersionView, 'version'>[];
  /** What the sides are called, where they are no versions. */
  names?: readonly string[];
}): ReactElement {
  const lines = useMemo(() => (file.diff ? diffLines(file.diff) : []), [file.diff]);
  const added = lines.filter(line => line.kind === 'add').length;
  const removed = lines.filter(line => line.kind === 'del').length;
  if (!lines.length) {
    return <p className="det-diff-none"><span className="det-mono">{nameText(file.path)}</span> <span className="det-soft">{whyNone(file, names ?? versions.map(one => `version ${one.version}`))}</span></p>;
  }
  return (
    <details className="det-diff" open={lines.length < 200}>
      <summary>
        <span className="det-mono">{nameText(file.path)}</span>{' '}
        <span className="det-soft det-num">+{added} −{removed}</span>
      </summary>
      <div className="det-diff-lines" tabIndex={0} role="group" aria-label={`Diff of ${nameText(file.path, 200)}`}>
        {lines.slice(0, MOST).map((line, i) => (
          <div key={i} className="det-diff-line" data-line={line.kind}>
            {WORDS[line.kind] && <span className="det-hidden">{WORDS[line.kind]}</span>}
            {visible(line.text) || ' '}
          </div>
        ))}
        {lines.length > MOST && <div className="det-soft">… {lines.length - MOST} more lines</div>}
      </div>
    </details>
  );
}

/** Why there is no diff. */
function whyNone(file: FileDifference, names: readonly string[]): string {
  const has = names.filter((_, i) => file.digests[i]);
  if (has.length === names.length) return 'differs; binary, or too long to compare';
  return has.length ? `only in ${has.join(', ')}` : 'in none';
}
