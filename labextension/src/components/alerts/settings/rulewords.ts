/** Rules in words. */

import type { AlertRuleView } from '../../../state/wire';
import { significant } from '../../common';
import { nameText } from '../../common/text';

export type RuleKind = AlertRuleView['kind'];

interface KindWords {
  /** As in a list of choices. */
  label: string;
  /** What its amount counts, and what it is if none is given; absent: it has none. */
  unit?: string;
  usual?: number;
  /** How many of the master's units one of the page's is. */
  times?: number;
}

export const KINDS: Record<RuleKind, KindWords> = {
  completed: { label: 'Completed' },
  failed: { label: 'Failed' },
  improved: { label: 'Best value improves by', unit: '%', usual: 1 },
  plateau: { label: 'No better value in', unit: 'validations', usual: 20 },
  waiting: { label: 'Waiting for', unit: 'minutes', usual: 60, times: 60 },
  budget: { label: 'Budget or quota used to', unit: '%', usual: 80 },
  alert: { label: 'Code calls alert()' },
  log: { label: 'A line of output fits' }
};

export const KIND_NAMES = Object.keys(KINDS) as RuleKind[];

/** Kinds of rules that a webhook is made with: those that need nothing said but their kind. */
export const HOOK_KINDS = KIND_NAMES.filter((kind): kind is Exclude<RuleKind, 'log'> => kind !== 'log');

/** `Best value improves by 1 %`. */
export function ruleWords({ kind, amount, pattern }: Pick<AlertRuleView, 'kind' | 'amount'> & { pattern?: string }): string {
  const { label, unit, times = 1 } = KINDS[kind] ?? { label: nameText(kind, 40) };
  if (pattern) return `${label} ${nameText(pattern, 120)}`;
  return amount === null ? label : `${label} ${significant(amount / times, false)} ${unit ?? ''}`.trim();
}

export function scopeWords({ scope, scope_id: id, scope_name: name }: Pick<AlertRuleView, 'scope' | 'scope_id' | 'scope_name'>): string {
  return scope === 'owner' ? 'all of mine' : `${scope} ${id ?? ''} ${nameText(name, 120)}`.trim();
}
