/** The initial YAML and the sections of a form. */

import type { Section } from './ExperimentForm';

/** In the order in which they are filled in. */
export const EXPERIMENT_SECTIONS: readonly Section[] = [
  { title: 'What to run', base: [], only: ['name', 'entrypoint', 'description', 'labels'] },
  { title: 'Search', base: ['searcher'], kind: 'union' },
  { title: 'Resources', base: ['resources'], only: ['slots_per_trial', 'max_slots', 'priority', 'resource_pool'] },
  { title: 'Hyperparameters', base: ['hyperparameters'], kind: 'hyperparameters' },
  { title: 'Environment', base: ['environment'], only: ['image', 'environment_variables'] },
  {
    title: 'Restarts and checkpoints', base: [], folded: true,
    only: ['runtime', 'max_restarts', 'checkpoint_policy', 'preemption_timeout', 'workspace', 'project', 'debug']
  },
  { title: 'Reproducibility', base: ['reproducibility'], folded: true }
];

export const RUN_SECTIONS: readonly Section[] = [
  { title: 'Run', base: [], only: ['description', 'runtime', 'work_dir', 'idle_timeout'] },
  { title: 'Resources', base: ['resources'], only: ['slots', 'priority', 'resource_pool', 'memory', 'cpus'] },
  { title: 'Environment', base: ['environment'], only: ['image', 'environment_variables'] }
];

/** The YAML for a Python script, or a template if none is chosen. */
export function experimentText(path: string | null): string {
  const file = path?.split('/').pop() ?? 'train.py';
  const name = file.replace(/\.py$/, '');
  return [
    `name: ${yamlWord(name)}`,
    `entrypoint: ${yamlWord(`python3 ${shellWord(file)}`)}`,
    'searcher:',
    '  name: single',
    '  metric: loss # the validation metric that the code reports',
    '  smaller_is_better: true',
    'resources:',
    '  slots_per_trial: 1',
    ''
  ].join('\n');
}

export const RUN_TEXT = 'resources:\n  slots: 1\n';

function yamlWord(text: string): string {
  return /^[A-Za-z_][\w ./-]*$/.test(text) && !/^(null|true|false|yes|no|on|off|~)$/i.test(text) ? text : JSON.stringify(text);
}

/** A word of a command line as the shell takes it. */
export function shellWord(text: string): string {
  return /^[\w./+@%=:-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
