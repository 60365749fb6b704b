/** Rules, an address, webhooks and schedules for the harness. */

import type { AlertRuleView, EmailView, PolicyView, ScheduleView, TemplateView, WebhookCallView, WebhookView } from '../state/wire';
import { BEGAN, HOSTILE } from './fixtures';

export function rule(id: number, over: Partial<AlertRuleView> = {}): AlertRuleView {
  return { id, kind: 'completed', amount: null, pattern: '', scope: 'owner', scope_id: null, scope_name: '', bell: true, webhook: null, email: false, owner: 'alice', created_at: BEGAN - 86_400 * id, ...over };
}

export function rules(hostile: boolean): AlertRuleView[] {
  return [
    rule(1), rule(2, { kind: 'failed', email: true, webhook: 4 }), rule(3, { kind: 'improved', amount: 1, scope: 'experiment', scope_id: 12, scope_name: hostile ? HOSTILE.name : 'digits' }),
    rule(4, { kind: 'waiting', amount: 7200, scope: 'workspace', scope_id: 7, scope_name: hostile ? HOSTILE.name : 'alice/vision', bell: false, webhook: 4 })
  ];
}

export function email(over: Partial<EmailView> = {}): EmailView {
  return {
    user: 'alice', address: '', confirmed_at: null, set_by: '', pending: '', code_until: null, delivered: 0, delivered_at: null, waiting: 0, failed: 0, error: '', offered: true, ...over
  };
}

export function theEmail(of: { trials: number; hostile?: boolean }): EmailView {
  if (!of.trials) return email({ offered: false });
  return email({
    address: 'alice@example.org', confirmed_at: BEGAN - 1e5, set_by: of.hostile ? HOSTILE.name : 'alice', delivered: 12, delivered_at: BEGAN - 900, waiting: 1,
    pending: 'alice@lab.example.org', code_until: BEGAN + 80_000, error: of.hostile ? HOSTILE.log : ''
  });
}

export function webhook(id: number, over: Partial<WebhookView> = {}): WebhookView {
  return {
    id, name: 'ci', url: 'https://ci.example.com/hook', format: 'default', owner: 'alice', rules: [], secret: '', delivered: 0, delivered_at: null, waiting: 0, failed: 0, error: '',
    created_at: BEGAN - 86_400, ...over
  };
}

export function webhooks(hostile: boolean): WebhookView[] {
  return [
    webhook(3, { rules: [rule(1), rule(2, { kind: 'failed' })], delivered: 41 }),
    webhook(4, { name: hostile ? HOSTILE.name : 'chat', url: hostile ? HOSTILE.value : 'https://hooks.slack.com/services/T0/B0/x', format: 'slack', waiting: 1, failed: 2, error: hostile ? HOSTILE.log : 'the receiver answered 503' })
  ];
}

export function calls(hostile: boolean): WebhookCallView[] {
  return [
    { id: 9, event: 'CUSTOM', title: hostile ? HOSTILE.name : 'experiment 12 has failed', created_at: BEGAN - 60, due_at: BEGAN + 900, attempts: 3, error: hostile ? HOSTILE.log : 'the receiver answered 503' },
    { id: 8, event: 'CUSTOM', title: 'experiment 11 has failed', created_at: BEGAN - 300_000, due_at: null, attempts: 30, error: 'the receiver did not answer within 20 s' }
  ];
}

export function schedule(id: number, over: Partial<ScheduleView> = {}): ScheduleView {
  return {
    id, name: 'nightly', owner: 'alice', state: 'active', reason: '', workspace: '', workspace_id: null, project: '', project_id: null, cron: '0 6 * * 1-5', time_zone: 'Europe/Berlin',
    after_experiment: null, after_task: null, next_at: BEGAN + 40_000, next_times: [], runs: 12, skipped: 0, last_task: 'nb-7f3a', last_task_state: 'COMPLETED', last_due_at: BEGAN - 50_000, last_started_at: BEGAN - 50_000,
    note: '', noted_at: null, notebook: 'nightly.ipynb', parameters: {}, config: null, created_at: BEGAN - 1e6, shortened: [], ...over
  };
}

export function schedules(hostile: boolean): ScheduleView[] {
  return [
    schedule(1, { skipped: 2 }),
    schedule(2, { name: hostile ? HOSTILE.name : 'report', state: 'paused', cron: '@daily', time_zone: 'UTC', notebook: hostile ? HOSTILE.value : 'reports/weekly.ipynb', last_task_state: 'ERROR', next_at: BEGAN - 10 }),
    schedule(3, {
      name: 'sweep', state: 'disabled', reason: hostile ? HOSTILE.log : 'carol is no user of the Hub any more', cron: '*/10 8-18/2 * * mon-fri', owner: hostile ? HOSTILE.name : 'carol', next_at: null,
      last_task: null, last_task_state: null, last_started_at: null, runs: 0, note: hostile ? HOSTILE.log : 'quota of carol: 4 of 4 slots are held', noted_at: BEGAN - 700
    }),
    schedule(4, { name: 'compare', state: 'done', cron: '', after_experiment: 12, next_at: null, runs: 1, last_task_state: null })
  ];
}

export function answer(of: { trials: number; hostile?: boolean }, path: string): unknown {
  const list = <T>(items: T[]): { items: T[]; next: null } => ({ items: of.trials ? items : [], next: null });
  const hostile = of.hostile ?? false;
  if (path === 'alerts/rules') return list(rules(hostile));
  if (path === 'alerts/email') return theEmail(of);
  if (path === 'webhooks') return list(webhooks(hostile));
  if (/^webhooks\/\d+\/calls$/.test(path)) return list(calls(hostile));
  return path === 'schedules' ? list(schedules(hostile)) : undefined;
}

export function template(over: Partial<TemplateView> = {}): TemplateView {
  return {
    name: 'a100', workspace: 'alice/vision', reference: 'alice/vision:a100', owner: 'alice', base: '', description: '', config: null, merged: null, version: 3, set_by: 'alice', set_at: BEGAN - 9000, default: false,
    warnings: [], ...over
  };
}

export function policy(over: Partial<PolicyView> = {}): PolicyView {
  return { workload: 'experiment', workspace: '', invariant_config: {}, constraints: { resources: { max_slots: null }, priority_limit: null }, set_by: '', set_at: null, warnings: [], ...over };
}

export function configs(of: { trials: number; hostile?: boolean }, path: string, query: URLSearchParams): unknown {
  const odd = of.hostile ? HOSTILE.name : null;
  const config = { resources: { resource_pool: 'a100', slots_per_trial: 4 }, environment: { environment_variables: [odd ?? 'OMP_NUM_THREADS=8'] } };
  if (path === 'templates') {
    const items = [
      template({ base: odd ?? 'cluster:site', default: true, description: odd ?? 'Four A100 of one node' }), template({ name: 'site', workspace: 'cluster', reference: odd ?? 'cluster:site', owner: 'root', set_by: odd ?? 'root', version: 1 })
    ];
    return { items: of.trials ? items : [], after: null };
  }
  if (path === 'templates/one') return template({ base: 'cluster:site', config, merged: { ...config, retention_policy: { log_retention_days: 90 } } });
  const set = of.trials > 0 && query.get('workload') === 'experiment';
  return set ? policy({ set_by: odd ?? 'root', set_at: BEGAN - 5000, invariant_config: config, constraints: { resources: { max_slots: 8 }, priority_limit: 40 } }) : policy({ workload: 'tasks' });
}
