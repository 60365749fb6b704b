/** Workspaces, members and projects for the harness. */

import { member, project, workspace } from '../components/workspaces/fixtures';
import type { MemberList, ProjectView, TaskView, WorkspaceView } from '../state/wire';
import { BEGAN, HOSTILE, task } from './fixtures';

const NOTES = `# Plan

1. Baseline of **three** seeds
2. Wider second layer, see [the paper](https://arxiv.org/abs/1412.6980)

| run | error |
|---|---|
| 12 | 0.021 |`;

export function workspaces(hostile: boolean): WorkspaceView[] {
  const own = workspace(7, {
    name: hostile ? HOSTILE.name : 'vision', owner: 'alice', description: hostile ? HOSTILE.log : 'Everything of the vision group', projects: 3, experiments: 48, models: 4, tasks: 3, quota: 16,
    defaults: {
      resource_pool: 'a100', checkpoint_storage: { type: 's3', bucket: 'vision-checkpoints', prefix: hostile ? HOSTILE.name : 'team' }, environment: {},
      task_container_defaults: { startup_hook: hostile ? HOSTILE.log : 'module load cuda/12.4' }, template: hostile ? HOSTILE.name : 'base'
    }
  });
  return [
    workspace(1, { name: 'Uncategorized', owner: 'alice', personal: true, role: null, experiments: 12 }), own,
    workspace(8, { name: hostile ? HOSTILE.name : 'speech', owner: hostile ? HOSTILE.name : 'ben', role: 'editor', may: 'write', description: 'Acoustic models', experiments: 7 }),
    workspace(9, { name: 'archive', owner: 'cleo', role: 'viewer', may: 'read', archived_at: 1e9 })
  ];
}

export function members(hostile: boolean): MemberList {
  return { items: [member('alice', 'admin'), member('ben', 'editor'), member(hostile ? HOSTILE.name : 'cleo', 'viewer'), member(hostile ? HOSTILE.name : 'vision-team', 'viewer', 'group')] };
}

export function projects(hostile: boolean): ProjectView[] {
  const notes = hostile ? `${HOSTILE.log}\n${HOSTILE.name} [x](javascript:window.hacked=1)` : NOTES;
  return [
    project(3, { name: hostile ? HOSTILE.name : 'digits', workspace: 'alice/vision', owner: 'alice', description: hostile ? HOSTILE.log : 'Small networks for written digits', notes, experiments: 12 }),
    project(4, { name: 'segmentation', workspace: 'alice/vision', owner: 'ben', experiments: 36 }), project(2, { name: 'Uncategorized', workspace: 'alice/vision' })
  ];
}

export function tasks(hostile: boolean): TaskView[] {
  const name = (plain: string): string => (hostile ? HOSTILE.name : plain);
  const place = { workspace: 'alice/vision', workspace_id: 7, project: name('digits'), project_id: 3 };
  const others = { ...place, opens: false, may: 'write', url: null, server_name: null, agent_id: null, image: null, last_activity: null, idle_timeout: null } as const;
  return [
    task({ ...place }),
    task({ ...others, id: 'shell-1', kind: 'shell', name: name('debugging'), owner: name('ben'), slots_needed: 1, resource_pool: 'a100' }),
    task({
      ...others, id: 'command-2', kind: 'command', name: name('export of the test set'), owner: 'cleo', slots_needed: 8, resource_pool: 'a100', allocation_state: 'PENDING', display_state: 'QUEUED',
      started_at: null, place: 3, pending_reason: hostile ? HOSTILE.log : 'workspace alice/vision holds 12 of a quota of 16 slots, this needs 8; see det quota list'
    }),
    task({ ...others, id: 'tensorboard-3', kind: 'tensorboard', name: name('curves'), owner: 'ben', state: 'CANCELED', display_state: 'CANCELED', end_reason: 'idle', ended_at: BEGAN + 900 })
  ];
}
