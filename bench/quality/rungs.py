"""Methods with rungs and stopping policies on learning curves: eight workers on a simulated clock."""

from __future__ import annotations

import heapq
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from detlab_hub.core.searchers import (
    CheckpointCommitted,
    CreateTrial,
    Event,
    PauseTrial,
    ResumeTrial,
    Started,
    StopTrial,
    TrialCreated,
    TrialExited,
    TrialPaused,
    TrialPlaced,
    ValidationReported,
    method_class,
    searcher_names,
)
from quality.curves import Curve, CurveTask
from quality.kept import Kept
from quality.tuners import Search

WORKERS = 8


@dataclass(frozen=True)
class Entry:
    """A method that is measured.

    Attributes:
        block: Its `searcher` block, beside what all have.
        stopping: Its `stopping` list.
        rungs: Whether the block has `divisor`, `time_metric` and `max_time`.
        more: Its `max_trials`, as a multiple of random search's.
    """

    block: dict[str, Any]
    stopping: Sequence[dict[str, Any]] = ()
    rungs: bool = True
    more: int = 10


def _plain(name: str, *stopping: dict[str, Any]) -> Entry:
    """A method whose trials train to their ends unless a policy stops them."""
    return Entry({"name": name}, stopping, rungs=False)


ENTRIES: dict[str, Entry] = {
    "random": Entry({"name": "random"}, rungs=False, more=1),
    "tpe": _plain("tpe"),
    "random + median": _plain("random", {"name": "median"}),
    "random + percentile": _plain("random", {"name": "percentile", "percentile": 25}),
    "random + no_improvement": _plain("random", {"name": "no_improvement", "patience": 3}),
    "tpe + median": _plain("tpe", {"name": "median"}),
    "async_halving": Entry({"name": "async_halving", "num_rungs": 4}),
    "asha": Entry({"name": "asha", "num_rungs": 4}),
    "adaptive_asha": Entry({"name": "adaptive_asha"}),
    "adaptive_asha, aggressive": Entry({"name": "adaptive_asha", "mode": "aggressive"}),
    "hyperband": Entry({"name": "hyperband"}),
    "bohb": Entry({"name": "bohb", "max_brackets": 2}),
    "bohb, all brackets": Entry({"name": "bohb", "max_brackets": 5}),
    "dehb": Entry({"name": "dehb"}),
}
"""A line for each method; one whose searcher is not installed is left out."""


def installed() -> dict[str, Entry]:
    """Return the methods that this master has."""
    names = set(searcher_names())
    return {label: entry for label, entry in ENTRIES.items() if entry.block["name"] in names}


def fits_models(entry: Entry) -> bool:
    """Whether a method fits a model with each suggestion: its searches take minutes."""
    return method_class(entry.block["name"]).suggests


@dataclass
class _Trial:
    curve: Curve = field(default_factory=list)
    """Of its point, from when it is placed."""
    placed: bool = False
    at: int = 0
    """Reports that it has made."""
    state: str = "waiting"
    """waiting, running, leaving (to be paused), paused, ending."""
    number: int = 0

    @property
    def next_cost(self) -> int:
        """Units of training until the next report."""
        return self.curve[self.at][0] - (self.curve[self.at - 1][0] if self.at else 0)


@dataclass
class Workers:
    """Trains trials until a budget of units is spent or the search is over.

    Attributes:
        improved: (units spent, regret), each time that the least loss so far became less.
        spent: Units.
    """

    search: Search
    task: CurveTask
    improved: list[tuple[float, float]] = field(default_factory=list)
    spent: float = 0.0
    _trials: dict[str, _Trial] = field(default_factory=dict)
    _ready: deque[str] = field(default_factory=deque)
    _busy: list[tuple[float, int, str]] = field(default_factory=list)
    _clock: float = 0.0
    _events: int = 0
    _least: float = math.inf

    def run(self) -> None:
        """Run the search."""
        self._step(Started())
        while self.spent < self.task.budget:
            self._occupy()
            if not self._busy:
                return
            self._clock, _, request_id = heapq.heappop(self._busy)
            self._report(request_id, self._trials[request_id])

    def _occupy(self) -> None:
        while self._ready and len(self._busy) < WORKERS:
            request_id = self._ready.popleft()
            trial = self._trials[request_id]
            if not trial.placed and trial.state != "ending":
                self._step(TrialPlaced(request_id))
                trial.placed, trial.curve = True, self.task.curve(self.search.points[request_id])
            if trial.state == "ending" or trial.at == len(trial.curve):
                self._step(TrialExited(request_id))
                continue
            trial.state = "running"
            self._continue(request_id, trial)

    def _continue(self, request_id: str, trial: _Trial) -> None:
        self._events += 1
        heapq.heappush(self._busy, (self._clock + trial.next_cost, self._events, request_id))

    def _report(self, request_id: str, trial: _Trial) -> None:
        self.spent += trial.next_cost
        units, loss = trial.curve[trial.at]
        trial.at += 1
        if loss < self._least:
            self._least = loss
            self.improved.append((self.spent, round(self.task.regret(loss), 5)))
        if self.search.searcher.wants_checkpoints:
            self._step(CheckpointCommitted(request_id, f"{request_id}/{units}", units))
        self._step(ValidationReported(request_id, loss, float(units)))
        if trial.state == "leaving":
            trial.state = "paused"
            self._step(TrialPaused(request_id))
        elif trial.state == "ending" or trial.at == len(trial.curve):
            trial.state = "ending"
            self._step(TrialExited(request_id))
        else:
            self._continue(request_id, trial)

    def _step(self, event: Event) -> None:
        for decision in list(self.search.step(event)):
            match decision:
                case CreateTrial(request_id):
                    self._trials[request_id] = _Trial(number=decision.index)
                    self._ready.append(request_id)
                    self._step(TrialCreated(request_id))
                case StopTrial(request_id):
                    self._end(request_id)
                case PauseTrial(request_id):
                    self._trials[request_id].state = "leaving"
                case ResumeTrial(request_id):
                    self._resume(request_id)

    def _end(self, request_id: str) -> None:
        trial = self._trials[request_id]
        before, trial.state = trial.state, "ending"
        if before == "paused":
            self._ready.append(request_id)

    def _resume(self, request_id: str) -> None:
        """A paused trial has the next free worker; one that has not left yet stays."""
        trial = self._trials[request_id]
        if trial.state == "paused":
            self._ready.appendleft(request_id)
        trial.state = "waiting" if trial.state == "paused" else "running"


def search(entry: Entry, task: CurveTask, seed: int) -> dict[str, Any]:
    """Run a method on a task; return what is kept of it."""
    block = {"metric": "loss", "max_trials": entry.more * task.trials, "max_concurrent_trials": WORKERS, **entry.block}
    if entry.rungs:
        block |= {"divisor": 3, "time_metric": "time", "max_time": task.max_time}
    workers = Workers(Search(block, task.space, seed, entry.stopping), task)
    workers.run()
    return {
        "spent": [round(spent / task.budget, 5) for spent, _ in workers.improved],
        "regret": [regret for _, regret in workers.improved],
        "total": round(workers.spent / task.budget, 5),
    }


def fill(kept: Kept, tasks: Sequence[CurveTask], entries: Mapping[str, Entry], seeds: range, until: float) -> None:
    """Run all searches that are not kept, seed by seed; none begins after `until` on the monotonic clock."""
    for seed in seeds:
        for task in tasks:
            for label, entry in entries.items():
                if time.monotonic() > until:
                    return
                if (key := (task.name, label, seed)) not in kept:
                    kept.add(key, search(entry, task, seed))


def regret_at(row: dict[str, Any], share: float) -> float:
    """Return the least regret when a share of the budget was spent, at most that of the median point."""
    found = 1.0
    for spent, regret in zip(row["spent"], row["regret"], strict=True):
        if spent > share:
            break
        found = min(found, regret)
    return found
