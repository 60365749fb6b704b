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
  completed: { label: 'It has completed' },
  failed: { label: 'It has failed' },
  improved: { label: 'Its best value is better', unit: '%', usual: 1 },
  plateau: { label: 'No better value', unit: 'validations', usual: 20 },
  waiting: { label: 'Nothing of it runs', unit: 'minutes', usual: 60, times: 60 },
  budget: { label: 'Its budget, or a quota of mine, is used', unit: '%', usual: 80 },
  alert: { label: 'Its code calls alert' }
};

export const KIND_NAMES = Object.keys(KINDS) as RuleKind[];

/** `Its best value is better: 1 %`. */
export function ruleWords({ kind, amount }: Pick<AlertRuleView, 'kind' | 'amount'>): string {
  const { label, unit, times = 1 } = KINDS[kind] ?? { label: nameText(kind, 40) };
  return amount === null ? label : `${label}: ${significant(amount / times, false)} ${unit ?? ''}`.trim();
}

export function scopeWords({ scope, scope_id: id, scope_name: name }: Pick<AlertRuleView, 'scope' | 'scope_id' | 'scope_name'>): string {
  return scope === 'owner' ? 'all experiments of mine' : `${scope} ${id ?? ''} ${nameText(name, 120)}`.trim();
}
