/** Views as the master sends them, for component tests. */

import type { AgentView, ExperimentView, OverviewView, QueueItem, TaskView } from '../state/wire';

export const NOW = Date.now() / 1000;

export function experiment(id: number, over: Partial<ExperimentView> = {}): ExperimentView {
  return {
    shortened: [],
    id, name: `search ${id}`, description: null, labels: [], notes: null, paused_at: null, paused_seconds: 0, edited_at: null, archived_at: null, owner: 'ada', may: 'own', workspace: '', workspace_id: null, project: '', project_id: null, state: 'ACTIVE',
    searcher: 'random', metric: 'loss', smaller_is_better: true, time_metric: null, max_time: null, log_retention_days: null, progress: 0.25,
    trials_total: 4, trials: { ACTIVE: 2, RUNNING: 2 }, best: null, created_at: NOW - 300 + id, started_at: null,
    ended_at: null, pending_reason: null, warnings: [], bundle: null, config: null, failure: null, card: null, budgets: [], cost: null, currency: '', deletion: null, search_task: null, forked_from: null, unmanaged: false, governed: false, values: [], source: {}, ...over
  };
}

export function task(id: string, over: Partial<TaskView> = {}): TaskView {
  return {
    shortened: [],
    workspace: '', workspace_id: null, project: '', project_id: null, may: 'own', opens: true,
    id, kind: 'notebook', name: `notebook ${id}`, owner: 'ada', state: 'ACTIVE', allocation_state: 'RUNNING',
    display_state: 'RUNNING', end_reason: null, slots_needed: 0, slots: [], agent_id: 'node-1',
    resource_pool: 'default', runtime: 'process', image: null, priority: 42, server_name: id, url: `/user/ada/${id}/lab`, server_host: '',
    created_at: NOW - 60, started_at: NOW - 50, ended_at: null, exit_code: null, stage_message: '', place: null,
    pending_reason: null, last_activity: null, idle_timeout: null, cull_at: null, experiment_ids: [], trial_ids: [], gpus_idle_since: null, gpus_released_at: null, schedule_id: null,
    failure: null, config: null, ...over
  };
}

export function agent(id: string, over: Partial<AgentView> = {}): AgentView {
  return {
    id, state: 'connected', version: '0.1.0', address: '127.0.0.1', serves_user: null, running: 1, last_seen: NOW,
    enabled: true, mode: 'enabled', cpus: null, memory: null, cpus_asked: 0, memory_asked: 0, refused: null, note: '', enforces: [], attestation: '', drain_until: null, runtimes: ['process'], pool: 'default', labels: {}, enrolled_at: NOW,
    slots: ['0', '1'].map(slot => ({
      id: slot, kind: 'cpu', name: 'CPU', uuid: null, allocation_id: slot === '0' ? '1.r.1' : null, enabled: true, note: '', memory: 0,
      device: '', shares: 1
    })),
    ...over
  };
}

export function waiting(place: number, over: Partial<QueueItem> = {}): QueueItem {
  return {
    shortened: [],
    allocation_id: `2.q${place}.1`, place, kind: 'trial', owner: 'ada', mine: true, name: 'search 2', experiment_id: 2,
    trial_id: 10 + place, task_id: null, slots: 1, pool: 'default', priority: 42, weight: 1, requested_at: NOW - 30, reason: 'needs 1 slot',
    ...over
  };
}

export function overview(over: Partial<OverviewView> = {}): OverviewView {
  return {
    cursor: 7,
    me: { name: 'ada', scopes: ['custom:detlab:read', 'custom:detlab:write'], admin: false },
    cluster: {
      cluster_id: 'c', version: '0.1.0', protocol: 1, url: '', started_at: 0, agents: 1, slots_total: 2, slots_used: 1, tasks_running: 1,
      experiments_active: 1, draining: false, is_copy: false, message: null
    },
    experiments: [experiment(2), experiment(1)], tasks: [task('nb-1')], queue: [waiting(1)], agents: [agent('node-1')],
    ...over
  };
}
