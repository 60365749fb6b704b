"""What a validation report is worth to the search: further metrics, running time, and whether it may be the best."""

from __future__ import annotations

from detlab.schemas.expconf.blocks.searcher_base import STEP_TIMES
from detlab.schemas.wire import MetricsRecord
from detlab_hub.core.searchers import Objectives, SearcherInputError, ValidationReported
from detlab_hub.core.stopping import wants_elapsed
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle.rows import is_unmanaged
from detlab_hub.store.queries import trials
from detlab_hub.store.queries.metrics import feasible
from detlab_hub.store.tables import ExperimentRow, TrialRow
from detlab_hub.store.values import as_scalar


def event_of(unit: UnitOfWork, trial: TrialRow, record: MetricsRecord, value: float) -> tuple[ValidationReported, bool]:
    """Return the event of a report of the searcher metric, and whether the report keeps all constraints.

    Raises:
        SearcherInputError: A further metric of the search is missing, or is not a number.
    """
    experiment = unit.experiment(trial.experiment_id)
    objectives = _objectives(experiment)
    values: dict[str, float] = {}
    for name in objectives.names:
        if name in record.metrics:
            number = as_scalar(record.metrics[name])
            if number is None:
                got = type(record.metrics[name]).__name__
                raise SearcherInputError(f"the metric {name!r} must be a number, the report has a {got}")
            values[name] = number
    score = objectives.judge(value, values)
    stopping = experiment.config.get("stopping") or ()
    elapsed = _elapsed(unit, experiment, trial) if wants_elapsed(stopping) else None
    event = ValidationReported(trial.request_id, value, _time_of(experiment, record), values, elapsed)
    return event, score.violation == 0


def _elapsed(unit: UnitOfWork, experiment: ExperimentRow, trial: TrialRow) -> float:
    if is_unmanaged(experiment):  # it has no attempts: it runs while somebody evaluates it
        return max(0.0, unit.now - (trial.asked_at or unit.now))
    return trials.seconds_run(unit.session, trial.id, unit.now)


def metrics_of(experiment: ExperimentRow) -> list[str]:
    """Return the metrics that a report must carry beside the searcher metric."""
    return _objectives(experiment).names


def _objectives(experiment: ExperimentRow) -> Objectives:
    return Objectives.from_config(experiment.config.get("searcher") or {})


def _time_of(experiment: ExperimentRow, record: MetricsRecord) -> float | None:
    name = (experiment.config.get("searcher") or {}).get("time_metric")
    if name is None:
        return None
    if name in record.metrics:
        return as_scalar(record.metrics[name])
    return float(record.steps_completed) if name in STEP_TIMES else None


def recount_feasible(unit: UnitOfWork, experiment: ExperimentRow, trial: TrialRow, group: str) -> bool:
    """Compute the best values of a constrained search anew; return False if the search has no constraints."""
    bounds = {bound.name: (bound.low, bound.high) for bound in _objectives(experiment).bounds}
    if not bounds:
        return False
    goal = feasible.Goal(group, experiment.metric, experiment.smaller_is_better, bounds)
    own = feasible.trial_best(unit.session, trial.id, goal)
    trial.best_step, trial.best_validation = own or (None, None)
    if experiment.best_trial_id == trial.id:
        unit.session.flush()
        best = feasible.experiment_best(unit.session, experiment.id, goal)
        experiment.best_trial_id, experiment.best_step, experiment.best_value = best or (None, None, None)
        unit.changed_experiment(experiment.id)
    return True
