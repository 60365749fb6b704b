"""Models that runs log: made, completed, tagged, searched. Their files are `services.tracking.artifacts`'s."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement
from sqlalchemy.orm import Session

from detlab.errors import Conflict, Forbidden, NotFound
from detlab_hub.core.rights import Action
from detlab_hub.core.tracking.search import LOGGED_MODEL_FIELDS, Clause, FieldOf
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.threads import user_of
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.tracking.access import (
    Tracker,
    project_id,
    readable_places,
    run_for,
    task_may_not,
)
from detlab_hub.services.tracking.experiments import BadRequest, checked_tags, read_filter
from detlab_hub.store.queries.statements import first_that_fit
from detlab_hub.store.queries.tracking import places, runs
from detlab_hub.store.queries.tracking.points import LoggedPoint
from detlab_hub.store.queries.tracking.search import number_matches, text_matches
from detlab_hub.store.tables import TrackedModelRow, TrackedRunRow

PENDING, READY, FAILED = "LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY", "LOGGED_MODEL_UPLOAD_FAILED"
STATUSES = (PENDING, READY, FAILED)
MOST_MODELS = 1000
"""Of one run."""
MOST_ENTRIES, ENTRY_CHARS, NAME_CHARS = 1000, 8000, 500
ENTRIES_CHARS = 256 * 1024
"""Of the parameters of a model, and of its tags."""
MOST_METRICS = 1000
PAGE_MODELS = 200


@dataclass(frozen=True)
class LoggedModelFacts:
    """A model that a run has logged. Times in milliseconds."""

    id: str
    place: str
    name: str
    run_id: str
    model_type: str
    status: str
    created_ms: int
    updated_ms: int
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class ModelPage:
    """A page of models, and how many to skip for the next; None: it is the last."""

    items: Sequence[LoggedModelFacts]
    next: int | None = None


class LoggedModels(Service):
    """Use cases of models that runs log."""

    async def create(
        self,
        caller: Tracker,
        *,
        run_id: str,
        name: str,
        model_type: str,
        params: Mapping[str, str],
        tags: Mapping[str, str],
    ) -> LoggedModelFacts:
        """Begin a model, whose files are uploaded next.

        Raises:
            BadRequest: It names no run, or has too much.
            Forbidden: The caller may not log into the run.
            NotFound: There is no such run for the caller.
        """
        if not run_id:
            raise BadRequest(
                "a model is logged by a run here, and this one names none",
                hint="with mlflow.start_run(): mlflow.….log_model(…)",
            )
        checked = checked_tags(tags)

        def create(unit: UnitOfWork) -> LoggedModelFacts:
            found = run_for(unit.session, caller, run_id, Action.RUN_LOG)
            row = found.row
            if row is None:
                raise Conflict(f"run {run_id} has logged nothing: begin it first, by mlflow.start_run()")
            if runs.count_models(unit.session, row.id) >= MOST_MODELS:
                raise BadRequest(f"run {run_id} has logged {MOST_MODELS:,} models already")
            made = TrackedModelRow(
                id=f"m-{uuid.uuid4().hex}",
                run_id=row.id,
                name=name[:NAME_CHARS],
                model_type=model_type[:NAME_CHARS],
                params=_bounded(params),
                tags=_bounded(checked),
                created_at=unit.now,
                updated_at=unit.now,
            )
            unit.session.add(made)
            unit.session.flush()
            return model_facts(made, row)

        return await self._context.write(create)

    async def get(self, caller: Tracker, model_id: str) -> LoggedModelFacts:
        """Return a model.

        Raises:
            Forbidden: The caller is a trial, and it is not of its experiment.
            NotFound: There is none for the caller.
        """
        return await self._context.read(lambda s: model_facts(*model_for(s, caller, model_id)))

    async def edit(
        self,
        caller: Tracker,
        model_id: str,
        *,
        status: str | None = None,
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        remove_tag: str | None = None,
    ) -> LoggedModelFacts:
        """Change a model's status, parameters or tags.

        Raises:
            BadRequest: There is no such status, or it would have too much.
            Forbidden: The caller may not log into its run.
            NotFound: There is none for the caller, or no such tag.
        """
        if status is not None and status not in STATUSES:
            raise BadRequest(f"{status[:40]!r} is no status of a model: {', '.join(STATUSES)}")
        checked = checked_tags(tags or {})

        def edit(unit: UnitOfWork) -> LoggedModelFacts:
            row, run = model_for(unit.session, caller, model_id, Action.RUN_LOG)
            row.status = status or row.status
            row.params = _bounded({**row.params, **(params or {})})
            kept = {**row.tags, **checked}
            if remove_tag is not None and kept.pop(remove_tag, None) is None:
                raise NotFound(f"model {model_id} has no tag {remove_tag[:80]!r}")
            row.tags = _bounded(kept)
            row.updated_at = unit.now
            return model_facts(row, run)

        return await self._context.write(edit)

    async def search(self, caller: Tracker, numbers: Sequence[str], *, where: str, limit: int, skip: int) -> ModelPage:
        """Return models of the runs of some experiments, the newest first.

        Raises:
            BadRequest: It is searched by something that models do not have here.
            ConfigError: The filter cannot be read.
        """
        clauses, _ = read_filter(where, [], LOGGED_MODEL_FIELDS)
        most = min(limit, PAGE_MODELS)

        def look(s: Session) -> ModelPage:
            found = readable_places(s, caller, numbers)
            projects = [one.project.id for one in found if one.project is not None]
            experiments = [one.experiment.id for one in found if one.experiment is not None]
            conditions = [_clause(one) for one in clauses]
            ids = places.models(s, projects, experiments, conditions, skip=skip, limit=most)
            page = first_that_fit(s, TrackedModelRow, ids, most)
            items = [model_facts(one, s.get_one(TrackedRunRow, one.run_id)) for one in page.rows]
            return ModelPage(items, skip + len(items) if page.more else None)

        return await self._context.look(user_of(caller), look)


def _clause(one: Clause) -> ColumnElement[bool]:
    if one.of is not FieldOf.ATTRIBUTE:
        raise BadRequest(f"models are searched by {', '.join(LOGGED_MODEL_FIELDS)} here, not by a {one.of}")
    row = TrackedModelRow
    columns: dict[str, Any] = {
        "name": row.name,
        "model_id": row.id,
        "model_type": row.model_type,
        "status": row.status,
        "source_run_id": row.run_id,
        "creation_timestamp": row.created_at * 1000,
        "last_updated_timestamp": row.updated_at * 1000,
    }
    column = columns[one.key]
    if LOGGED_MODEL_FIELDS[one.key] == "number":
        return number_matches(column, one.operator, float(one.values[0]))
    return text_matches(column, one.operator, one.values)


def model_for(
    s: Session, caller: Tracker, model_id: str, action: Action | None = None
) -> tuple[TrackedModelRow, TrackedRunRow]:
    """Load a model, with its run, for who may read that.

    Raises:
        Forbidden: The caller may read it, and not do that; or is a trial, and it is not of its experiment.
        NotFound: There is none for the caller.
    """
    row = s.get(TrackedModelRow, model_id)
    if row is None:
        if isinstance(caller, TaskCaller):
            raise task_may_not("use this model")
        raise _no_model(model_id)
    try:
        found = run_for(s, caller, row.run_id, action)
    except NotFound as error:
        raise type(error)(_no_model(model_id).message) from error
    except Forbidden:
        if isinstance(caller, TaskCaller):
            raise task_may_not("use this model") from None
        raise
    assert found.row is not None
    return row, found.row


def _no_model(model_id: str) -> NotFound:
    return NotFound(f"there is no logged model {model_id[:80]}")


def model_facts(row: TrackedModelRow, run: TrackedRunRow) -> LoggedModelFacts:
    """Return what is said of a model."""
    return LoggedModelFacts(
        id=row.id,
        place=str(run.experiment_id) if run.project_id is None else project_id(run.project_id),
        name=row.name,
        run_id=row.run_id,
        model_type=row.model_type,
        status=row.status,
        created_ms=round(row.created_at * 1000),
        updated_ms=round(row.updated_at * 1000),
        params=row.params,
        tags=row.tags,
        metrics=row.metrics,
    )


def note_metrics(unit: UnitOfWork, run: TrackedRunRow, logged: Mapping[int, tuple[str, LoggedPoint]]) -> None:
    """Note points at the models that they are of, too: the last one of each metric. What is not a model is left out."""
    by_model: dict[str, list[LoggedPoint]] = {}
    for model_id, point in logged.values():
        by_model.setdefault(model_id, []).append(point)
    for model_id, those in by_model.items():
        row = unit.session.get(TrackedModelRow, model_id)
        if row is None or row.run_id != run.id:
            continue
        known = {one["key"]: one for one in row.metrics}
        for point in those:
            known[point.key] = {
                "key": point.key,
                "value": point.value,
                "timestamp": point.time_ms,
                "step": point.step,
                "run_id": run.id,
                "model_id": row.id,
            }
        row.metrics = list(known.values())[:MOST_METRICS]


def _bounded(entries: Mapping[str, str]) -> dict[str, str]:
    if len(entries) > MOST_ENTRIES:
        raise BadRequest(f"a model has {MOST_ENTRIES} parameters, or tags, at most")
    kept = {key[:NAME_CHARS]: value[:ENTRY_CHARS] for key, value in entries.items()}
    if sum(len(key) + len(value) for key, value in kept.items()) > ENTRIES_CHARS:
        raise BadRequest(f"the parameters, or the tags, of a model have {ENTRIES_CHARS:,} characters at most")
    return kept
