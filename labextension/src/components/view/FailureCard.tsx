/** Why something failed: what, where, on which rank, the likely cause, the last lines, what to do next. */

import { ReactElement, useLayoutEffect, useRef } from 'react';

import { useApp } from '../../state/context';
import type { FailureView } from '../../state/wire';
import { CopyButton } from '../common/CopyButton';
import { logText, nameText, visible } from '../common/text';

const KINDS: Record<string, string> = {
  oom: 'Out of memory', import: 'Import failed', config: 'Invalid config', exception: 'The code raised an exception',
  killed: 'Killed', lost: 'Node lost', no_metrics: 'No metrics reported', searcher: 'The searcher failed',
  nan: 'The metric is not a finite number', hang: 'A rank is hanging', preempted: 'Preempted', user_stop: 'Stopped by a user',
  max_time: 'Maximum time exceeded', disk_full: 'The disk is full', checkpoint: 'Checkpoint missing', setup: 'Setup failed',
  refused: 'Refused by the node', unknown: 'Failed'
};

const CAUSES: Record<string, string> = {
  oom: 'It needed more memory than is available.',
  import: 'A package is missing from the environment, or a file from the code.',
  lost: 'The machine or its agent went down; the code is probably not at fault.',
  no_metrics: 'The code ended without reporting the metric that the search optimizes.',
  nan: 'The training diverged, or the data contain NaN or infinite values.',
  hang: 'One rank did not reach a collective operation in which the others waited for it.',
  preempted: 'Its slots were needed for other work, or its node is draining; the code is not at fault.',
  disk_full: 'No space is left on the disk it writes to.',
  checkpoint: 'The files of the checkpoint to resume from are not where they were stored.',
  killed: 'It was killed from outside, by a user or by the system.'
};
/** Signals that come from outside; the others are sent for what the code did, which the message says. */
const FROM_OUTSIDE = new Set(['SIGKILL', 'SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGSTOP']);

export function FailureCard({ failure, experiment, task }: {
  failure: FailureView; experiment?: number; task?: string;
}): ReactElement {
  const { navigate } = useApp();
  const title = KINDS[failure.kind] ?? nameText(failure.kind.replaceAll('_', ' '), 60);
  const facts = factsOf(failure);
  const tail = failure.log_tail.map(logText);
  const cause = likelyCause(failure);
  const command = nextCommand(failure, task);
  const named = command !== null && failure.hint !== null && failure.hint.endsWith(command);
  return (
    <section className="det-failure" aria-label={`Failure: ${title}`}>
      <div className="det-failure-head">
        <h2><span aria-hidden="true">✕ </span>{title}</h2>
        <CopyButton text={failureText(failure, title, command)} what="the failure card" />
      </div>
      <p className="det-failure-message">{visible(failure.message)}</p>
      {facts.length > 0 && (
        <dl className="det-failure-facts">
          {facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
        </dl>
      )}
      {cause && <p><strong>Likely cause: </strong>{cause}</p>}
      {failure.hint && (
        <p>
          <strong>What to do: </strong>
          {named ? visible(failure.hint.slice(0, -command.length)) : visible(failure.hint)}
          {named && <code className="det-mono det-command">{command}</code>}
        </p>
      )}
      {tail.length > 0 && <Tail text={tail.join('\n')} />}
      <div className="det-controls">
        {command && !named && <code className="det-mono det-command">{command}</code>}
        {command && <CopyButton text={command} label="Copy command" />}
        {experiment !== undefined && failure.trial_id !== null && (
          <button
            type="button" className="det-button"
            onClick={() => navigate({ kind: 'trial', id: failure.trial_id!, experiment, tab: 'logs' })}
          >
            Logs of the trial
          </button>
        )}
      </div>
    </section>
  );
}

/** What usually causes a failure of its kind, unless its message says a cause of its own. */
function likelyCause(failure: FailureView): string | undefined {
  if (failure.kind === 'killed' && !FROM_OUTSIDE.has(failure.signal ?? '')) return undefined;
  return CAUSES[failure.kind];
}

/** The last lines of an output, scrolled to the end, where the reason usually is. */
function Tail({ text }: { text: string }): ReactElement {
  const box = useRef<HTMLPreElement>(null);
  useLayoutEffect(() => {
    box.current!.scrollTop = box.current!.scrollHeight;
  }, [text]);
  return <pre ref={box} className="det-failure-tail" tabIndex={0} aria-label="Last lines of the output">{text}</pre>;
}

function factsOf(failure: FailureView): [string, string][] {
  const facts: [string, string | null][] = [
    ['Where', failure.where],
    ['Rank', failure.rank === null ? null : String(failure.rank)],
    ['Exit code', failure.exit_code === null ? null : String(failure.exit_code)],
    ['Signal', failure.signal],
    ['Node', failure.node]
  ];
  return facts.flatMap(([name, value]) => (value ? [[name, nameText(value)]] : []));
}

/** The command that shows more of it in a terminal. */
function nextCommand(failure: FailureView, task?: string): string | null {
  if (task !== undefined) return `det task logs ${/^[\w.-]+$/.test(task) ? task : '…'}`;
  if (failure.command !== null) return visible(failure.command);
  if (failure.trial_id === null) return null;
  return `det trial logs ${failure.trial_id}${failure.rank === null ? '' : ` --rank ${failure.rank}`}`;
}

/** The card as plain text, to send to somebody who can help. */
export function failureText(failure: FailureView, title: string, command: string | null): string {
  return [
    `${title}: ${visible(failure.message)}`,
    ...factsOf(failure).map(([name, value]) => `${name}: ${value}`),
    ...(failure.hint ? [visible(failure.hint)] : []),
    ...(failure.log_tail.length ? ['', ...failure.log_tail.map(logText)] : []),
    ...(command ? ['', command] : [])
  ].join('\n');
}
