"""What clients of MLflow log into the trial that runs them: metrics in its groups, parameters and tags beside its own.

It never ends the trial, nor fails it: what cannot be kept as it is said is kept as near to it as can be.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from detlab.schemas.wire import MetricsRecord
from detlab.schemas.wire.logged_names import place_of
from detlab_hub.core.tracking import keys
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.fencing import current_attempt
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.ingest import records
from detlab_hub.services.tracking.experiments import BadRequest
from detlab_hub.services.tracking.facts import flat
from detlab_hub.store.queries.tracking import points, runs
from detlab_hub.store.queries.tracking.points import LoggedPoint
from detlab_hub.store.tables import TrackedRunRow, TrialRow

METADATA_KEY = "mlflow"
"""In the trial's metadata: parameters and tags that were logged."""
METADATA_BYTES = 64 * 1024
DIFFERS = "parameters that differ from the hyperparameters"
"""Begins the warning of a trial that has logged others than it was given."""
_SHOWN = 10


def report(unit: UnitOfWork, task: TaskCaller, logged: Sequence[LoggedPoint]) -> None:
    """Store points as reports of the trial, in the order of their steps.

    Raises:
        BadRequest: One of them can never be stored.
        StaleAttempt: The attempt is over.
    """
    _, trial = current_attempt(unit.session, task)
    records.begin(unit, task)
    searched = unit.experiment(trial.experiment_id).metric
    reports: dict[tuple[str, int], MetricsRecord] = {}
    by_key: dict[str, list[LoggedPoint]] = {}
    for point in logged:
        by_key.setdefault(point.key, []).append(point)
    for key, those in by_key.items():
        group, name = place_of(key, searched)
        for point, step in zip(those, _steps(unit, trial, group, name, those), strict=True):
            if step is None:
                continue
            record = reports.setdefault(
                (group, step),
                MetricsRecord(seq=0, time=point.time_ms / 1000, group=group, steps_completed=step, metrics={}),
            )
            record.metrics[name] = point.value
    refused = records.take_reports(unit, task, [reports[key] for key in sorted(reports, key=lambda one: one[1])])
    if refused:
        raise BadRequest(f"this cannot be logged: {'; '.join(one.message for one in refused[:_SHOWN])}")


def _steps(
    unit: UnitOfWork, trial: TrialRow, group: str, name: str, those: Sequence[LoggedPoint]
) -> Sequence[int | None]:
    said = [max(point.step, 0) for point in those]
    newest = points.newest_step(unit.session, trial.id, group, name)
    taken: dict[int, keys.Seen] = {}
    if newest is not None and min(said) <= newest:
        taken = points.steps_of(unit.session, trial.id, group, name, said)
    return keys.free_steps([(one.step, (one.time_ms, repr(float(one.value)))) for one in those], taken, newest)


def mirror(unit: UnitOfWork, row: TrackedRunRow) -> None:
    """Show the parameters and tags of a trial's run in its metadata, and warn of parameters that it was not given."""
    trial = unit.trial(row.trial_id or 0)
    values = runs.values_of(unit.session, [row.id]).get(row.id, {})
    params = values.get(runs.PARAM, {})
    tags = {key: value for key, value in values.get(runs.TAG, {}).items() if not key.startswith("mlflow.")}
    shown = {"params": params, "tags": tags}
    said = {name: part for name, part in shown.items() if part}
    if said and len(json.dumps(said)) <= METADATA_BYTES:
        trial.metadata_ = {**trial.metadata_, METADATA_KEY: said}
    _warn(trial, params)
    unit.changed_trial(trial)


def _warn(trial: TrialRow, params: dict[str, str]) -> None:
    given = flat(trial.hparams)
    other = [key for key, value in params.items() if key in given and not _same(given[key], value)]
    rest = [said for said in trial.warnings if not said.startswith(DIFFERS)]
    if other:
        told = ", ".join(
            f"{key} was logged as {params[key][:40]!r}, and is {given[key][:40]!r}" for key in other[:_SHOWN]
        )
        rest.append(f"{DIFFERS}: {told}")
    if rest != trial.warnings:
        trial.warnings = rest


def _same(given: str, logged: str) -> bool:
    if given == logged:
        return True
    try:
        return float(given) == float(logged)
    except ValueError:
        return given.lower() == logged.lower()
