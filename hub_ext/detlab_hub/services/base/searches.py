"""The searches of active experiments, in memory; the journal in the database is the truth (I8).

Used only inside the writer's transactions. Each entry remembers its journal number; an entry that does not match the
database (a transaction failed after the search had moved on) is rebuilt by replay, which must decide each event as the
journal records. A mismatch means that the algorithm has changed since: events are then journaled
without decisions, and decided when the search can be replayed again (`catch_up`).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Table, bindparam, func, insert, select, update
from sqlalchemy.orm import Session

from detlab_hub.core.searchers import (
    RULES,
    Answered,
    Decision,
    Event,
    OperationsRefused,
    ProgressReported,
    Reopened,
    ReplayMismatch,
    Searcher,
    SearcherConfigError,
    SearcherInputError,
    SearcherNotInstalled,
    Started,
    Steering,
    SteeringRefused,
    ValidationReported,
    decision_from_json,
    decision_to_json,
    event_from_json,
    event_to_json,
    make_searcher,
    method_class,
    replay,
    rules_of,
)
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.tables import ExperimentRow, SearcherJournal, TrialRow

_log = logging.getLogger(__name__)
_KEEP = 500
"""Searches, each a quarter of a megabyte after a thousand trials; one that was dropped is replayed."""
_JOURNAL: Table = SearcherJournal.__table__
_APPEND = PreparedStatement(insert(_JOURNAL), ("experiment_id", "seq", "event", "decisions", "at"))
_LENGTH = PreparedStatement(select(func.max(_JOURNAL.c.seq)).where(_JOURNAL.c.experiment_id == bindparam("experiment")))
_EVENTS = PreparedStatement(
    select(_JOURNAL.c.seq, _JOURNAL.c.event, _JOURNAL.c.decisions)
    .where(_JOURNAL.c.experiment_id == bindparam("experiment"))
    .order_by(_JOURNAL.c.seq)
)
UNDECIDED: list[Any] = [{"type": "undecided"}]
"""Stands for the decisions on an event that arrived while the search could not be replayed."""
REFUSED: list[Any] = [{"type": "refused"}]
"""Stands for the decisions on such an event if the search could not use it later."""
_PROGRESS = PreparedStatement(
    select(TrialRow.request_id, TrialRow.progress).where(TrialRow.experiment_id == bindparam("experiment"))
)


class SearchLostError(Exception):
    """No search can be rebuilt from the journal: it is damaged, or from an incompatible version."""


class SearchMismatch(SearchLostError):
    """Another version of the algorithm decided the journal: nothing is lost, but the search must wait."""


class SearchFailed(SearchMismatch):
    """The method raised an error at what is a fact: the event is journaled, to be decided when the method is mended."""


_REFUSABLE = (Steering, Reopened, Answered, ValidationReported, Started)
"""Events that a search may refuse: what has asked for them is told. All others are facts."""


@dataclass
class FirstStep:
    """A search that was started outside of any transaction: drawing its first points may take seconds.

    What it decides depends on its config and seed alone, so that it is what it would decide inside.

    Attributes:
        config: The config of the experiment.
        seed: The seed of the search.
        searcher: The search, after its start; None once it is taken.
        decisions: Its decisions at its start.
    """

    config: Mapping[str, Any]
    seed: int
    searcher: Searcher | None
    decisions: Sequence[Decision]

    @classmethod
    def of(cls, config: Mapping[str, Any], seed: int) -> FirstStep | None:
        """Start the search that a config describes; None if that fails, which is told where it starts again."""
        try:
            searcher = _made(config, seed)
            return cls(config, seed, searcher, searcher.step(Started(RULES)))
        except Exception:  # of the method, which may be third-party code
            return None

    def take(self, config: Mapping[str, Any], seed: int) -> Searcher | None:
        """Return the search, once, if it is that of this config: what a transaction did with it cannot be undone."""
        known = [self.config.get(key) for key in _DECIDING] == [config.get(key) for key in _DECIDING]
        searcher, self.searcher = self.searcher, None
        return searcher if known and seed == self.seed else None


_DECIDING = ("searcher", "hyperparameters", "stopping")
"""The blocks of a config of which a search is made."""


def _made(config: Mapping[str, Any], seed: int, rules: int = RULES) -> Searcher:
    space, stopping = config.get("hyperparameters") or {}, config.get("stopping") or ()
    return make_searcher(config["searcher"], space, seed, stopping=stopping, rules=rules)


@dataclass
class _Entry:
    """A search that is in memory.

    Attributes:
        searcher: The search.
        seq: The newest event of the journal.
        undecided: Events that arrived while it could not be replayed, with their numbers.
        first: Its decisions at its start, if it has started already and the journal does not say so yet.
    """

    searcher: Searcher
    seq: int
    undecided: list[tuple[int, Event]] = field(default_factory=list)
    first: Sequence[Decision] | None = None


class Searches:
    """Searches by experiment."""

    def __init__(self, keep: int = _KEEP) -> None:
        self._keep = keep
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._verified: set[int] = set()
        """Entries that were compared with the database in this transaction."""

    def begin(self) -> None:
        """Begin a transaction: every search is compared with the database again."""
        self._verified.clear()

    def undo(self) -> None:
        """Drop the searches that a rolled-back transaction touched: they may have moved on."""
        for experiment_id in self._verified:
            self._entries.pop(experiment_id, None)

    def forget(self, experiment_id: int | None = None) -> None:
        """Drop one search, or all: the next use replays the journal."""
        if experiment_id is None:
            self._entries.clear()
        else:
            self._entries.pop(experiment_id, None)

    def adopt(self, row: ExperimentRow, begun: FirstStep) -> None:
        """Take over the search of a new experiment, which has started; its `Started` is to be the next event."""
        searcher = begun.take(row.config, row.seed)
        if searcher is not None:
            self._entries[row.id] = _Entry(searcher, 0, first=begun.decisions)
            self._verified.add(row.id)

    def get(self, s: Session, row: ExperimentRow) -> Searcher:
        """Return the search of an experiment, in the state that the journal records."""
        return self._entry(s, row).searcher

    def needed_checkpoints(self, s: Session, row: ExperimentRow) -> Set[str] | None:
        """Return the checkpoints from which trials of an active experiment's search may still start.

        None: perhaps all, as long as it cannot be replayed.
        """
        try:
            wants = method_class(row.searcher_name).wants_checkpoints
            return self.get(s, row).needs_checkpoints() if wants else frozenset()
        except (SearcherNotInstalled, SearchMismatch):  # it may, once it can be replayed
            return None
        except SearchLostError:
            return frozenset()

    def step(self, s: Session, row: ExperimentRow, event: Event, now: float) -> list[Decision]:
        """Give the search one event and journal it with its decisions, in the caller's transaction.

        Events that cannot change a decision (progress, a report between two rungs) are not journaled.

        Raises:
            SearcherInputError: If the search cannot use the event; it is then unchanged.
            SearchFailed: The method raised an error. The event is journaled, to be decided later.
            SearchMismatch: The search cannot be replayed by this version. The event is journaled, to be decided later.
            SearchLostError: No search can be rebuilt from the journal.
        """
        try:
            entry = self._entry(s, row)
            if entry.undecided:
                raise SearchMismatch("events are undecided: they arrived while it could not be replayed")
        except SearchMismatch:
            self._keep_for_later(s, row, event, now)
            raise
        if entry.first is not None and event == Started(RULES):
            decisions, entry.first = list(entry.first), None
            entry.seq += 1
            self._append(s, row, entry.seq, event, decisions, now)
            return decisions
        before = entry.searcher.revision
        try:
            decisions = self._decide(row, entry.searcher, event)
        except SearchFailed:
            self._keep_for_later(s, row, event, now)
            raise
        if entry.searcher.revision != before or decisions:
            entry.seq += 1
            self._append(s, row, entry.seq, event, decisions, now)
        return decisions

    def catch_up(self, s: Session, row: ExperimentRow) -> list[tuple[Event, list[Decision] | SearcherInputError]]:
        """Decide the events that arrived while the search could not be replayed, in order; usually there are none.

        Returns:
            Each event with its decisions, which the caller carries out, or with why the search cannot use it.

        Raises:
            SearchFailed: The method raised an error at one of them.
            SearchMismatch: It still cannot be replayed.
            SearchLostError: No search can be rebuilt from the journal.
        """
        entry = self._entry(s, row)
        caught: list[tuple[Event, list[Decision] | SearcherInputError]] = []
        for seq, event in entry.undecided:
            decided: list[Decision] | SearcherInputError
            try:
                decided = self._decide(row, entry.searcher, event)
                known = [decision_to_json(one) for one in decided]
            except SearcherInputError as error:
                decided, known = error, REFUSED
            place = _JOURNAL.c.experiment_id == row.id, _JOURNAL.c.seq == seq
            s.execute(update(_JOURNAL).where(*place).values(decisions=known))
            caught.append((event, decided))
        entry.undecided.clear()
        return caught

    def _decide(self, row: ExperimentRow, searcher: Searcher, event: Event) -> list[Decision]:
        """Give a search one event; whatever its method raises, what the caller does in its transaction is not lost.

        Raises:
            SearcherInputError: The search cannot use the event, or its method failed at it, and who asked is told.
            SearchFailed: The method failed at a fact.
        """
        try:
            return searcher.step(event)
        except Exception as error:  # of the method, which may be third-party code
            if isinstance(error, SearcherInputError) and isinstance(event, _REFUSABLE):
                raise
            self._entries.pop(row.id, None)  # it may have moved on
            _log.exception("experiment %d: the search method failed at %s", row.id, type(event).__name__)
            said = f"the search method failed at {type(event).__name__}: {type(error).__name__}: {error}"[:1000]
            if isinstance(event, Answered):
                raise OperationsRefused([said]) from error
            if isinstance(event, Steering | Reopened | Started):
                raise SteeringRefused(said) from error
            raise SearchFailed(said) from error

    def _keep_for_later(self, s: Session, row: ExperimentRow, event: Event, now: float) -> None:
        """Journal an event without decisions, and drop the search, which may have moved on."""
        if not isinstance(event, ProgressReported):  # its rows have it
            self._append(s, row, (_LENGTH.scalar(s, {"experiment": row.id}) or 0) + 1, event, None, now)
        self._entries.pop(row.id, None)

    @staticmethod
    def _append(
        s: Session, row: ExperimentRow, seq: int, event: Event, decisions: Sequence[Decision] | None, now: float
    ) -> None:
        known = UNDECIDED if decisions is None else [decision_to_json(decision) for decision in decisions]
        values = {"experiment_id": row.id, "seq": seq, "event": event_to_json(event), "decisions": known, "at": now}
        _APPEND.run(s, values)

    def _entry(self, s: Session, row: ExperimentRow) -> _Entry:
        if row.id in self._verified and row.id in self._entries:
            return self._entries[row.id]
        seq = _LENGTH.scalar(s, {"experiment": row.id}) or 0
        entry = self._entries.get(row.id)
        if entry is None or entry.seq != seq:
            entry = self._rebuild(s, row, seq)
            self._entries[row.id] = entry
            while len(self._entries) > self._keep:
                self._entries.popitem(last=False)
        self._entries.move_to_end(row.id)
        self._verified.add(row.id)
        return entry

    def _rebuild(self, s: Session, row: ExperimentRow, seq: int) -> _Entry:
        config, space = row.config["searcher"], row.config.get("hyperparameters") or {}
        stopping = row.config.get("stopping") or ()
        s.flush()
        journal = _EVENTS.all(s, {"experiment": row.id})
        if not journal:
            return _Entry(_made(row.config, row.seed), seq)
        try:
            decided = [one for one in journal if one.decisions not in (UNDECIDED, REFUSED)]
            waiting = [(one.seq, event_from_json(one.event)) for one in journal if one.decisions == UNDECIDED]
            events = [event_from_json(one.event) for one in decided]
            recorded = [[decision_from_json(decision) for decision in one.decisions] for one in decided]
            if not events:  # it could not even start yet
                rules = rules_of(event for _, event in waiting)
                return _Entry(_made(row.config, row.seed, rules), seq, waiting)
            searcher, _ = replay(config, space, row.seed, events, recorded, stopping=stopping)
        except (ReplayMismatch, SearcherNotInstalled) as error:
            raise SearchMismatch(str(error)) from error
        except (SearcherConfigError, SearcherInputError, KeyError) as error:
            raise SearchLostError(f"the search cannot be rebuilt from its journal: {error}") from error
        # Progress is not journaled: it is in the rows of the trials.
        for request_id, progress in _PROGRESS.all(s, {"experiment": row.id}):
            searcher.step(ProgressReported(request_id, progress))
        _log.info("experiment %d: search replayed from %d events", row.id, len(journal))
        return _Entry(searcher, seq, waiting)
