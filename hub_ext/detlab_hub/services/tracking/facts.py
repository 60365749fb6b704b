"""What is said of runs and of the places where they lie, whatever protocol asks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from detlab_hub.core.tracking import keys
from detlab_hub.services.base.access import owns
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.tracking.access import (
    DEFAULT_NAME,
    TrackedPlace,
    TrackedRun,
    Tracker,
    project_id,
    run_id_of,
    trial_of,
)
from detlab_hub.store.queries import workspaces
from detlab_hub.store.queries.tracking import points, runs
from detlab_hub.store.queries.tracking.points import LoggedPoint
from detlab_hub.store.queries.tracking.search import STATUS_OF
from detlab_hub.store.tables import ExperimentRow, ProjectRow, TrackedRunRow

NAME_TAG, USER_TAG, PARENT_TAG, SOURCE_TAG = (
    "mlflow.runName",
    "mlflow.user",
    "mlflow.parentRunId",
    "mlflow.source.type",
)

NOTES_TAG = "mlflow.note.content"
GROUP_TAG, JOB_TYPE_TAG = "detlab.group", "detlab.job_type"


@dataclass(frozen=True)
class PlaceFacts:
    """A project or an experiment, as a client's experiment. Times in milliseconds."""

    id: str
    name: str
    deleted: bool = False
    created_ms: int = 0
    updated_ms: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFacts:
    """A run. Times in milliseconds."""

    id: str
    name: str
    place: str
    user: str
    status: str
    started_ms: int
    ended_ms: int | None
    deleted: bool
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Sequence[LoggedPoint]
    datasets: Sequence[Any] = ()
    models_in: Sequence[Any] = ()
    models_out: Sequence[Any] = ()


def place_facts(place: TrackedPlace, caller: Tracker) -> PlaceFacts:
    """Return what is said of a place."""
    if (experiment := place.experiment) is not None:
        created = round(experiment.created_at * 1000)
        tags = {"detlab.experiment": str(experiment.id)}
        if experiment.description:
            tags[NOTES_TAG] = experiment.description
        deleted = experiment.archived_at is not None and isinstance(caller, Caller)  # its trials go on
        return PlaceFacts(place.id, experiment.name, deleted, created, created, tags)
    project, workspace = place.project, place.workspace
    if project is None or workspace is None:
        return PlaceFacts(place.id, DEFAULT_NAME)
    personal = workspace.kind == workspaces.PERSONAL
    mine = personal and isinstance(caller, Caller) and owns(caller, workspace.owner)
    name = project.name if mine else f"{workspace.owner}/{workspace.name}/{project.name}"
    if mine and project.key == workspaces.key_of(workspaces.NOWHERE):
        name = DEFAULT_NAME
    tags = dict(project.tags)
    if project.notes or project.description:
        tags.setdefault(NOTES_TAG, project.notes or project.description)
    created = round(project.created_at * 1000)
    return PlaceFacts(place.id, name, project.archived_at is not None, created, created, tags)


def run_facts(s: Session, found: Sequence[TrackedRun]) -> list[RunFacts]:
    """Return what is said of some runs."""
    rows = {one.id: one.row for one in found if one.row is not None}
    values = runs.values_of(s, list(rows))
    logged = points.newest(s, [one.id for one in found if one.trial is None])
    of_trials = points.newest_of_trials(s, [one.trial.id for one in found if one.trial is not None])
    return [
        _of_tracked(one.row, values.get(one.id, {}), logged.get(one.id, []), one.project)
        if one.trial is None and one.row is not None
        else _of_trial(one, values.get(one.id, {}), of_trials)
        for one in found
    ]


def _of_tracked(
    row: TrackedRunRow,
    values: Mapping[str, Mapping[str, str]],
    metrics: Sequence[LoggedPoint],
    project: ProjectRow | None,
) -> RunFacts:
    return RunFacts(
        id=row.id,
        name=row.name,
        place=str(row.experiment_id) if row.project_id is None else project_id(row.project_id),
        user=row.said_user or row.owner,
        status=row.status,
        started_ms=row.started_ms,
        ended_ms=row.ended_ms,
        deleted=row.deleted_at is not None or (project is not None and project.archived_at is not None),
        params=values.get(runs.PARAM, {}),
        tags={**values.get(runs.TAG, {}), NAME_TAG: row.name},
        metrics=metrics,
        datasets=row.datasets,
        models_in=row.models_in,
        models_out=row.models_out,
    )


def _of_trial(
    one: TrackedRun,
    values: Mapping[str, Mapping[str, str]],
    of_trials: Mapping[int, Sequence[tuple[str, LoggedPoint]]],
) -> RunFacts:
    trial, experiment, row = one.trial, one.experiment, one.row
    assert trial is not None
    assert experiment is not None
    metrics = [
        LoggedPoint(keys.key_of(group, point.key, experiment.metric), point.value, point.time_ms, point.step)
        for group, point in of_trials.get(trial.id, [])
    ]
    name = row.name if row is not None and row.name else f"trial {trial.id}"
    tags = {"detlab.trial": str(trial.id), USER_TAG: experiment.owner, SOURCE_TAG: "JOB"}
    return RunFacts(
        id=one.id,
        name=name,
        place=str(experiment.id),
        user=experiment.owner,
        status=STATUS_OF.get(trial.state, "RUNNING"),
        started_ms=round((trial.started_at or trial.created_at) * 1000),
        ended_ms=None if trial.ended_at is None else round(trial.ended_at * 1000),
        deleted=False,
        params={**flat(trial.hparams), **values.get(runs.PARAM, {})},
        tags={**tags, **values.get(runs.TAG, {}), NAME_TAG: name},
        metrics=metrics,
        datasets=row.datasets if row else (),
        models_in=row.models_in if row else (),
        models_out=row.models_out if row else (),
    )


def flat(hparams: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Return hyperparameters as clients have parameters: texts, by the path of their names."""
    found: dict[str, str] = {}
    for name, value in hparams.items():
        if isinstance(value, dict) and value:
            found.update(flat(value, f"{before}{name}."))
        else:
            found[f"{before}{name}"] = as_text(value)
    return found


def as_text(value: Any) -> str:
    """Return a hyperparameter as Python, and so a client, writes it."""
    if isinstance(value, str | int | float) or value is None:
        return str(value)
    return json.dumps(value)


def loaded(s: Session, ids: Sequence[str]) -> list[TrackedRun]:
    """Load runs by their ids, in their order, whoever asks: the caller has been found to be allowed to read them."""
    rows = runs.rows_of(s, ids)
    trials = runs.trials_of(s, [number for one in ids if (number := trial_of(one)) is not None])
    found = []
    for one in ids:
        number, row = trial_of(one), rows.get(one)
        trial = None if number is None else trials.get(number)
        if trial is None and row is None:
            continue
        of = trial.experiment_id if trial is not None else row.experiment_id if row is not None else None
        experiment = None if of is None else s.get(ExperimentRow, of)
        project = None if row is None or row.project_id is None else s.get(ProjectRow, row.project_id)
        found.append(TrackedRun(one if trial is None else run_id_of(trial.id), row, trial, experiment, project))
    return found
