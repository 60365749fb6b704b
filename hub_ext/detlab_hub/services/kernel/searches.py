"""The searches of active experiments, in memory; the journal in the database is the truth.

Used only inside the writer's transactions. Each entry remembers the journal number it stands at; one that does
not match the database (a transaction failed after the search had moved on) is rebuilt by replay.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from sqlalchemy import Table, bindparam, func, insert, select
from sqlalchemy.orm import Session

from detlab_hub.core.searchers import (
    Decision,
    Event,
    ProgressReported,
    Searcher,
    SearcherConfigError,
    SearcherInputError,
    decision_to_json,
    event_from_json,
    event_to_json,
    make_searcher,
    replay,
)
from detlab_hub.store.prepared import Prepared
from detlab_hub.store.tables import ExperimentRow, SearcherJournal, TrialRow

_log = logging.getLogger(__name__)
_KEEP = 500
"""Searches, of a quarter of a megabyte each after a thousand trials; one that is not kept is replayed."""
_JOURNAL: Table = SearcherJournal.__table__
_APPEND = Prepared(insert(_JOURNAL), ("experiment_id", "seq", "event", "decisions"))
_LENGTH = Prepared(select(func.max(_JOURNAL.c.seq)).where(_JOURNAL.c.experiment_id == bindparam("experiment")))
_EVENTS = Prepared(
    select(_JOURNAL.c.event).where(_JOURNAL.c.experiment_id == bindparam("experiment")).order_by(_JOURNAL.c.seq)
)
_PROGRESS = Prepared(
    select(TrialRow.request_id, TrialRow.progress).where(TrialRow.experiment_id == bindparam("experiment"))
)


class SearchLostError(Exception):
    """The journal does not give a search: it was written by an incompatible version, or damaged."""


class Searches:
    """Searches by experiment."""

    def __init__(self, keep: int = _KEEP) -> None:
        self._keep = keep
        self._entries: OrderedDict[int, tuple[Searcher, int]] = OrderedDict()
        self._verified: set[int] = set()
        """Entries that were compared with the database in this transaction."""

    def begin(self) -> None:
        """A transaction begins: nothing is taken for granted."""
        self._verified.clear()

    def undo(self) -> None:
        """The transaction is undone: drop the searches that it touched, and may have moved on; others stand still."""
        for experiment_id in self._verified:
            self._entries.pop(experiment_id, None)

    def forget(self, experiment_id: int | None = None) -> None:
        """Drop one search, or all: the next use replays the journal."""
        if experiment_id is None:
            self._entries.clear()
        else:
            self._entries.pop(experiment_id, None)

    def get(self, s: Session, row: ExperimentRow) -> Searcher:
        """The search of an experiment, as the journal has it."""
        return self._entry(s, row)[0]

    def step(self, s: Session, row: ExperimentRow, event: Event) -> list[Decision]:
        """Give the search one event and journal it with its decisions, in the caller's transaction.

        Events that cannot change a decision (progress, a report between two rungs) are not journaled.

        Raises:
            SearcherInputError: If the search cannot use the event; it is then unchanged.
        """
        searcher, seq = self._entry(s, row)
        before = searcher.revision
        decisions = searcher.step(event)
        if searcher.revision != before or decisions:
            seq += 1
            entry = {
                "experiment_id": row.id,
                "seq": seq,
                "event": event_to_json(event),
                "decisions": [decision_to_json(decision) for decision in decisions],
            }
            _APPEND.run(s, entry)
        self._entries[row.id] = (searcher, seq)
        return decisions

    def _entry(self, s: Session, row: ExperimentRow) -> tuple[Searcher, int]:
        if row.id in self._verified and row.id in self._entries:
            return self._entries[row.id]
        seq = _LENGTH.scalar(s, {"experiment": row.id}) or 0
        entry = self._entries.get(row.id)
        if entry is None or entry[1] != seq:
            entry = (self._rebuild(s, row), seq)
            self._entries[row.id] = entry
            while len(self._entries) > self._keep:
                self._entries.popitem(last=False)
        self._entries.move_to_end(row.id)
        self._verified.add(row.id)
        return entry

    def _rebuild(self, s: Session, row: ExperimentRow) -> Searcher:
        config, space = row.config["searcher"], row.config.get("hyperparameters") or {}
        s.flush()
        journal = _EVENTS.all(s, {"experiment": row.id})
        if not journal:
            return make_searcher(config, space, row.seed)
        try:
            searcher, _ = replay(config, space, row.seed, [event_from_json(entry.event) for entry in journal])
        except (SearcherConfigError, SearcherInputError) as error:
            raise SearchLostError(f"the search cannot be brought back from its journal: {error}") from error
        # Progress is not journaled: it is in the rows of the trials.
        for request_id, progress in _PROGRESS.all(s, {"experiment": row.id}):
            searcher.step(ProgressReported(request_id, progress))
        _log.info("experiment %d: search replayed from %d events", row.id, len(journal))
        return searcher
