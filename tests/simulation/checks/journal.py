"""I8: the journal of a search, told again to a new one, gives the decisions that were taken."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from detlab_hub.core.searchers import Searcher, decision_to_json, event_from_json, make_searcher
from simulation.randomness import apart

TERMINAL = {"COMPLETED", "CANCELED", "ERROR"}

Rows = list[Any]
Trials = dict[str, tuple[str, int]]
"""The searcher's name of a trial -> its state and whether the searcher has stopped it"""


@dataclass
class Replayed:
    """A search that was told again what a journal says, from its first row on, and decides the same."""

    of: tuple[str, int]
    """The experiment's config, as text, and its seed."""
    search: Searcher
    rows: Rows = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    trials: Trials = field(default_factory=dict)
    """Those in which the decisions were found."""


class Journals:
    """The journals of all experiments of a database, and how far each was replayed."""

    def __init__(self, read: Callable[[str], Rows], broken: Callable[[str, str], NoReturn]) -> None:
        """See the module.

        Args:
            read: Answers a query.
            broken: Told the promise and how it is broken.
        """
        self._read, self._broken = read, broken
        self._replayed: dict[int, Replayed] = {}

    def forget(self) -> None:
        """Replay all of them from their first rows on, next time."""
        self._replayed.clear()

    def check(self) -> int:
        """Replay the rows that are new; return how many experiments there are."""
        journals: defaultdict[int, Rows] = defaultdict(list)
        for number, *entry in self._read(
            "SELECT experiment_id, seq, event, decisions FROM searcher_journal ORDER BY experiment_id, seq"
        ):
            journals[number].append(tuple(entry))
        trials: defaultdict[int, Trials] = defaultdict(dict)
        for number, request, state, stopped in self._read(
            "SELECT experiment_id, request_id, state, searcher_stopped FROM trials"
        ):
            trials[number][request] = (state, stopped)
        experiments = self._read("SELECT id, config, seed FROM experiments")
        for number, config, seed in experiments:
            self._check_one(number, (config, seed), journals[number], trials[number])
        return len(experiments)

    def needed(self) -> dict[int, frozenset[str]]:
        """By experiment the checkpoints from which its search, as it was replayed last, may still start trials."""
        return {number: frozenset(known.search.needs_checkpoints()) for number, known in self._replayed.items()}

    def _check_one(self, number: int, of: tuple[str, int], journal: Rows, trials: Trials) -> None:
        known = self._replayed.get(number)
        if known is None or known.of != of or known.rows != journal[: len(known.rows)]:
            config = json.loads(of[0])
            with apart():
                search = make_searcher(config["searcher"], config["hyperparameters"], of[1])
            known = Replayed(of, search)
        elif len(known.rows) == len(journal) and known.trials == trials:
            return
        self._replay(number, known, journal[len(known.rows) :])
        self._check_decisions(number, known.decisions, trials)
        known.trials = trials
        self._replayed[number] = known

    def _replay(self, number: int, known: Replayed, journal: Rows) -> None:
        """Tell a search the rows that it was not told yet."""
        for seq, event, decisions in journal:
            if seq != len(known.rows) + 1:
                self._broken("I8", f"experiment {number}: row {seq} of the journal comes after {len(known.rows)}")
            with apart():
                decided = known.search.step(event_from_json(json.loads(event)))
            again = [decision_to_json(decision) for decision in decided]
            if again != json.loads(decisions):
                self._broken("I8", f"experiment {number}: the journal replayed decides otherwise")
            known.rows.append((seq, event, decisions))
            known.decisions += again

    def _check_decisions(self, number: int, decisions: list[dict[str, Any]], trials: Trials) -> None:
        """Each decision in the journal has its consequence in the rows."""
        made = [item["request_id"] for item in decisions if item["type"] == "create_trial"]
        if sorted(made) != sorted(trials):
            self._broken("I8", f"experiment {number}: decided on {sorted(made)}, there are {sorted(trials)}")
        for item in decisions:
            if item["type"] == "stop_trial":
                state, stopped = trials[item["request_id"]]
                if not stopped and state not in TERMINAL:
                    self._broken("I8", f"experiment {number}: the stop of {item['request_id']} is lost ({state})")
