"""The searches that are compared: detlab's methods as the master drives them, Optuna's samplers as their users do."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from detlab_hub.core.searchers import (
    CreateTrial,
    Decision,
    Event,
    SetPoint,
    Started,
    Suggest,
    Suggested,
    TrialCreated,
    TrialExited,
    TrialPlaced,
    ValidationReported,
    make_searcher,
    method_class,
)
from quality.tables import Table


class Search:
    """A search of detlab's; its suggestions are made in this process.

    Args:
        block: The `searcher` block.
        space: The `hyperparameters` block.
        seed: Of the search.
        stopping: The `stopping` list.

    Attributes:
        points: The trials' points, by request id; empty until a trial has one.
    """

    def __init__(
        self, block: dict[str, Any], space: dict[str, Any], seed: int, stopping: Sequence[dict[str, Any]] = ()
    ) -> None:
        self.searcher = make_searcher(block, space, seed, stopping=stopping)
        self.points: dict[str, Mapping[str, Any]] = {}
        self._method = method_class(block["name"])

    def step(self, event: Event) -> Iterator[Decision]:
        """Give it an event; yield the decisions, those on suggestions, too."""
        for decision in self.searcher.step(event):
            if isinstance(decision, Suggest):
                question = self.searcher.question(decision.ticket)
                yield from self.step(Suggested(decision.ticket, tuple(self._method.suggest(question))))
                continue
            if isinstance(decision, CreateTrial | SetPoint):
                self.points[decision.request_id] = decision.hparams
            yield decision


class Detlab:
    """A method of detlab's behind ask and tell.

    Args:
        name: The method.
        table: Its space.
        trials: Budget.
        workers: Trials at a time.
        seed: Of the search.
    """

    def __init__(self, name: str, table: Table, trials: int, workers: int, seed: int) -> None:
        block = {"name": name, "metric": "loss", "max_trials": trials, "max_concurrent_trials": workers}
        self._search = Search(block, table.space, seed)
        self._ready: list[CreateTrial] = []
        self._step(Started())

    def _step(self, event: Event) -> None:
        self._ready += [one for one in self._search.step(event) if isinstance(one, CreateTrial)]

    def ask(self) -> tuple[str, dict[str, Any]] | None:
        """Place the first trial that waits; None if there is none."""
        if not self._ready:
            return None
        request_id = self._ready.pop(0).request_id
        self._step(TrialCreated(request_id))
        self._step(TrialPlaced(request_id))
        return request_id, dict(self._search.points[request_id])

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
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
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


def optuna_sampler(name: str) -> Callable[[int], Any]:
    """Return how to make a sampler:, with the settings that detlab gives it."""
    from optuna import samplers

    return {
        "random": lambda seed: samplers.RandomSampler(seed=seed),
        "tpe": lambda seed: samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True),
        "gp": lambda seed: samplers.GPSampler(seed=seed),
        "cmaes": lambda seed: samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False),
        "nsga2": lambda seed: samplers.NSGAIISampler(seed=seed, population_size=20),
    }[name]
