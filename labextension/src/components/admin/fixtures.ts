/** Views for tests of the admin components. */

import type { AgentView, ExperimentView, OverviewView, QueueItem, TaskView } from '../../state/wire';

export const HOSTILE = '<img src=x onerror=alert(1)>';

export function agent(over: Partial<AgentView> = {}): AgentView {
  return {
    id: 'node-1', state: 'connected', version: '0.1.0', address: '10.0.0.7', serves_user: null, running: 1, last_seen: 1e9,
    enabled: true, mode: 'enabled', cpus: null, memory: null, cpus_asked: 0, memory_asked: 0, refused: null, note: '', enforces: [], attestation: '', drain_until: null, runtimes: ['process'], pool: 'default', labels: {}, enrolled_at: 1e9,
    slots: ['0', '1', '2', '3'].map(id => ({ id, kind: 'cpu', name: 'EPYC', uuid: null, allocation_id: null, enabled: true, note: '', memory: 0, device: '', shares: 1 })),
    ...over
  };
}

export function holding(id: string, held: Record<string, string>): AgentView {
  const plain = agent({ id });
  return { ...plain, slots: plain.slots.map(slot => ({ ...slot, allocation_id: held[slot.id] ?? null })) };
}

export function experiment(over: Partial<ExperimentView> = {}): ExperimentView {
  return {
    shortened: [],
    id: 12, name: 'digits', description: null, labels: [], notes: null, paused_at: null, paused_seconds: 0, edited_at: null, archived_at: null, owner: 'ada', may: 'own', workspace: 'default', workspace_id: null, project: 'default', project_id: null,
    state: 'ACTIVE', searcher: 'single', metric: 'loss', smaller_is_better: true, time_metric: null, max_time: null, log_retention_days: null,
    progress: 0.5, trials_total: 4, trials: { RUNNING: 2, COMPLETED: 1 }, best: null, created_at: 1e9, started_at: 1e9,
    ended_at: null, pending_reason: null, warnings: [], bundle: null, config: null, failure: null, card: null, budgets: [], cost: null, currency: '', deletion: null, search_task: null, forked_from: null, unmanaged: false, governed: false, values: [], source: {}, ...over
  };
}

export function task(over: Partial<TaskView> = {}): TaskView {
  return {
    shortened: [],
    workspace: '', workspace_id: null, project: '', project_id: null, may: 'own', opens: true,
    id: 'notebook-1a2b', kind: 'notebook', name: 'notes', owner: 'ben', state: 'ACTIVE', allocation_state: 'RUNNING',
    display_state: 'RUNNING', end_reason: null, slots_needed: 0, slots: [], agent_id: 'node-1', resource_pool: 'default',
    runtime: 'process', image: null, priority: 42, server_name: 'nb-1a2b', url: null, server_host: '', created_at: 1e9, started_at: 1e9,
    ended_at: null, exit_code: null, stage_message: '', place: null, pending_reason: null, last_activity: null,
    idle_timeout: null, cull_at: null, experiment_ids: [], trial_ids: [], gpus_idle_since: null, gpus_released_at: null, schedule_id: null, failure: null, config: null, ...over
  };
}

export function waiting(over: Partial<QueueItem> = {}): QueueItem {
  return {
    shortened: [],
    allocation_id: '12.x.1', place: 1, kind: 'trial', owner: 'ada', mine: false, name: 'digits', experiment_id: 12,
    trial_id: 40, task_id: null, slots: 4, pool: 'default', priority: 42, weight: 1, requested_at: 1e9, reason: 'needs 4 slots, 2 are free', ...over
  };
}

export function overview(over: Partial<OverviewView> = {}): OverviewView {
  return {
    cursor: 7,
    me: { name: 'root', scopes: ['custom:detlab:admin', 'custom:detlab:read', 'custom:detlab:write'], admin: true },
    cluster: {
      cluster_id: 'c', version: '0.1.0', protocol: 1, url: 'http://hub/services/detlab/', started_at: 1e9, agents: 1,
      slots_total: 4, slots_used: 2, tasks_running: 1, experiments_active: 1, draining: false, is_copy: false, message: null
    },
    experiments: [], tasks: [], queue: [], agents: [agent()], ...over
  };
}
