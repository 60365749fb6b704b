/** What the kernel would have sent to the notebook's view of the made-up search. */

import { formatNumber } from '../components/common';
import { View } from '../widget/frames';
import type { Case } from './api';
import * as made from './fixtures';

export function notebookView(of: Case): View {
  const experiment = made.experiment(of.experiment);
  const name = of.hostile ? made.HOSTILE.name : experiment.metric;
  const trials = Array.from({ length: of.trials }, (_, i) => made.trial(i, of.trials));
  const curves = trials.slice(0, of.curves).map(trial => made.series(trial.id, Math.max(2, Math.round(of.points * trial.progress))));
  const view = new View();
  view.apply({
    experiment: {
      id: experiment.id, title: `Experiment ${experiment.id} · ${of.hostile ? made.HOSTILE.name : experiment.name}`, state: experiment.state,
      ended: experiment.ended_at !== null, metric: name, progress: experiment.progress, url: '#',
      line: '26/64 trials · 4 running · best validation_error 0.0214 (trial 117) · about 17:30 left',
      best: experiment.best && { trial: experiment.best.trial_id, step: experiment.best.steps_completed, value: Number(experiment.best.value) },
      smallerIsBetter: experiment.smaller_is_better, notices: experiment.failure ? [`failed (${experiment.failure.kind}): ${experiment.failure.message}`] : []
    },
    header: ['trial', name, 'steps', 'state', 'lr', 'width', 'why'],
    trials: trials.map(trial => ({
      id: trial.id, index: trial.index, grey: trial.end_reason === 'stopped' || trial.state === 'ERROR', failed: trial.state === 'ERROR', running: trial.display_state === 'RUNNING',
      cells: [`${trial.id}`, formatNumber(trial.best_validation), `${trial.steps_completed}`, trial.state.toLowerCase(), formatNumber(trial.hparams['lr'] as number), `${trial.hparams['width']}`, trial.stop_evidence]
    })),
    drawn: curves.map(curve => curve.trial_id), lengths: curves.map(curve => curve.steps.length), count: of.trials, whole: true,
    curves: curves.map(curve => ({ trial: curve.trial_id, from: 0, steps: curve.steps, values: curve.values as number[], gaps: [] }))
  });
  return view;
}
