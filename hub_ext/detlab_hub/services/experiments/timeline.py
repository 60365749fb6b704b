"""The history of an experiment, assembled from its rows; nothing is stored for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.taskwire import TimelineItem, TimelineView
from detlab_hub.services.base.access import experiment_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.store.queries import audit
from detlab_hub.store.queries.experiments import journal_decisions
from detlab_hub.store.queries.trials import stopping_of
from detlab_hub.store.tables import AllocationRow, AuditRow, CheckpointRow, ExperimentRow, TrialRow

LIMIT = 1000
"""Most rows of a kind that are read, and most entries that are shown: the newest."""
_ORDER = {
    what: place
    for place, what in enumerate(
        (
            "created",
            "trial created",
            "started",
            "attempt started",
            "checkpoint",
            "trial stopped",
            "trial would have been stopped",
            "attempt ended",
            "trial ended",
            "ended",
        )
    )
}
"""The order of entries of one moment."""
_ACTIONS = {
    "experiment.pause": "paused",
    "experiment.activate": "activated",
    "experiment.cancel": "cancel requested",
    "experiment.kill": "kill requested",
    "experiment.delete": "deleted",
    "experiment.archive": "archived",
    "experiment.unarchive": "unarchived",
    "trial.kill": "kill of a trial requested",
    "search.code": "code replaced",
    "search.metric": "metric renamed",
    "search.again": "trial handed out again",
}
"""Actions that no other rows record."""

_STOPS = {"stop_trial": "trial stopped", "would_stop": "trial would have been stopped"}
"""Decisions of a search."""


class Timeline(Service):
    """The course of an experiment."""

    async def view(self, caller: Caller, experiment_id: int) -> TimelineView:
        """Return the history, oldest first; at most the newest thousand entries.

        Raises:
            NotFound: There is no such experiment for the caller.
        """

        def look(s: Session) -> TimelineView:
            return TimelineView(items=_course(s, experiment_for(s, caller, experiment_id)))

        return await self._context.look(caller.name, look)


def _course(s: Session, row: ExperimentRow) -> list[TimelineItem]:
    trials = s.execute(
        select(TrialRow.id, TrialRow.idx, TrialRow.state, TrialRow.end_reason, TrialRow.created_at, TrialRow.ended_at)
        .where(TrialRow.experiment_id == row.id)
        .order_by(TrialRow.id.desc())
        .limit(LIMIT)
    ).all()
    found = [
        *_of_experiment(row),
        *_of_trials(trials),
        *_of_search(s, row.id),
        *_of_attempts(s, row.id),
        *_of_checkpoints(s, row.id),
        *_of_actions(s, row.id, [trial.id for trial in trials]),
    ]
    found.sort(key=lambda item: (item.time, _ORDER.get(item.what, len(_ORDER) // 2), item.trial_id or 0, item.run or 0))
    if len(found) <= LIMIT:
        return found
    return [TimelineItem(time=row.created_at, what="earlier", detail="earlier entries are left out"), *found[-LIMIT:]]


def _of_experiment(row: ExperimentRow) -> Iterator[TimelineItem]:
    yield TimelineItem(time=row.created_at, what="created", detail=f"by {row.owner}")
    if row.started_at is not None:
        yield TimelineItem(time=row.started_at, what="started")
    if row.ended_at is not None:
        yield TimelineItem(time=row.ended_at, what="ended", detail=row.state)


def _of_trials(trials: Sequence[Any]) -> Iterator[TimelineItem]:
    for key, idx, state, reason, created, ended in trials:
        yield TimelineItem(time=created, what="trial created", trial_id=key, detail=f"number {idx}")
        if ended is not None:
            why = f"{state}: {reason}" if reason else state
            yield TimelineItem(time=ended, what="trial ended", trial_id=key, detail=why)


def _of_search(s: Session, experiment_id: int) -> Iterator[TimelineItem]:
    """Return why trials were stopped, and what policies with `dry_run` would have stopped."""
    decided = [
        (at, decision)
        for at, decisions in journal_decisions(s, experiment_id, LIMIT)
        for decision in decisions
        if decision.get("type") in _STOPS
    ]
    known = stopping_of(s, experiment_id, {str(decision["request_id"]) for _, decision in decided})
    for at, decision in decided:
        key, why = known.get(decision["request_id"], (None, ""))
        detail = str(decision.get("evidence") or why)
        if detail:  # a trial that is stopped at its end has none
            yield TimelineItem(time=at, what=_STOPS[decision["type"]], trial_id=key, detail=detail)


def _of_attempts(s: Session, experiment_id: int) -> Iterator[TimelineItem]:
    query = (
        select(
            AllocationRow.trial_id,
            AllocationRow.run,
            AllocationRow.agent_id,
            AllocationRow.slots,
            AllocationRow.started_at,
            AllocationRow.ended_at,
            AllocationRow.exit_code,
            AllocationRow.exit_reason,
        )
        .where(AllocationRow.experiment_id == experiment_id)
        .order_by(AllocationRow.requested_at.desc())
        .limit(LIMIT)
    )
    for trial_id, run, agent, slots, started, ended, code, reason in s.execute(query):
        if started is not None:
            where = f"on {agent}" + (f", {len(slots)} slots" if len(slots) != 1 else ", 1 slot")
            yield TimelineItem(time=started, what="attempt started", trial_id=trial_id, run=run, detail=where)
        if ended is not None:
            how = reason or "ended" if code is None else f"{reason or 'ended'}, exit code {code}"
            yield TimelineItem(time=ended, what="attempt ended", trial_id=trial_id, run=run, detail=how)


def _of_checkpoints(s: Session, experiment_id: int) -> Iterator[TimelineItem]:
    query = (
        select(CheckpointRow.created_at, CheckpointRow.trial_id, CheckpointRow.run, CheckpointRow.steps_completed)
        .where(CheckpointRow.experiment_id == experiment_id)
        .order_by(CheckpointRow.created_at.desc())
        .limit(LIMIT)
    )
    for time, trial_id, run, steps in s.execute(query):
        yield TimelineItem(time=time, what="checkpoint", trial_id=trial_id, run=run, detail=f"at step {steps}")


def _of_actions(s: Session, experiment_id: int, trial_ids: Sequence[int]) -> Iterator[TimelineItem]:
    subjects = {f"experiment {experiment_id}": None, **{f"trial {key}": key for key in trial_ids}}
    rows: list[AuditRow] = audit.of_subjects(s, list(subjects), LIMIT)
    for row in rows:
        if row.action in _ACTIONS:
            said = f"by {row.actor}"
            yield TimelineItem(time=row.time, what=_ACTIONS[row.action], trial_id=subjects[row.subject], detail=said)
