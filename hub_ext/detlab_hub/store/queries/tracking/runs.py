"""Tracked runs, their parameters and tags, models and files, by their keys."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, delete, func, select
from sqlalchemy.orm import Session

from detlab.schemas.wire.runs import METRIC_TAG
from detlab_hub.store.queries.statements import chunks, upsert
from detlab_hub.store.tables import (
    CheckpointRow,
    TrackedFileRow,
    TrackedModelRow,
    TrackedPoint,
    TrackedRunRow,
    TrackedSeries,
    TrackedValue,
    TrackedWriterRow,
    TrialRow,
    clean_text,
)

PARAM, TAG, SUMMARY = "param", "tag", "summary"
KEY_TAG = "detlab.key"
"""Tag of a run with what its script calls it."""
_VALUES: Table = TrackedValue.__table__


def of_trial(s: Session, trial_id: int) -> TrackedRunRow | None:
    """Return the run that stands for a trial, if a client has logged into it."""
    query = select(TrackedRunRow).where(TrackedRunRow.trial_id == trial_id, TrackedRunRow.is_trial)
    return s.scalars(query).first()


def rows_of(s: Session, run_ids: Collection[str]) -> dict[str, TrackedRunRow]:
    """Return the rows of some runs, by their ids."""
    found: dict[str, TrackedRunRow] = {}
    for part in chunks(sorted(run_ids)):
        found.update((row.id, row) for row in s.scalars(select(TrackedRunRow).where(TrackedRunRow.id.in_(part))))
    return found


def trials_of(s: Session, trial_ids: Collection[int]) -> dict[int, TrialRow]:
    """Return some trials, by their ids."""
    found: dict[int, TrialRow] = {}
    for part in chunks(sorted(trial_ids)):
        found.update((row.id, row) for row in s.scalars(select(TrialRow).where(TrialRow.id.in_(part))))
    return found


def page(
    s: Session,
    project_id: int | None,
    owner: str,
    tags: Mapping[str, str],
    *,
    status: str,
    deleted: bool = False,
    skip: int,
    limit: int,
) -> list[str]:
    """Return the ids of runs, the newest first, and one more than `limit` if there are more.

    Args:
        s: A session.
        project_id: The project in which they lie; None: any.
        owner: Whose they are; empty: anybody's.
        tags: Those that they have.
        status: How they stand; empty: whatever.
        deleted: Only those that are marked as deleted; else none of these.
        skip: Runs of the pages before.
        limit: Most runs.
    """
    row, value = TrackedRunRow, TrackedValue
    marked = row.deleted_at.is_not(None) if deleted else row.deleted_at.is_(None)
    query = select(row.id).where(marked, row.is_trial.is_(False))
    if project_id is not None:
        query = query.where(row.project_id == project_id)
    if owner:
        query = query.where(row.owner == owner)
    if status:
        query = query.where(row.status == status)
    for key, text in tags.items():
        mine = (value.run_id == row.id) & (value.kind == TAG) & (value.key == key) & (value.value == text)
        query = query.where(select(value.run_id).where(mine).exists())
    return list(s.scalars(query.order_by(row.started_ms.desc(), row.id).offset(skip).limit(limit + 1)))


def own_beginning(s: Session, owner: str, start: str, limit: int) -> list[str]:
    """Return the ids of some runs of a user whose id, or what a script calls them, begins so; deleted ones too.

    Args:
        s: A session.
        owner: Whose runs.
        start: Characters.
        limit: Most ids.
    """
    row, value = TrackedRunRow, TrackedValue
    said = (value.run_id == row.id) & (value.kind == TAG) & (value.key == KEY_TAG)
    called = select(value.run_id).where(said, value.value.startswith(start, autoescape=True)).exists()
    query = select(row.id).where(row.owner == owner, row.id.startswith(start, autoescape=True) | called)
    return list(s.scalars(query.order_by(row.id).limit(limit)))


def put_values(s: Session, run_id: str, kind: str, values: Mapping[str, str]) -> None:
    """Set parameters or tags."""
    rows = [{"run_id": run_id, "kind": kind, "key": clean_text(key), "value": values[key]} for key in values]
    if rows:
        s.connection().execute(upsert(s, _VALUES, ("run_id", "kind", "key"), ("value",)), rows)


def some_values(s: Session, run_id: str, kind: str, keys: Collection[str]) -> dict[str, str]:
    """Return those of some parameters or tags that are set."""
    found: dict[str, str] = {}
    for part in chunks(sorted(map(clean_text, keys))):
        query = select(TrackedValue.key, TrackedValue.value).where(
            TrackedValue.run_id == run_id, TrackedValue.kind == kind, TrackedValue.key.in_(part)
        )
        found.update((key, value) for key, value in s.execute(query))
    return found


def measured_by(s: Session, run_id: str) -> tuple[str, bool]:
    """Return the metric by which a run is measured, empty if none is said, and whether smaller values are better."""
    text = some_values(s, run_id, TAG, [METRIC_TAG]).get(METRIC_TAG, "")
    way, _, name = text.partition(" ")
    return (name.strip(), way == "min") if way in {"min", "max"} else ("", True)


def mark_key(run_id: str) -> int:
    """Return the number of a run among experiments in what rules remember: below 0, where no experiment is."""
    return -1 - int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:7], "big")


def values_of(s: Session, run_ids: Collection[str]) -> dict[str, dict[str, dict[str, str]]]:
    """Return run -> kind -> key -> value of some runs."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for part in chunks(sorted(run_ids)):
        query = select(TrackedValue.run_id, TrackedValue.kind, TrackedValue.key, TrackedValue.value)
        query = query.where(TrackedValue.run_id.in_(part)).order_by(TrackedValue.key)
        for run_id, kind, key, value in s.execute(query):
            found.setdefault(run_id, {}).setdefault(kind, {})[key] = value
    return found


def size_of_values(s: Session, run_id: str) -> tuple[int, int]:
    """Return how many parameters and tags a run has, and how many characters they have in all."""
    size = func.coalesce(func.sum(func.length(TrackedValue.key) + func.length(TrackedValue.value)), 0)
    number, chars = s.execute(select(func.count(), size).where(TrackedValue.run_id == run_id)).one()
    return int(number), int(chars)


def remove_value(s: Session, run_id: str, kind: str, key: str) -> bool:
    """Remove a tag; return False if there was none."""
    query = delete(TrackedValue).where(
        TrackedValue.run_id == run_id, TrackedValue.kind == kind, TrackedValue.key == clean_text(key)
    )
    return bool(getattr(s.execute(query), "rowcount", 0))


@dataclass(frozen=True)
class RunCounts:
    """How many runs from elsewhere lie somewhere; `deleted` ones are those that are marked so."""

    shown: int = 0
    deleted: int = 0


def counts_of_projects(s: Session, project_ids: Sequence[int]) -> dict[int, RunCounts]:
    """Return how many runs lie in projects; one without any has no entry."""
    return _counts(s, TrackedRunRow.project_id, project_ids)


def counts_of_workspaces(s: Session, workspace_ids: Sequence[int]) -> dict[int, RunCounts]:
    """Return how many runs lie in workspaces; one without any has no entry."""
    return _counts(s, TrackedRunRow.workspace_id, workspace_ids)


def _counts(s: Session, column: Any, ids: Sequence[int]) -> dict[int, RunCounts]:
    found: dict[int, RunCounts] = {}
    for part in chunks(list(ids)):
        query = select(column, func.count(), func.count(TrackedRunRow.deleted_at)).where(column.in_(part))
        for key, count, deleted in s.execute(query.group_by(column)):
            found[key] = RunCounts(count - deleted, deleted)
    return found


# --- models and files


def count_models(s: Session, run_id: str) -> int:
    """Return how many models a run has logged."""
    query = select(func.count()).select_from(TrackedModelRow).where(TrackedModelRow.run_id == run_id)
    return s.scalar(query) or 0


def models_of(s: Session, run_id: str, most: int) -> list[TrackedModelRow]:
    """Return models that a run has logged, the newest first."""
    query = select(TrackedModelRow).where(TrackedModelRow.run_id == run_id)
    return list(s.scalars(query.order_by(TrackedModelRow.created_at.desc(), TrackedModelRow.id).limit(most)))


def files_under(s: Session, root: str, folder: str, limit: int) -> list[TrackedFileRow]:
    """Return files below a folder of a run or a model ("": all), by path."""
    query = select(TrackedFileRow).where(TrackedFileRow.root == root)
    if folder:
        query = query.where(TrackedFileRow.path.startswith(f"{clean_text(folder)}/", autoescape=True))
    return list(s.scalars(query.order_by(TrackedFileRow.path).limit(limit)))


def files_from(s: Session, root: str, skip: int, limit: int) -> list[TrackedFileRow]:
    """Return files of a run or a model after so many, by path."""
    query = select(TrackedFileRow).where(TrackedFileRow.root == root)
    return list(s.scalars(query.order_by(TrackedFileRow.path).offset(skip).limit(limit)))


def file_at(s: Session, root: str, path: str) -> TrackedFileRow | None:
    """Return a file of a run or a model."""
    return s.get(TrackedFileRow, (root, clean_text(path)))


def files_at_any(s: Session, root: str, paths: Collection[str]) -> list[str]:
    """Return those of some paths at which a run or a model has a file."""
    if not paths:
        return []
    query = select(TrackedFileRow.path).where(TrackedFileRow.root == root, TrackedFileRow.path.in_(list(paths)))
    return list(s.scalars(query))


def count_files(s: Session, run_id: str) -> int:
    """Return how many files a run and its models have."""
    query = select(func.count()).select_from(TrackedFileRow).where(TrackedFileRow.run_id == run_id)
    return s.scalar(query) or 0


def roots_of_experiment(s: Session, experiment_id: int) -> list[str]:
    """Return the runs, models and checkpoints of an experiment that have files of the master's own."""
    mine = select(TrackedRunRow.id).where(TrackedRunRow.experiment_id == experiment_id)
    files = s.scalars(select(TrackedFileRow.root).where(TrackedFileRow.run_id.in_(mine)).distinct())
    return [*files, *s.scalars(select(CheckpointRow.uuid).where(CheckpointRow.run_id.in_(mine)))]


def forget_files_of_experiment(s: Session, experiment_id: int) -> None:
    """Remove the rows of files that clients have logged into an experiment: the files are gone."""
    mine = select(TrackedRunRow.id).where(TrackedRunRow.experiment_id == experiment_id)
    s.execute(delete(TrackedFileRow).where(TrackedFileRow.run_id.in_(mine)))
    s.execute(delete(CheckpointRow).where(CheckpointRow.run_id.in_(mine)))


def delete_of_experiment(s: Session, experiment_id: int) -> None:
    """Remove the rows of all that clients have logged into an experiment."""
    mine = select(TrackedRunRow.id).where(TrackedRunRow.experiment_id == experiment_id)
    series = select(TrackedSeries.id).where(TrackedSeries.run_id.in_(mine))
    s.execute(delete(TrackedPoint).where(TrackedPoint.series_id.in_(series)))
    for table in (TrackedSeries, TrackedValue, TrackedFileRow, TrackedModelRow, TrackedWriterRow):
        s.execute(delete(table).where(table.run_id.in_(mine)))
    s.execute(delete(TrackedRunRow).where(TrackedRunRow.experiment_id == experiment_id))
