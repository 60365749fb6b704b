/** What a version was made of and by, as recorded when it was registered. */

import type { ReactElement, ReactNode } from 'react';

import { stringify } from 'yaml';

import type { VersionView } from '../../../state/wire';
import { Go } from '../../admin/parts';
import { formatNumber, formatTime, plural } from '../../common';
import { CopyButton } from '../../common/CopyButton';
import { nameText, visible } from '../../common/text';
import { metricNames } from '../model';
import { Values } from '../../view/Values';

/** What each level of a source promises, and what not: as detlab.governance.levels says it. */
const PROMISED: Record<string, string> = {
  direct: 'its loss adds nothing to what is closed to it; not promised: that it has no influence there, since it changes what is open to it',
  isolated: 'all but its own modules is the same whatever its samples hold; not promised: privacy, nor what its own modules memorise',
  dp: 'each of its records is protected by epsilon and delta; not promised: people with several records, or several trials together',
  unknown: 'a matrix under which it was trained on is not recorded; nothing is promised'
};

export function Origin({ version }: { version: VersionView }): ReactElement {
  const { lineage: l } = version;
  const searched = l.metric && l.metric in l.metrics ? `${nameText(l.metric, 60)} ${formatNumber(l.metrics[l.metric])} (${l.smaller_is_better ? 'less' : 'more'} is better)` : null;
  const levels = Object.keys(PROMISED).filter(level => l.governed?.sources.some(source => source.level === level));
  const facts: [string, ReactNode][] = [
    ['Experiment', l.experiment_id !== null && <Go to={{ kind: 'experiment', id: l.experiment_id }}>{l.experiment_id}{l.experiment_name && <> · <bdi>{nameText(l.experiment_name, 120)}</bdi></>}</Go>],
    ['Trial', l.trial_id !== null && <><Go to={{ kind: 'trial', id: l.trial_id, experiment: l.experiment_id ?? undefined }}>{l.trial_id}</Go>{l.run !== null && <span className="det-soft">, attempt {l.run}</span>}</>],
    ['Step', l.steps_completed],
    ['Searched metric', searched],
    ['Submitted by', nameText(l.submitter, 60)],
    ['Trained', l.started_at !== null && `${formatTime(l.started_at)}${l.ended_at !== null ? ` – ${formatTime(l.ended_at)}` : ''}`],
    ['Hardware', [l.slots > 0 && plural(l.slots, 'slot'), nameText(l.device, 80)].filter(Boolean).join(', ')],
    ['Checkpoint', <Digest key="c" text={version.checkpoint} what="the checkpoint's uuid" />],
    ['Manifest', version.manifest_digest && <Digest text={version.manifest_digest} what="the manifest's digest" />],
    ['Code', l.bundle_digest && <Digest text={l.bundle_digest} what="the code's digest" />],
    ['Governed', l.governed && <>{l.governed.enforce === 'audit' && 'not enforced (audit): no level is promised; '}entry {l.governed.ledger_index} of the trial’s ledger <span className="det-soft">(check: <code>det governance verify {version.checkpoint.slice(0, 8)}</code>)</span></>],
    ['Privacy', l.governed?.privacy && <>epsilon {formatNumber(l.governed.privacy.epsilon)} at delta {formatNumber(l.governed.privacy.delta)} for each record <span className="det-soft">(what other trials have spent is not in it)</span></>],
    ['Trained on', l.governed && l.governed.sources.length > 0 && l.governed.sources.map(source => (
      <span key={source.name} className="det-origin-parent"><bdi>{nameText(source.name, 60)}</bdi>: {plural(source.samples, 'sample')}{source.license && <span className="det-soft">, <bdi>{nameText(source.license, 60)}</bdi></span>}{source.level && <>, level <bdi>{nameText(source.level, 20)}</bdi></>}{!source.reached && <span className="det-soft"> (seen, but closed to all layers)</span>}</span>
    ))],
    ['Levels', levels.length > 0 && levels.map(level => <span key={level} className="det-origin-parent">{level}: <span className="det-soft">{PROMISED[level]}</span></span>)],
    ['Withdrawn', version.withdrawn.length > 0 && version.withdrawn.map(why => <span key={why} className="det-origin-parent"><bdi>{nameText(why, 600)}</bdi></span>)],
    ['Policy', l.governed && <Digest text={l.governed.policy_hash} what="the policy's hash" />],
    ['Started from', l.parents.length > 0 && l.parents.map(parent => <span key={parent} className="det-mono det-origin-parent">{nameText(parent, 60)}</span>)]
  ];
  return (
    <div className="det-origin">
      <dl className="det-origin-facts">
        {facts.map(([name, value]) => (value === false || value === null || value === undefined || value === '' ? null : <div key={name}><dt>{name}</dt><dd>{value}</dd></div>))}
      </dl>
      <div className="det-origin-parts">
        <Part title="Metrics at this step" values={Object.fromEntries(metricNames([version]).map(name => [name, l.metrics[name]]))} measured empty="None were reported at this step." />
        <Part title="Hyperparameters" values={l.hyperparameters} empty="None." />
        <Part title="Data" values={l.data} empty={<>No digests were declared (config: <code>data: {'{digests: …}'}</code>).</>} />
      </div>
      <Environment environment={l.environment} />
      {Object.keys(l.config).length > 0 && (
        <details className="det-fold-part">
          <summary>Config</summary>
          <pre className="det-code-text" tabIndex={0}>{visible(stringify(l.config, { lineWidth: 0 }))}</pre>
        </details>
      )}
    </div>
  );
}

function Part({ title, values, empty, measured }: { title: string; values: Record<string, unknown>; empty: ReactNode; measured?: boolean }): ReactElement {
  return (
    <div>
      <h2>{title}</h2>
      {Object.keys(values).length ? <Values label={title} values={values} measured={measured} /> : <p className="det-soft">{empty}</p>}
    </div>
  );
}

function Environment({ environment }: { environment: Record<string, string> }): ReactElement {
  const { python, platform, ...packages } = environment;
  const names = Object.keys(packages);
  if (!Object.keys(environment).length) return <p className="det-soft">The environment was not recorded.</p>;
  const about = [python && `Python ${nameText(python, 40)}`, platform && nameText(platform, 80), plural(names.length, 'package')].filter(Boolean).join(', ');
  return (
    <details className="det-fold-part">
      <summary>Environment <span className="det-soft">{about}</span></summary>
      <Values label="Packages" values={Object.fromEntries(Object.entries(packages).sort(([a], [b]) => (a < b ? -1 : 1)))} head={['Package', 'Version']} />
    </details>
  );
}

function Digest({ text, what }: { text: string; what: string }): ReactElement {
  return <span className="det-origin-digest"><span className="det-mono" title={nameText(text)}>{nameText(text, 43)}</span> <CopyButton text={text} what={what} /></span>;
}
