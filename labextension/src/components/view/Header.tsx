/** The head of a view: title, state, facts and actions. */

import type { ReactElement, ReactNode } from 'react';

import { Question, useApp } from '../../state/context';
import { ActionButton, StateBadge } from '../common';
import { nameText } from '../common/text';
import type { Action, Verb } from './actions';

export function Header({ title, kind, state, word, about, warning, facts, numbers = [], progress, actions, onAction, children, more }: {
  title: string;
  /** `Experiment 12`; empty where the title says it. */
  kind: string;
  state: string;
  word?: string;
  about?: string | null;
  /** What is wrong with a good end. */
  warning?: string | null;
  facts: readonly (ReactNode | null | undefined | false)[];
  /** How far it is, in the same line. */
  numbers?: readonly string[];
  /** Below both lines. */
  progress?: ReactNode;
  actions: readonly Action[];
  onAction: (action: Action) => Promise<void>;
  /** More buttons, before and after the actions. */
  children?: ReactNode;
  more?: ReactNode;
}): ReactElement {
  return (
    <header className="det-head-block">
      <div className="det-head-line">
        <h1 className="det-head-title" title={nameText(title, 2000)}><bdi>{nameText(title)}</bdi></h1>
        <StateBadge state={state} word={word} about={about} warning={warning} />
        <div className="det-head-actions" role="group" aria-label="Actions">
          {children}
          {actions.map(action => (
            <ActionButton
              key={action.verb} label={action.label} why={action.why} danger={action.verb === 'kill'}
              onRun={() => onAction(action)}
            />
          ))}
          {more}
        </div>
      </div>
      <p className="det-head-facts">
        {numbers.filter(Boolean).map((fact, i) => <span key={`n${i}`} className="det-head-number">{fact}</span>)}
        {[kind, ...facts].filter(Boolean).map((fact, i) => <span key={i}>{fact}</span>)}
      </p>
      {progress}
    </header>
  );
}

/**
 * Run an action, with confirmation where work is lost; errors are shown as notifications. `ask` finds out whether an
 * action that needs none in general needs one now.
 */
export function useAction<T>(
  subject: string, path: (verb: Verb) => string, learn: (answer: T) => void,
  ask: (verb: Verb) => Promise<Question | null> = () => Promise.resolve(null)
): (action: Action) => Promise<void> {
  const { api, confirm, notify } = useApp();
  return async action => {
    const name = nameText(subject, 80);
    const question: Question | null = action.needsConfirm
      ? { title: `${action.label} ${name}?`, body: `${action.tip}.`, yes: action.label, danger: true }
      : await ask(action.verb);
    if (question && !(await confirm(question))) return;
    try {
      learn(await api.post<T>(path(action.verb)));
    } catch (error) {
      const hint = (error as { hint?: string | null }).hint;
      notify(`${action.label} ${name}: ${(error as Error).message}${hint ? ` (${hint})` : ''}`, 'bad');
    }
  };
}
