"""What is logged into a run: metrics, parameters, tags, data sets and models; all of a request or nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import Forbidden, NotFound
from detlab.schemas.wire.logged_names import BadKey, check_key
from detlab_hub.core.tracking import keys
from detlab_hub.services.alerts.evaluation import WithAlertRules
from detlab_hub.services.alerts.of_runs import tell_of_metrics
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.tracking import in_trials
from detlab_hub.services.tracking.access import TrackedRun, Tracker, run_for
from detlab_hub.services.tracking.experiments import BadRequest
from detlab_hub.services.tracking.facts import NAME_TAG
from detlab_hub.services.tracking.models import note_metrics
from detlab_hub.services.tracking.runs import check_size, writable
from detlab_hub.store.queries.tracking import points, runs
from detlab_hub.store.queries.tracking.points import LoggedPoint
from detlab_hub.store.tables import TrackedRunRow
from detlab_hub.store.values import split

MOST_METRICS, MOST_PARAMS, MOST_TAGS, MOST_TOGETHER = 1000, 100, 100, 1000
"""In one request; MLflow's own limits."""
MOST_NAMES = 10_000
"""Metrics of one run."""
INPUTS_BYTES = 256 * 1024
"""Of the data sets and models of one run, as JSON."""
MOST_STEP = 2**53


@dataclass(frozen=True)
class LoggedBatch:
    """What one request logs.

    Attributes:
        points: Values of metrics.
        params: In the order in which they came; a parameter keeps its first value.
        tags: Each replaces one of the same key.
        models: By its place, the logged model that a point is of, too.
    """

    points: Sequence[LoggedPoint] = ()
    params: Sequence[tuple[str, str]] = ()
    tags: Sequence[tuple[str, str]] = ()
    models: Mapping[int, str] | None = None


@dataclass(frozen=True)
class HistoryPage:
    """Points of a metric, and where the next page begins; None: it is the last."""

    points: Sequence[LoggedPoint]
    after: str | None = None


class RunLogging(WithAlertRules):
    """Use cases of what is logged."""

    async def log(self, caller: Tracker, run_id: str, batch: LoggedBatch) -> None:
        """Log a batch. Into a trial, metrics come from its own task alone, and go to its groups.

        Raises:
            BadRequest: Something of it cannot be logged, or a parameter has another value already.
            Forbidden: The caller may not log into it.
            NotFound: There is no such run for the caller.
            StaleAttempt: The task's attempt is over.
        """
        _check(batch)

        def log(unit: UnitOfWork) -> None:
            row = writable(unit, caller, run_id)
            _put_params(unit.session, row, batch)
            _put_tags(unit.session, row, batch.tags)
            if batch.params or batch.tags:
                check_size(unit.session, row)
            if batch.points:
                _put_points(unit, caller, row, batch)
                tell_of_metrics(unit, rules, row, batch.points)
            if row.is_trial and (batch.params or batch.tags):
                in_trials.mirror(unit, row)
            row.updated_at = unit.now
            unit.outbox.wake_logs.add(row.id)

        rules = await self._evaluation.rules()
        await self._context.write(log)

    async def delete_tag(self, caller: Tracker, run_id: str, key: str) -> None:
        """Remove a tag.

        Raises:
            Forbidden: The caller may not log into the run.
            NotFound: There is no such run for the caller, or no such tag.
        """

        def remove(unit: UnitOfWork) -> None:
            row = writable(unit, caller, run_id)
            if not runs.remove_value(unit.session, row.id, runs.TAG, key):
                raise NotFound(f"run {run_id} has no tag {key[:80]!r}")
            if row.is_trial:
                in_trials.mirror(unit, row)

        await self._context.write(remove)

    async def add_inputs(
        self,
        caller: Tracker,
        run_id: str,
        *,
        datasets: Sequence[Mapping[str, Any]] = (),
        models_in: Sequence[Mapping[str, Any]] = (),
        models_out: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Add data sets that a run uses, and models that it uses or makes; one that is there is not added again.

        Raises:
            BadRequest: They would be too many.
            Forbidden: The caller may not log into the run.
            NotFound: There is no such run for the caller.
        """

        def add(unit: UnitOfWork) -> None:
            row = writable(unit, caller, run_id)
            row.datasets = _added(row.datasets, datasets)
            row.models_in = _added(row.models_in, models_in)
            row.models_out = _added(row.models_out, models_out)
            size = len(json.dumps([row.datasets, row.models_in, row.models_out]))
            if size > INPUTS_BYTES:
                raise BadRequest(
                    f"the data sets and models of run {run_id} have {size:,} bytes; {INPUTS_BYTES:,} is the most"
                )

        await self._context.write(add)

    async def add_to_list(self, caller: Tracker, run_id: str, tag: str, text: str) -> None:
        """Append to the JSON list that a tag is: how clients of MLflow 2 note the models of a run.

        Raises:
            BadRequest: It is no JSON, or the tag no list, or too long.
            Forbidden: The caller may not log into the run.
            NotFound: There is no such run for the caller.
        """

        def add(unit: UnitOfWork) -> None:
            row = writable(unit, caller, run_id)
            known = runs.some_values(unit.session, row.id, runs.TAG, [tag]).get(tag, "[]")
            try:
                made = json.dumps([*json.loads(known), json.loads(text)])
            except (ValueError, TypeError, RecursionError) as error:
                raise BadRequest(f"the tag {tag} is a list of JSON, and this cannot be added to it") from error
            if len(made) > keys.NOTE_CHARS:
                raise BadRequest(f"the tag {tag} has {len(made):,} characters; {keys.NOTE_CHARS:,} is the most")
            runs.put_values(unit.session, row.id, runs.TAG, {tag: made})

        await self._context.write(add)

    async def history(self, caller: Tracker, run_id: str, key: str, limit: int, after: str) -> HistoryPage:
        """Return points of a metric, by step and time.

        Raises:
            BadRequest: `after` is none of a page.
            Forbidden: The caller is a trial, and the run is not of its experiment.
            NotFound: There is no such run for the caller.
        """
        position = _position(after)

        def look(s: Session) -> HistoryPage:
            found = run_for(s, caller, run_id)
            rows = _history(s, found, key, position, limit)
            shown = rows[:limit]
            return HistoryPage(shown, _token(shown[-1]) if len(rows) > limit else None)

        return await self._context.read(look)


def _history(s: Session, found: TrackedRun, key: str, after: points.Position | None, limit: int) -> list[LoggedPoint]:
    if found.trial is None or found.experiment is None:
        return points.history(s, found.id, key, after, limit)
    beyond = None if after is None else after[0]
    for group, name in keys.places(key, found.experiment.metric):
        rows = points.history_of_trial(s, found.trial.id, group, name, beyond, limit)
        if rows:
            return [LoggedPoint(key, one.value, one.time_ms, one.step) for one in rows]
    return []


def _token(point: LoggedPoint) -> str:
    value, flag = split(point.value)
    return f"{point.step},{point.time_ms},{flag},{value or 0.0!r}"


def _position(text: str) -> points.Position | None:
    if not text:
        return None
    try:
        step, ms, flag, value = text.split(",")
        found = int(step), int(ms), int(flag), float(value)
    except ValueError as error:
        raise BadRequest("this page_token is none of a page of this list") from error
    if max(map(abs, found[:3])) >= 2**63:
        raise BadRequest("this page_token is none of a page of this list")
    return found


def _check(batch: LoggedBatch) -> None:
    counts = {"metrics": len(batch.points), "parameters": len(batch.params), "tags": len(batch.tags)}
    most = {"metrics": MOST_METRICS, "parameters": MOST_PARAMS, "tags": MOST_TAGS}
    over = [f"{counts[name]:,} {name}, {most[name]} at most" for name in counts if counts[name] > most[name]]
    if sum(counts.values()) > MOST_TOGETHER and not over:
        over = [f"{sum(counts.values()):,} entries, {MOST_TOGETHER} at most"]
    wrong = over or _wrong_keys(batch) or _wrong_points(batch.points)
    if wrong:
        shown = "; ".join(wrong[:10]) + ("; …" if len(wrong) > 10 else "")
        raise BadRequest(f"this cannot be logged: {shown}")


def _wrong_keys(batch: LoggedBatch) -> list[str]:
    wrong: dict[str, None] = {}
    named = [("metric", {point.key for point in batch.points})]
    named += [("parameter", {key for key, _ in batch.params}), ("tag", {key for key, _ in batch.tags})]
    for what, names in named:
        for key in sorted(names):
            try:
                check_key(key, what)
            except BadKey as error:
                wrong[str(error)] = None
    said: dict[str, str] = {}
    for key, value in batch.params:
        if said.setdefault(key, value) != value:
            wrong[f"the parameter {key[:80]!r} has two values in one request"] = None
    return list(wrong)


def _wrong_points(logged: Sequence[LoggedPoint]) -> list[str]:
    return [
        f"step {one.step} and time {one.time_ms} of metric {one.key[:80]!r} must be below 2**53, the time above 0"
        for one in logged
        if not (abs(one.step) <= MOST_STEP and 0 <= one.time_ms <= MOST_STEP)
    ]


def _put_params(s: Session, row: TrackedRunRow, batch: LoggedBatch) -> None:
    wanted = {key: keys.cut_value(key, value) for key, value in batch.params}
    if not wanted:
        return
    known = runs.some_values(s, row.id, runs.PARAM, wanted)
    changed = [key for key, value in wanted.items() if known.get(key, value) != value]
    if changed:
        told = ", ".join(f"{key!r} is {known[key][:80]!r}, not {wanted[key][:80]!r}" for key in changed[:10])
        raise BadRequest(f"parameters of a run do not change: {told}", hint="Log what changes as a metric or a tag.")
    runs.put_values(s, row.id, runs.PARAM, {key: value for key, value in wanted.items() if key not in known})


def _put_tags(s: Session, row: TrackedRunRow, tags: Sequence[tuple[str, str]]) -> None:
    wanted = {key: keys.cut_value(key, value) for key, value in tags}
    name = wanted.pop(NAME_TAG, "")
    if name:
        row.name = name[:500]
    runs.put_values(s, row.id, runs.TAG, wanted)


def _put_points(unit: UnitOfWork, caller: Tracker, row: TrackedRunRow, batch: LoggedBatch) -> None:
    if not row.is_trial:
        points.append(unit.session, row.id, batch.points)
        unit.session.flush()
        if points.count(unit.session, row.id) > MOST_NAMES:
            raise BadRequest(f"run {row.id} would have more than {MOST_NAMES:,} metrics")
    elif isinstance(caller, TaskCaller):
        in_trials.report(unit, caller, batch.points)
    else:
        raise Forbidden(f"run {row.id} is trial {row.trial_id}, whose metrics come from its own task")
    if batch.models:
        note_metrics(unit, row, {place: (model, batch.points[place]) for place, model in batch.models.items()})


def _added(before: Sequence[Any], more: Sequence[Mapping[str, Any]]) -> list[Any]:
    found = list(before)
    for one in more:
        if one not in found:
            found.append(dict(one))
    return found
