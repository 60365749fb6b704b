/** A trial's hyperparameters, metric summary and metadata. */

import { ReactElement, useMemo } from 'react';
import { stringify } from 'yaml';

import type { SummaryView, TrialView } from '../../state/wire';
import { flatten } from '../charts/parallel';
import { EmptyState, formatNumber } from '../common';
import { CopyButton } from '../common/CopyButton';
import { nameText, visible } from '../common/text';
import { pointWord } from '../view/progress';

export function HparamsTab({ trial }: { trial: TrialView }): ReactElement {
  const values = useMemo(() => Object.entries(flatten(trial.hparams)), [trial.hparams]);
  const word = pointWord(trial);
  const metadata = Object.keys(trial.metadata).length ? stringify(trial.metadata, { lineWidth: 0 }) : '';
  return (
    <div className="det-hparams-tab">
      {values.length ? (
        <>
          <div className="det-controls">
            <span className="det-soft">Chosen by the searcher or constant; seed {trial.seed}.</span>
            <CopyButton text={JSON.stringify(trial.hparams)} label="Copy as JSON" />
          </div>
          <table className="det-facts-table">
            <thead><tr><th scope="col">Hyperparameter</th><th scope="col">Value</th></tr></thead>
            <tbody>
              {values.map(([name, value]) => (
                <tr key={name}><th scope="row">{nameText(name)}</th><td>{value === null ? 'null' : nameText(String(value))}</td></tr>
              ))}
            </tbody>
          </table>
        </>
      ) : <EmptyState title={word ? `Hyperparameters: ${word}.` : 'This trial has no hyperparameters.'} />}
      <Summaries summary={trial.summary} leftOut={trial.summary_left_out} />
      {metadata && <><h2>Metadata</h2><pre className="det-code-text" tabIndex={0} aria-label="Metadata">{visible(metadata)}</pre></>}
    </div>
  );
}

/** Rows drawn of the summary; a trial may report thousands of names. */
const MOST = 300;

function Summaries({ summary, leftOut }: {
  summary: Record<string, Record<string, SummaryView>>; leftOut: number;
}): ReactElement | null {
  const rows = Object.entries(summary).flatMap(([group, names]) => Object.entries(names).map(([name, s]) => ({ group, name, s })));
  if (!rows.length) return null;
  const all = rows.length + leftOut;
  return (
    <>
      <h2>Metric summary{all > MOST ? ` (${MOST} of ${all})` : ''}</h2>
      <div className="det-x-scroll" tabIndex={0} role="group" aria-label="Metric summary">
        <table className="det-facts-table det-numbers">
          <thead>
            <tr>{['Metric', 'Last', 'Min', 'Max', 'Mean', 'Reports', 'NaN'].map(t => <th key={t} scope="col">{t}</th>)}</tr>
          </thead>
          <tbody>
            {rows.slice(0, MOST).map(({ group, name, s }) => (
              <tr key={`${group}\n${name}`}>
                <th scope="row">{nameText(group, 40)} / {nameText(name, 80)}</th>
                {[formatNumber(s.last), formatNumber(s.min), formatNumber(s.max), formatNumber(s.mean), s.count, s.nan_count].map((cell, i) => <td key={i}>{cell}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
