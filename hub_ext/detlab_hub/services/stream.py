"""Live streams: events of experiments and lines of output, read from the database, woken by commits.

Every reader has its own cursor and reads from the database, at most ten times a second; nobody waits for a
reader and nothing is queued for one. Events of experiments, trials and user tasks carry no data in the log: they say
*that* something changed, and get the view of the moment when they are read, once per batch. `cluster` never has any: it
says that the queue or the agents should be asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.wire import Event, LogLine, TrialState, encode_floats
from detlab_hub.services import taskviews, views
from detlab_hub.services.access import experiment_for, trial_for
from detlab_hub.services.callers import Caller
from detlab_hub.services.shell import Shell
from detlab_hub.store.queries import events, grants
from detlab_hub.store.tables import ExperimentRow, TaskRow, TrialRow

PERIOD = 0.1
"""Least seconds between two batches of one stream."""
BATCH = 2000
LAG = 50_000
"""A reader that is further behind is told to take the snapshot again."""
CURSOR_EVERY = 1000
"""After this many events that are not for the reader, it is told that its cursor moved."""
Row = TypeVar("Row", ExperimentRow, TrialRow, TaskRow)
STATE_KINDS = ("experiment", "trial", "task", "cluster", "checkpoint")

Subject: TypeAlias = tuple[str, int | str | None]
"""What an event is about: its kind, and the id of that experiment, trial or user task."""


@dataclass(frozen=True)
class Follow:
    """Metrics that a reader of all states wants besides: those of an experiment, all or some."""

    experiment: int
    trial: int | None = None
    """Of this trial alone."""
    group: str | None = None
    name: str | None = None


@dataclass
class _Reader:
    """One stream."""

    caller: Caller
    experiment_id: int | None
    cursor: int
    names: frozenset[str] | None
    groups: frozenset[str] | None
    follows: Sequence[Follow] = ()
    """Whose metrics come with the states of all; an experiment that is not the reader's adds nothing (`_visible`)."""
    told: int = 0
    """The last cursor that the reader was told."""
    shown: dict[int | str, bool] = field(default_factory=dict)
    """Whether the reader may look at an experiment (its number) or a user task (its id)."""
    grants: int = 0
    """`Shell.grants` of that knowledge."""


class Stream:
    """Open streams."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def events(
        self,
        caller: Caller,
        experiment_id: int | None,
        *,
        after: int | None = None,
        names: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        follows: Sequence[Follow] = (),
    ) -> AsyncIterator[list[Event]]:
        """Batches of events after a cursor, for ever.

        Args:
            caller: Whose experiments are shown.
            experiment_id: One experiment with its metrics, or None: the states of all.
            after: Cursor to resume after; None starts now.
            names: Metric names to send, None for all.
            groups: Metric groups to send, None for all.
            follows: With the states of all: the metrics that come, too. What there is not, or not for the caller, is
                left out: one closed subject must not end a stream that carries many.

        Raises:
            NotFound: There is no such experiment for the caller, or no longer.
        """
        known = self._shell.grants  # before the right is looked at: what changes meanwhile is looked at again
        cursor = await self._shell.read(lambda s: _start(s, caller, experiment_id, after))
        reader = _Reader(
            caller,
            experiment_id,
            cursor,
            None if not names else frozenset(names),
            None if not groups else frozenset(groups),
            follows,
            told=cursor,
            grants=known,
        )
        with self._shell.wakeups.listen("streams") as news:
            while not self._shell.stopped:
                news.clear()
                batch, more = await self._shell.read(lambda s: self._next(s, reader))
                if batch:
                    reader.told = batch[-1].id
                    yield batch
                if more:
                    continue
                await news.wait()
                await asyncio.sleep(PERIOD)

    def _next(self, s: Session, reader: _Reader) -> tuple[list[Event], bool]:
        if reader.grants != self._shell.grants:
            reader.grants = self._shell.grants
            reader.shown.clear()
            if reader.experiment_id is not None:
                experiment_for(s, reader.caller, reader.experiment_id)  # a right that was taken back ends the stream
        head = events.head(s)
        lost = reader.cursor < events.floor(s) or reader.cursor > head
        if lost or head - reader.cursor > LAG:
            reader.cursor = head
            return [Event(id=head, kind="resync", time=self._shell.clock())], False
        kinds = STATE_KINDS if reader.experiment_id is None else None
        followed = {follow.experiment for follow in reader.follows}
        found = events.after(s, reader.cursor, BATCH, reader.experiment_id, kinds=kinds, followed=followed)
        more = len(found) == BATCH
        reader.cursor = found[-1].id if more else head
        batch = self._shown(s, reader, found)
        if not batch and reader.cursor - reader.told >= CURSOR_EVERY:
            batch = [Event(id=reader.cursor, kind="cursor", time=self._shell.clock())]
        return batch, more

    def _shown(self, s: Session, reader: _Reader, found: Sequence[Event]) -> list[Event]:
        _learn_rights(s, reader, found)
        visible = [event for event in found if _visible(reader, event)]
        last = {_subject(event): event.id for event in visible}
        bare = [_subject(event) for event in visible if not event.data and event.id == last[_subject(event)]]
        data = _views(s, bare, reader.caller, self._shell.pending_reasons)
        shown = []
        for event in visible:
            if event.kind == "metrics":
                shown += _filtered(event, reader)
            elif event.kind == "checkpoint" or event.data:
                shown.append(event)
            elif last[_subject(event)] == event.id and _subject(event) in data:
                shown.append(event.model_copy(update={"data": data[_subject(event)]}))
        return shown

    async def logs(self, caller: Caller, trial_id: int, after: int = 0) -> AsyncIterator[list[LogLine]]:
        """Batches of a trial's output after a line; ends when the trial has ended and all is said.

        Raises:
            NotFound: There is no such trial for the caller, or no longer.
        """
        await self._shell.read(lambda s: trial_for(s, caller, trial_id))

        def ended(s: Session) -> bool:
            row = s.get(TrialRow, trial_id)
            # Judged before the lines are read: a right that was taken back ends the stream.
            return row is None or TrialState(trial_for(s, caller, trial_id).state).terminal

        async for lines in self._shell.follow_lines(trial_id, ended, after):
            yield lines


def _start(s: Session, caller: Caller, experiment_id: int | None, after: int | None) -> int:
    if experiment_id is not None:
        experiment_for(s, caller, experiment_id)
    return events.head(s) if after is None else after


def _subject(event: Event) -> Subject:
    match event.kind:
        case "experiment":
            return event.kind, event.experiment_id
        case "task":
            return event.kind, event.task_id
        case "cluster":
            return event.kind, None
        case _:
            return event.kind, event.trial_id


def _learn_rights(s: Session, reader: _Reader, found: Sequence[Event]) -> None:
    """Look up which experiments and tasks of a batch the reader may look at, as far as they are not known."""
    if reader.experiment_id is not None or reader.caller.admin:
        return
    caller = reader.caller
    numbers = sorted({event.experiment_id for event in found if event.experiment_id is not None} - reader.shown.keys())
    ids = sorted({event.task_id for event in found if event.task_id is not None} - reader.shown.keys())
    reader.shown.update((key, caller.sees(owner)) for key, owner in _owners(s, ExperimentRow, numbers).items())
    reader.shown.update((key, caller.sees(owner)) for key, owner in _owners(s, TaskRow, ids).items())
    reader.shown.update(dict.fromkeys(grants.among(s, numbers, caller.name, caller.groups), True))
    for event in found:  # what was deleted says itself whose it was
        if event.experiment_id is not None and "owner" in event.data:
            reader.shown.setdefault(event.experiment_id, caller.sees(event.data["owner"]))


def _owners(s: Session, table: type[ExperimentRow | TaskRow], ids: Sequence[Any]) -> dict[Any, str]:
    found: dict[Any, str] = {}
    for start in range(0, len(ids), views.CHUNK):
        query = select(table.id, table.owner).where(table.id.in_(ids[start : start + views.CHUNK]))
        found.update((key, owner) for key, owner in s.execute(query))
    return found


def _visible(reader: _Reader, event: Event) -> bool:
    """Whether an event is about something that the reader may look at (I9), or tells nothing of anybody's."""
    if reader.experiment_id is not None or reader.caller.admin or event.kind == "cluster":
        return True
    holder = event.task_id if event.kind == "task" else event.experiment_id
    return holder is not None and reader.shown.get(holder, False)


def _views(
    s: Session, subjects: Sequence[Subject], caller: Caller, reasons: views.Reasons
) -> dict[Subject, dict[str, Any]]:
    """The views of the moment of everything that changed, as this reader gets them; a few queries for all."""
    wanted: dict[str, list[Any]] = {"experiment": [], "trial": [], "task": []}
    found: dict[Subject, dict[str, Any]] = {}
    for kind, key in subjects:
        if kind in wanted:
            wanted[kind].append(key)
        elif kind == "cluster":
            found[kind, None] = {}
    for view in views.experiment_views(s, _rows(s, ExperimentRow, wanted["experiment"]), caller, reasons):
        found["experiment", view.id] = _plain(view)
    for trial in views.trial_views(s, _rows(s, TrialRow, wanted["trial"]), reasons):
        found["trial", trial.id] = _plain(trial)
    for task in taskviews.task_views(s, _rows(s, TaskRow, wanted["task"]), reasons):
        found["task", task.id] = _plain(task)
    return found


def _rows(s: Session, table: type[Row], ids: Sequence[Any]) -> list[Row]:
    rows: list[Row] = []
    for start in range(0, len(ids), views.CHUNK):
        rows += s.scalars(select(table).where(table.id.in_(ids[start : start + views.CHUNK])))
    return rows


def _plain(view: Any) -> dict[str, Any]:
    data: dict[str, Any] = encode_floats(view.model_dump(mode="json", exclude={"config"}))
    return data


def _filtered(event: Event, reader: _Reader) -> list[Event]:
    """A metrics event with the names and groups the reader wants; nothing if it has none of them."""
    if reader.experiment_id is None:
        return _followed(event, reader.follows)
    if reader.groups is not None and event.data.get("group") not in reader.groups:
        return []
    return _named(event, reader.names)


def _followed(event: Event, follows: Sequence[Follow]) -> list[Event]:
    """A metrics event with what any of the follows wants of it."""
    group = event.data.get("group")
    fitting = [
        follow
        for follow in follows
        if follow.experiment == event.experiment_id
        and follow.trial in {None, event.trial_id}
        and follow.group in {None, group}
    ]
    if not fitting:
        return []
    names = {follow.name for follow in fitting}
    return _named(event, None if None in names else names)


def _named(event: Event, names: Collection[str | None] | None) -> list[Event]:
    if names is None:
        return [event]
    wanted = {name: value for name, value in event.data.get("metrics", {}).items() if name in names}
    if not wanted:
        return []
    return [event.model_copy(update={"data": {**event.data, "metrics": wanted}})]
