"""Live streams: events of experiments and lines of output, read from the database, woken by commits.

Every reader has its own cursor and reads from the database, at most ten times a second; nobody waits for a
reader and nothing is queued for one. Events of experiments and trials carry no data in the log: they say
*that* something changed, and get the view of the moment when they are read, once per batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.wire import Event, LogLine, TrialState, encode_floats
from detlab_hub.services import views
from detlab_hub.services.callers import Caller
from detlab_hub.services.experiments import owned
from detlab_hub.services.shell import Shell
from detlab_hub.services.trials import owned_trial
from detlab_hub.store.queries import events, logs
from detlab_hub.store.tables import ExperimentRow, TrialRow

PERIOD = 0.1
"""Least seconds between two batches of one stream."""
BATCH = 2000
LAG = 50_000
"""A reader that is further behind is told to take the snapshot again."""
CURSOR_EVERY = 1000
"""After this many events that are not for the reader, it is told that its cursor moved."""
STATE_KINDS = ("experiment", "trial", "checkpoint")


@dataclass
class _Reader:
    """One stream."""

    caller: Caller
    experiment_id: int | None
    cursor: int
    names: frozenset[str] | None
    groups: frozenset[str] | None
    told: int = 0
    """The last cursor that the reader was told."""
    owners: dict[int, str] = field(default_factory=dict)


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
    ) -> AsyncIterator[list[Event]]:
        """Batches of events after a cursor, for ever.

        Args:
            caller: Whose experiments are shown.
            experiment_id: One experiment with its metrics, or None: the states of all.
            after: Cursor to resume after; None starts now.
            names: Metric names to send, None for all.
            groups: Metric groups to send, None for all.

        Raises:
            NotFound: There is no such experiment for the caller.
        """
        cursor = await self._shell.read(lambda s: _start(s, caller, experiment_id, after))
        reader = _Reader(
            caller,
            experiment_id,
            cursor,
            None if not names else frozenset(names),
            None if not groups else frozenset(groups),
            told=cursor,
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
        head = events.head(s)
        lost = reader.cursor < events.floor(s) or reader.cursor > head
        if lost or head - reader.cursor > LAG:
            reader.cursor = head
            return [Event(id=head, kind="resync", time=self._shell.clock())], False
        kinds = STATE_KINDS if reader.experiment_id is None else None
        found = events.after(s, reader.cursor, BATCH, reader.experiment_id, kinds=kinds)
        more = len(found) == BATCH
        reader.cursor = found[-1].id if more else head
        batch = self._shown(s, reader, found)
        if not batch and reader.cursor - reader.told >= CURSOR_EVERY:
            batch = [Event(id=reader.cursor, kind="cursor", time=self._shell.clock())]
        return batch, more

    def _shown(self, s: Session, reader: _Reader, found: Sequence[Event]) -> list[Event]:
        visible = [event for event in found if _visible(s, reader, event)]
        last: dict[tuple[str, int | None, int | None], int] = {
            (event.kind, event.experiment_id, event.trial_id): event.id for event in visible
        }
        reasons = self._shell.pending_reasons
        experiment_ids, trial_ids = _stale(visible, last)
        experiments = _experiments(s, experiment_ids, reasons)
        trials = _trials(s, trial_ids, reasons)
        shown = []
        for event in visible:
            if event.kind == "metrics":
                shown += _filtered(event, reader)
            elif event.kind == "checkpoint" or event.data:
                shown.append(event)
            elif last[event.kind, event.experiment_id, event.trial_id] == event.id:
                source = experiments if event.kind == "experiment" else trials
                data = source.get(event.experiment_id if event.kind == "experiment" else event.trial_id)
                if data is not None:
                    shown.append(event.model_copy(update={"data": data}))
        return shown

    async def logs(self, caller: Caller, trial_id: int, after: int = 0) -> AsyncIterator[list[LogLine]]:
        """Batches of a trial's output after a line; ends when the trial has ended and all is said.

        Raises:
            NotFound: There is no such trial for the caller.
        """
        await self._shell.read(lambda s: owned_trial(s, caller, trial_id))

        def look(s: Session) -> tuple[list[LogLine], bool]:
            row = s.get(TrialRow, trial_id)
            ended = row is None or TrialState(row.state).terminal
            return logs.page(s, trial_id, after or None, BATCH), ended

        with self._shell.wakeups.listen(("logs", trial_id)) as news:
            while not self._shell.stopped:
                news.clear()
                lines, ended = await self._shell.read(look)
                if lines:
                    after = lines[-1].id
                    yield lines
                if len(lines) == BATCH:
                    continue
                if ended:
                    return
                await news.wait()
                await asyncio.sleep(PERIOD)


def _start(s: Session, caller: Caller, experiment_id: int | None, after: int | None) -> int:
    if experiment_id is not None:
        owned(s, caller, experiment_id)
    return events.head(s) if after is None else after


def _visible(s: Session, reader: _Reader, event: Event) -> bool:
    """Whether an event is about an experiment of the reader's (I9)."""
    if reader.experiment_id is not None or reader.caller.admin:
        return True
    key = event.experiment_id
    if key is None:
        return False
    if key not in reader.owners:
        owner = s.scalar(select(ExperimentRow.owner).where(ExperimentRow.id == key)) or event.data.get("owner")
        if owner is None:
            return False
        reader.owners[key] = owner
    return reader.caller.sees(reader.owners[key])


def _stale(
    visible: Sequence[Event], last: dict[tuple[str, int | None, int | None], int]
) -> tuple[list[int], list[int]]:
    """Ids of the experiments and trials whose views must be fetched."""
    bare = [event for event in visible if not event.data and event.id in set(last.values())]
    experiments = {event.experiment_id for event in bare if event.kind == "experiment"}
    trials = {event.trial_id for event in bare if event.kind == "trial"}
    return sorted(x for x in experiments if x is not None), sorted(x for x in trials if x is not None)


def _experiments(s: Session, ids: Sequence[int], reasons: views.Reasons) -> dict[int | None, dict[str, Any]]:
    rows = s.scalars(select(ExperimentRow).where(ExperimentRow.id.in_(ids))).all() if ids else []
    return {view.id: _plain(view) for view in views.experiment_views(s, rows, reasons)}


def _trials(s: Session, ids: Sequence[int], reasons: views.Reasons) -> dict[int | None, dict[str, Any]]:
    rows: list[TrialRow] = []
    for start in range(0, len(ids), views.CHUNK):
        rows += s.scalars(select(TrialRow).where(TrialRow.id.in_(ids[start : start + views.CHUNK])))
    return {view.id: _plain(view) for view in views.trial_views(s, rows, reasons)}


def _plain(view: Any) -> dict[str, Any]:
    data: dict[str, Any] = encode_floats(view.model_dump(mode="json", exclude={"config"}))
    return data


def _filtered(event: Event, reader: _Reader) -> list[Event]:
    """A metrics event with the names and groups the reader wants; nothing if it has none of them."""
    if reader.groups is not None and event.data.get("group") not in reader.groups:
        return []
    if reader.names is None:
        return [event]
    wanted = {name: value for name, value in event.data.get("metrics", {}).items() if name in reader.names}
    if not wanted:
        return []
    return [event.model_copy(update={"data": {**event.data, "metrics": wanted}})]
