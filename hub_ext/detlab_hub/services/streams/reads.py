"""A read of the event log: the events beyond a cursor, with the current views and the owner of each object.

It runs in a thread, on one snapshot, with a few queries whatever it finds. `batches` decides which reader gets which
events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Select, bindparam, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import Event, encode_floats
from detlab_hub.core.rights import ObjectKind, Thing
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.streams.batches import (
    MEMBERS,
    EventLine,
    Holders,
    StreamBatch,
    model_key,
    rights_key,
    state_key,
)
from detlab_hub.services.views import budget_views, experiment_views, task_views
from detlab_hub.store.queries import events, rights
from detlab_hub.store.queries.rights import NOBODY, USER, Members
from detlab_hub.store.tables import ExperimentRow, ModelRow, TaskRow, TrialRow

BATCH = 1000
"""Most events of one read."""
CHARS = 128 * 1024
"""Approximate limit of one read in bytes, unless a single event has more: what a slow reader holds in memory."""
STEP = 100
"""Events that are read at a time, until one of the limits above is reached."""
LAG = 50_000
"""A reader that is further behind must fetch the snapshot again."""
FEW = 3
"""Up to this many rows are read one by one, by their key, which costs a fraction of a query with a list."""
SHARED = "shared"
"""In the event of a deletion: the grants at that time, as (kind, name, may write), and its workspace."""
_PLACE = "workspace"
"""Its kind there."""
STATE_KINDS = ("experiment", "trial", "task", "cluster", "checkpoint", "model", MEMBERS)
_OWNER = Caller("", admin=True)
"""The caller of views that are made for all: `may` is then set to the right of each reader."""

Row = TypeVar("Row", ExperimentRow, TrialRow, TaskRow)
Subject: TypeAlias = tuple[str, int | str | None]
"""The subject of an event: its kind, and the id of that experiment, trial or user task."""


def note_rights(unit: UnitOfWork, workspace_id: int | None, to: Iterable[tuple[str, str]] = ()) -> None:
    """Have every read of the event log after it look up rights anew (I9), and tell those whom it concerns.

    Args:
        unit: The unit of work of the change.
        workspace_id: The workspace whose members it concerns; None: none.
        to: Users and groups whom it concerns besides, as (kind, name), such as one that is no member any more.
    """
    unit.event(MEMBERS, None, None, {"id": workspace_id, "to": [list(one) for one in to]})


@dataclass(frozen=True)
class LogRead:
    """A read of the log, to be run in a thread.

    Attributes:
        after: The cursor.
        now: The time of the events that the read itself adds.
        reasons: Why pending allocations wait, by allocation id.
        experiment_id: Only of this experiment.
        metrics_of: Else: the experiments whose metrics come with the states of all; None: of all.
        watched: Experiments whose holders are wanted whether there is anything of them or not.
        known: Holders that need not be looked up, unless there is news of them.
    """

    after: int
    now: float
    reasons: experiment_views.Reasons
    experiment_id: int | None = None
    metrics_of: frozenset[int] | None = frozenset()
    watched: Collection[int] = ()
    known: Mapping[int | str, Thing | None] = field(default_factory=dict)

    def __call__(self, s: Session) -> StreamBatch:
        """Run it."""
        floor, head = events.bounds(s)
        metrics_of = self.metrics_of if self.experiment_id is None else frozenset({self.experiment_id})
        if not floor <= self.after <= head or head - self.after > LAG:
            return StreamBatch(self.after, head, self.now, metrics_of, lost=True)
        found, more = self._found(s) if head > self.after else ([], False)
        upto = found[-1].id if more else head
        lines = [EventLine(event) for event in _with_views(s, found, self.reasons, self.now, upto if more else None)]
        # A change of grants may lie beyond a full batch: then nothing that is remembered of them is sure.
        changed = any(event.kind == MEMBERS for event in found)
        unsure = more or changed
        holders = self._holders(s, found, {} if unsure else self.known)
        return StreamBatch(
            self.after, upto, self.now, metrics_of, more=more, lines=lines, holders=holders, forgets=changed
        )

    def _found(self, s: Session) -> tuple[list[Event], bool]:
        """Read the events beyond the cursor, and whether there are more than one read takes."""
        found: list[Event] = []
        chars, cursor = 0, self.after
        while True:
            step = min(STEP, BATCH - len(found))
            some = self._some(s, cursor, step)
            for place, event in enumerate(some):
                found.append(event)
                chars += len(str(event.data))
                if chars >= CHARS:
                    return found, len(some) == step or place + 1 < len(some)
            if len(some) < step:
                return found, False
            if len(found) >= BATCH:
                return found, True
            cursor = found[-1].id

    def _some(self, s: Session, cursor: int, count: int) -> list[Event]:
        if self.experiment_id is not None:
            found = events.after(s, cursor, count, self.experiment_id)
        elif self.metrics_of is None:
            found = events.after(s, cursor, count)
        else:
            found = events.after(s, cursor, count, kinds=STATE_KINDS, followed=self.metrics_of)
        return [_without_moves(event) for event in found]

    def _holders(self, s: Session, found: Sequence[Event], known: Mapping[int | str, Thing | None]) -> Holders:
        """Load the owners of the events' objects, and their grants."""
        # A change of grants says that its experiment changed, in the same transaction.
        news = {event.experiment_id for event in found if event.kind == "experiment"}
        numbers = {event.experiment_id for event in found if event.experiment_id is not None} | set(self.watched)
        ids = {event.task_id for event in found if event.task_id is not None}
        wanted: list[int | str] = [*sorted(numbers), *sorted(ids), *map(state_key, sorted(ids))]
        holders: Holders = {key: known[key] for key in wanted if key in known and key not in news}
        missing = sorted(numbers - holders.keys())
        holders.update(_experiment_holders(s, missing))
        holders.update(_task_holders(s, sorted(ids - holders.keys())))
        models = _model_holders(s, [event for event in found if event.kind == "model"])
        models.update(_concerned(s, [event for event in found if event.kind == MEMBERS]))
        for event in found:  # the event of a deletion carries its owner and grants
            key = event.experiment_id
            if key is not None and "owner" in event.data and holders.get(key) is None:
                holders[key] = _last_holder(s, key, event.data)
        return {**{key: holders.get(key) for key in wanted}, **models}


def _experiment_holders(s: Session, numbers: Sequence[int]) -> Holders:
    found: Holders = {}
    for start in range(0, len(numbers), experiment_views.CHUNK):
        some = numbers[start : start + experiment_views.CHUNK]
        given = rights.grants_of_each(s, some)
        columns = select(ExperimentRow.id, ExperimentRow.owner, ExperimentRow.workspace_id)
        rows = s.execute(columns.where(ExperimentRow.id.in_(some))).all()
        members = rights.members_of_each(s, {place for _, _, place in rows if place is not None})
        for key, owner, place in rows:
            shared = [(row.kind, row.name, row.write) for row in given.get(key, [])]
            found[key] = _shared(key, owner, shared, members.get(place or 0, NOBODY))
    return found


def _shared(key: int, owner: str, shared: Iterable[tuple[str, str, bool]], members: Members = NOBODY) -> Thing:
    users: dict[str, bool] = {}
    groups: dict[str, bool] = {}
    for kind, name, write in shared:
        (users if kind == USER else groups)[name] = write
    return Thing(ObjectKind.EXPERIMENT, owner, users, groups, members.users, members.groups, experiment_id=key)


def _last_holder(s: Session, key: int, data: Mapping[str, Any]) -> Thing:
    """Return the owner of a deleted object, from its last event: earlier knowledge may be outdated."""
    shared = data.get(SHARED, ())
    return _shared(key, str(data["owner"]), _grants_in(shared), _members_in(s, shared))


def place_of(workspace_id: int | None) -> list[tuple[str, str, bool]]:
    """Return what `SHARED` has for the members of a workspace, beside the grants."""
    return [] if workspace_id is None else [(_PLACE, str(workspace_id), False)]


def _grants_in(shared: Iterable[tuple[str, str, bool]]) -> list[tuple[str, str, bool]]:
    return [(kind, name, write) for kind, name, write in shared if kind != _PLACE]


def _members_in(s: Session, shared: Iterable[tuple[str, str, bool]]) -> Members:
    """Return who is now a member of the workspace in which it lay."""
    places = [int(name) for kind, name, _ in shared if kind == _PLACE]
    return next(iter(rights.members_of_each(s, places).values()), NOBODY)


def _task_holders(s: Session, ids: Sequence[str]) -> Holders:
    """Load who may read user tasks, and who sees their state as a member of their workspace; None: nobody else."""
    found: Holders = {}
    for start in range(0, len(ids), experiment_views.CHUNK):
        query = select(TaskRow.id, TaskRow.owner, TaskRow.workspace_id)
        rows = s.execute(query.where(TaskRow.id.in_(ids[start : start + experiment_views.CHUNK]))).all()
        members = rights.members_of_each(s, {place for _, _, place in rows if place is not None})
        for key, owner, place in rows:
            found[key] = Thing(ObjectKind.TASK, owner, task_id=key)
            of = members.get(place or 0)
            found[state_key(key)] = (
                None
                if of is None
                else Thing(ObjectKind.TASK_STATE, members=of.users, member_groups=of.groups, task_id=key)
            )
    return found


def _model_holders(s: Session, found: Sequence[Event]) -> Holders:
    """Return who may read the models that events tell of; of one that is gone, who could when it went."""
    last = {int(event.data["id"]): event for event in found}
    if not last:
        return {}
    owners: dict[int, str] = {}
    places: dict[int, int | None] = {}
    for start in range(0, len(last), experiment_views.CHUNK):
        some = list(last)[start : start + experiment_views.CHUNK]
        rows = s.execute(select(ModelRow.id, ModelRow.owner, ModelRow.workspace_id).where(ModelRow.id.in_(some)))
        for key, owner, place in rows:
            owners[key], places[key] = owner, place
    members = rights.members_of_each(s, {place for place in places.values() if place is not None})
    given = rights.grants_of_models(s, list(owners))
    holders: Holders = {}
    for key, event in last.items():
        if key in owners:
            shared = [(row.kind, row.name, row.write) for row in given.get(key, [])]
            thing = _shared(0, owners[key], shared, members.get(places[key] or 0, NOBODY))
        else:
            thing = _last_holder(s, 0, event.data)
        holders[model_key(key)] = replace(thing, kind=ObjectKind.MODEL, experiment_id=None)
    return holders


def _concerned(s: Session, found: Sequence[Event]) -> Holders:
    """Return whom changes of rights concern: the users and groups that they name, and the members of a workspace."""
    places = {int(event.data["id"]) for event in found if event.data.get("id") is not None}
    members = rights.members_of_each(s, places) if places else {}
    return {
        rights_key(event.id): _shared(
            0,
            "",
            [(kind, name, False) for kind, name in event.data.get("to", ())],
            members.get(event.data.get("id") or 0, NOBODY),
        )
        for event in found
    }


def _subject(event: Event) -> Subject:
    match event.kind:
        case "experiment":
            return event.kind, event.experiment_id
        case "task":
            return event.kind, event.task_id
        case "cluster":
            return event.kind, None
        case "model":
            return event.kind, event.data["id"]
        case _:
            return event.kind, event.trial_id


def _without_moves(event: Event) -> Event:
    """Return the event without how its subject's state changed: readers of a stream get its current view."""
    if events.MOVED not in event.data:
        return event
    return event.model_copy(update={"data": {key: value for key, value in event.data.items() if key != events.MOVED}})


def _with_views(
    s: Session, found: Sequence[Event], reasons: experiment_views.Reasons, now: float, upto: int | None
) -> Iterator[Event]:
    """Yield the events to send: of those without data the last about each subject, with its current view.

    An experiment that has changed again beyond `upto`, where a full read ends, is left to the next read: its current
    view may show that it has ended, and readers stop at that, before the metrics between.
    """
    last = {_subject(event): event.id for event in found}
    bare = [_subject(event) for event in found if not event.data and event.id == last[_subject(event)]]
    if upto is not None:
        numbers = {int(key) for kind, key in bare if kind == "experiment" and key is not None}
        again = events.experiments_beyond(s, upto, numbers) if numbers else set()
        bare = [subject for subject in bare if subject[0] != "experiment" or subject[1] not in again]
    data = _views(s, bare, reasons, now)
    for event in found:
        if SHARED in event.data:  # which is for the read alone
            yield event.model_copy(update={"data": {k: v for k, v in event.data.items() if k != SHARED}})
        elif event.kind in {"metrics", "checkpoint"} or event.data:
            yield event
        elif last[_subject(event)] == event.id and _subject(event) in data:
            yield event.model_copy(update={"data": data[_subject(event)]})


def _views(
    s: Session, subjects: Sequence[Subject], reasons: experiment_views.Reasons, now: float
) -> dict[Subject, dict[str, Any]]:
    """Load the current views of everything that changed; a few queries for all, and one for each budget of slots."""
    wanted: dict[str, list[Any]] = {"experiment": [], "trial": [], "task": []}
    found: dict[Subject, dict[str, Any]] = {}
    for kind, key in subjects:
        if kind in wanted:
            wanted[kind].append(key)
        elif kind == "cluster":
            found[kind, None] = {}
    if wanted["experiment"]:
        rows = _rows(s, ExperimentRow, wanted["experiment"])
        for row, view in zip(rows, experiment_views.experiment_views(s, rows, _OWNER, reasons), strict=True):
            left = view.model_copy(update={"budgets": budget_views.views(s, row, now)}) if row.budget else view
            found["experiment", view.id] = _plain(left)
    if wanted["trial"]:
        for trial in experiment_views.trial_views(s, _rows(s, TrialRow, wanted["trial"]), reasons):
            found["trial", trial.id] = _plain(trial)
    if wanted["task"]:
        for task in task_views.task_views(s, _rows(s, TaskRow, wanted["task"]), reasons):
            found["task", task.id] = _plain(task)
    return found


def _rows(s: Session, table: type[Row], ids: Sequence[Any]) -> list[Row]:
    if len(ids) <= FEW:
        return [row for row in (s.get(table, key) for key in ids) if row is not None]
    rows: list[Row] = []
    for start in range(0, len(ids), experiment_views.CHUNK):
        rows += s.scalars(_of_these(table), {"ids": ids[start : start + experiment_views.CHUNK]})
    return rows


@cache
def _of_these(table: type[Row]) -> Select[Row]:
    return select(table).where(table.id.in_(bindparam("ids", expanding=True)))


def _plain(view: Any) -> dict[str, Any]:
    data: dict[str, Any] = encode_floats(view.model_dump(mode="json", exclude={"config"}))
    return data
