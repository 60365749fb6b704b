"""Searches on a simulated clock: eight workers train points of a table, one result each.

detlab's methods run through the search driver with their suggestions in this process; the peers by their ask and tell.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from detlab_hub.core.searchers import (
    CreateTrial,
    Started,
    Suggest,
    Suggested,
    TrialCreated,
    TrialExited,
    ValidationReported,
    make_searcher,
    method_class,
)
from quality.tables import Table


class Tuner(Protocol):
    """Asks and tells, one result each."""

    def ask(self) -> tuple[Any, dict[str, Any]] | None:
        """Return a handle and a point; None if the budget is spent."""

    def tell(self, handle: Any, loss: float) -> None:
        """Take a result."""


class Detlab:
    """A method of detlab's as the master drives it.

    Args:
        name: The method.
        table: Its space.
        trials: Budget.
        workers: Trials at a time.
        seed: Of the search.
        options: Further fields of the `searcher` block.
    """

    def __init__(self, name: str, table: Table, trials: int, workers: int, seed: int, **options: Any) -> None:
        block = {"name": name, "metric": "loss", "max_trials": trials, "max_concurrent_trials": workers, **options}
        self._search = make_searcher(block, table.space, seed)
        self._method = method_class(name)
        self._ready: list[CreateTrial] = []
        self._step(Started())

    def _step(self, event: Any) -> None:
        for decision in self._search.step(event):
            match decision:
                case CreateTrial():
                    self._ready.append(decision)
                case Suggest():
                    [question] = [one for one in self._search.questions() if one.ticket == decision.ticket]
                    self._step(Suggested(decision.ticket, tuple(self._method.suggest(question))))

    def ask(self) -> tuple[str, dict[str, Any]] | None:
        """Return the next trial; None if there is none."""
        if not self._ready:
            return None
        trial = self._ready.pop(0)
        self._step(TrialCreated(trial.request_id))
        return trial.request_id, trial.hparams

    def tell(self, handle: str, loss: float) -> None:
        """Report a trial's result and its end."""
        self._step(ValidationReported(handle, loss))
        self._step(TrialExited(handle))


class Optuna:
    """A sampler of Optuna's as its users run it: in memory, ask and tell."""

    def __init__(self, sampler: Callable[[int], Any], table: Table, trials: int, seed: int) -> None:
        import optuna
        from optuna.distributions import CategoricalDistribution, IntDistribution

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._left = trials
        self._study = optuna.create_study(sampler=sampler(seed))
        self._space = {
            name: IntDistribution(0, size - 1) if isinstance(size, int) else CategoricalDistribution(size)
            for name, size in table.sizes.items()
        }

    def ask(self) -> tuple[Any, dict[str, Any]] | None:
        """Ask the study."""
        if not self._left:
            return None
        self._left -= 1
        trial = self._study.ask(self._space)
        return trial, trial.params

    def tell(self, handle: Any, loss: float) -> None:
        """Tell the study."""
        self._study.tell(handle, loss)


@dataclass(frozen=True)
class Ended:
    """A trial that has ended: when on the simulated clock, and the mean loss of its point."""

    clock: float
    loss: float


def run(tuner: Tuner, table: Table, workers: int, seed: int) -> list[Ended]:
    """Run a search to the end of its budget; return its trials in the order of their ends."""
    rng = random.Random(seed)
    busy: list[tuple[float, int, Any, dict[str, Any], float]] = []
    clock, number, ended = 0.0, 0, []
    while True:
        while len(busy) < workers and (asked := tuner.ask()) is not None:
            handle, hparams = asked
            loss, seconds = table.draw(hparams, rng)
            heapq.heappush(busy, (clock + seconds, number, handle, hparams, loss))
            number += 1
        if not busy:
            return ended
        clock, _, handle, hparams, loss = heapq.heappop(busy)
        ended.append(Ended(clock, table.mean_loss(hparams)))
        tuner.tell(handle, loss)
