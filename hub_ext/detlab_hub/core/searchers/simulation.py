"""A search without training: an objective function takes the place of the trials, one after another.

Useful to see, before any GPU is spent, how many trials a search makes, how long each trains, and what a
`divisor` or a `mode` costs.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from detlab_hub.core.searchers.events import (
    CreateTrial,
    Decision,
    Started,
    StopTrial,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    ValidationReported,
)
from detlab_hub.core.searchers.randomness import SearchRandom
from detlab_hub.core.searchers.searcher import Searcher

Objective: TypeAlias = Callable[[CreateTrial, int], float]
"""(trial, step in units of the time metric) -> value of the searcher's metric; may raise `ObjectiveError`."""

Ended = Literal["stopped", "completed", "error"]


class ObjectiveError(Exception):
    """The objective failed.

    Args:
        message: For people.
        invalid: Whether it reports invalid hyperparameters (the trial is then replaced).
    """

    def __init__(self, message: str, *, invalid: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.invalid = invalid


class EndlessSearchError(Exception):
    """Nearly every point of the space is invalid, and each is replaced by another."""


@dataclass(frozen=True)
class SimulatedTrial:
    """The result of one trial.

    Attributes:
        trial: As the search created it.
        steps: Units of the time metric trained, up to the last report for a trial that failed.
        ended: `stopped` by the searcher, `completed` its length, or `error`.
        metric: Last reported value; None if there is none.
        rung: Index of the rung that stopped it, else None.
        rungs: Units of the rungs at which it is evaluated; empty if there are none.
        error: The objective's message when it failed.
        invalid: Whether it failed because of its hyperparameters.
    """

    trial: CreateTrial
    steps: int
    ended: Ended
    metric: float | None = None
    rung: int | None = None
    rungs: tuple[int, ...] = ()
    error: str | None = None
    invalid: bool = False


def simulate(searcher: Searcher, objective: Objective, report_every: int, length: int) -> list[SimulatedTrial]:
    """Run a fresh search to its end, one trial after another in creation order.

    Each trial reports at `report_every`, twice that, … until the searcher stops it or it has trained `length`
    units.

    Args:
        searcher: A search that has not started.
        objective: Takes the place of the trials' training.
        report_every: Units of the time metric between reports, at least 1.
        length: Units after which a trial ends by itself, at least 1.

    Raises:
        EndlessSearchError: If invalid trials outnumber the search's budget a hundredfold.
    """
    return _Simulation(searcher, objective, report_every, length).run()


_INVALID_PER_BUDGET = 100


class _Simulation:
    def __init__(self, searcher: Searcher, objective: Objective, report_every: int, length: int) -> None:
        self._searcher = searcher
        self._objective = objective
        self._report_every = report_every
        self._length = length
        self._queue: deque[CreateTrial] = deque()

    def run(self) -> list[SimulatedTrial]:
        done: list[SimulatedTrial] = []
        limit = _INVALID_PER_BUDGET * self._searcher.trials_total
        self._take(self._searcher.step(Started()))
        while self._queue:
            done.append(self._train(self._queue.popleft()))
            if self._searcher.trials_invalid > limit:
                raise EndlessSearchError(f"{self._searcher.trials_invalid} trials were invalid and replaced; gave up")
        return done

    def _take(self, decisions: list[Decision]) -> list[Decision]:
        for decision in decisions:
            if isinstance(decision, CreateTrial):
                self._queue.append(decision)
                self._searcher.step(TrialCreated(decision.request_id))
        return decisions

    def _train(self, trial: CreateTrial) -> SimulatedTrial:
        result = self._reports(trial)
        self._take(self._searcher.step(TrialExited(trial.request_id)))
        return result

    def _reports(self, trial: CreateTrial) -> SimulatedTrial:
        method, request_id = self._searcher.method, trial.request_id
        rungs = tuple(method.units_of(request_id))
        metric: float | None = None
        for step in range(self._report_every, self._length + 1, self._report_every):
            try:
                metric = self._objective(trial, step)
            except ObjectiveError as error:
                self._take(
                    self._searcher.step(TrialExitedEarly(request_id, "invalid_hp" if error.invalid else "errored"))
                )
                return SimulatedTrial(
                    trial,
                    step - self._report_every,
                    "error",
                    metric,
                    rungs=rungs,
                    error=error.message,
                    invalid=error.invalid,
                )
            decisions = self._take(self._searcher.step(ValidationReported(request_id, metric, float(step))))
            if any(isinstance(decision, StopTrial) for decision in decisions):
                return SimulatedTrial(trial, step, "stopped", metric, rung=method.level_of(request_id), rungs=rungs)
        return SimulatedTrial(trial, self._length, "completed", metric, rungs=rungs)


def random_curve(trial: CreateTrial, step: int, length: int, smaller_is_better: bool) -> float:
    """Return a point of a made-up learning curve.

    The curve falls (or rises) by a power law towards a level of the trial's own. It is reproducible: it
    depends only on the trial's seed, the step and the length. Values lie between 0 and 1.
    """
    rng = SearchRandom(trial.trial_seed)
    final, speed = rng.uniform(0.05, 0.6), rng.uniform(0.5, 4.0)
    noise = SearchRandom((trial.trial_seed + step) % 2**32).uniform(-0.02, 0.02)
    loss = final + (0.9 - final) * math.pow(1 + 20 * step / length, -speed)
    value = min(max(loss + noise, 0.0), 1.0)
    return value if smaller_is_better else 1.0 - value
