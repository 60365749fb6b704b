"""A search without training: an objective function replaces the trials, one at a time.

Useful to see, before any GPU is spent, how many trials a search makes, how long each trains, and what a
`divisor` or a `mode` costs.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from detlab_hub.core.searchers.events import (
    RULES,
    CheckpointCommitted,
    Continued,
    CreateTrial,
    Event,
    PauseSearch,
    PauseTrial,
    ResumeTrial,
    SetPoint,
    Shutdown,
    Started,
    StopTrial,
    Suggest,
    Suggested,
    TrialCreated,
    TrialExited,
    TrialExitedEarly,
    TrialPaused,
    TrialPlaced,
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
        steps: Units of the time metric trained, up to the last report for a trial that failed; a clone's own ones.
        ended: `stopped` by the searcher, `completed` its length, or `error`.
        metric: Last reported value; None if there is none.
        rung: Index of the rung that stopped it, else None.
        rungs: Units of the rungs at which it is evaluated; empty if there are none.
        error: The objective's message when it failed.
        invalid: Whether it failed because of its hyperparameters.
        evidence: What a stopping policy based its stop on; empty if the method stopped it.
        values: The last value of each metric that the search knows.
    """

    trial: CreateTrial
    steps: int
    ended: Ended
    metric: float | None = None
    rung: int | None = None
    rungs: tuple[int, ...] = ()
    error: str | None = None
    invalid: bool = False
    evidence: str = ""
    values: Mapping[str, float] = field(default_factory=dict)


def simulate(
    searcher: Searcher,
    objective: Objective,
    report_every: int,
    length: int,
    others: Mapping[str, Objective] | None = None,
) -> list[SimulatedTrial]:
    """Run a fresh search to its end, one trial after another in creation order.

    Each trial reports at `report_every`, twice that, … and at `length`, where it ends if the searcher has not stopped
    or paused it before. A resumed trial comes before new ones; a clone continues where its parent was. Constrained
    metrics, and further objectives without a function, have the value of the searcher metric; time does not pass.

    Args:
        searcher: A search that has not started.
        objective: Takes the place of the trials' training.
        report_every: Units of the time metric between reports, at least 1.
        length: Units after which a trial ends by itself, at least 1.
        others: Functions of further metrics, by name.

    Raises:
        EndlessSearchError: If invalid trials outnumber the search's budget a hundredfold, or the search is not over
            when no trial trains any more.
    """
    return _Simulation(searcher, objective, report_every, length, others or {}).run()


_INVALID_PER_BUDGET = 100


@dataclass
class _Course:
    """A trial on its way.

    Attributes:
        trial: As the search created it.
        start: Units at which it began: those of its parent's checkpoint.
        at: Units up to which it has trained.
        metric: Last reported value.
        error: The objective's message when it failed.
        invalid: Whether it failed because of its hyperparameters.
        stopped: Whether the search stopped it.
        evidence: What a stopping policy based that on.
        paused: Whether it is off its slots.
        ended: Whether its end was reported.
        values: The last value of each metric.
    """

    trial: CreateTrial
    start: int = 0
    at: int = 0
    metric: float | None = None
    error: str | None = None
    invalid: bool = False
    stopped: bool = False
    evidence: str = ""
    paused: bool = False
    ended: bool = False
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """Whether it neither trains nor has ended."""
        return self.paused and not self.stopped


class _Simulation:
    def __init__(
        self,
        searcher: Searcher,
        objective: Objective,
        report_every: int,
        length: int,
        others: Mapping[str, Objective],
    ) -> None:
        self._searcher = searcher
        self._others = others
        self._objective = objective
        self._report_every = report_every
        self._length = length
        self._queue: deque[_Course] = deque()
        self._courses: dict[str, _Course] = {}
        self._saved: dict[str, int] = {}
        """Units of each checkpoint."""
        self._done: list[SimulatedTrial] = []
        self._over = False

    def run(self) -> list[SimulatedTrial]:
        limit = _INVALID_PER_BUDGET * self._searcher.trials_total
        self._tell(Started(RULES))
        while self._queue:
            course = self._queue.popleft()
            if course.trial.later and not course.ended:
                self._tell(TrialPlaced(course.trial.request_id))
            if not course.ended and not self._leaves(course):
                self._end(course)
            if self._searcher.trials_invalid > limit:
                raise EndlessSearchError(f"{self._searcher.trials_invalid} trials were invalid and replaced; gave up")
        if not self._over:
            raise EndlessSearchError(
                f"after {len(self._done)} trials the search still waits, and nothing trains any more; gave up"
            )
        return sorted(self._done, key=lambda done: done.trial.index)

    def _tell(self, event: Event) -> None:
        """Give the search an event, and carry out its decisions."""
        for decision in self._searcher.step(event):
            match decision:
                case CreateTrial(request_id, parent=parent):
                    start = 0 if parent is None else self._saved[parent]
                    self._courses[request_id] = course = _Course(decision, start, start)
                    self._queue.append(course)
                    self._tell(TrialCreated(request_id))
                case SetPoint(request_id, hparams):
                    course = self._courses[request_id]
                    course.trial = replace(course.trial, hparams=hparams, later=False)
                case StopTrial(request_id, evidence=evidence):  # one that trains notices it after its report
                    self._stop(self._courses[request_id], evidence)
                case PauseTrial(request_id):
                    self._courses[request_id].paused = True
                case ResumeTrial(request_id):
                    course = self._courses[request_id]
                    course.paused = False
                    self._queue.appendleft(course)
                case Suggest(ticket):
                    self._tell(self._answer(ticket))
                case PauseSearch():
                    self._tell(Continued())
                case Shutdown():
                    self._over = True

    def _stop(self, course: _Course, evidence: str) -> None:
        waited = course.waits
        course.stopped, course.evidence = True, evidence
        if waited:
            self._end(course)

    def _answer(self, ticket: int) -> Suggested:
        """Answer a question here; the master does so in another process."""
        question = next(one for one in self._searcher.questions() if one.ticket == ticket)
        try:
            found = type(self._searcher.method).suggest(question)
        except Exception as error:  # a method's own code: the search draws at random, as in the master
            return Suggested(ticket, (), f"{type(error).__name__}: {error}")
        return Suggested(ticket, tuple(found)[: question.count])

    def _leaves(self, course: _Course) -> bool:
        """Train a trial until it leaves its slots, or has ended; return whether it may train on."""
        request_id = course.trial.request_id
        while not course.stopped and course.at < self._length:
            step = min(course.at + self._report_every, self._length)  # all validate at their end
            try:
                course.metric = self._objective(course.trial, step)
            except ObjectiveError as error:
                course.error, course.invalid = error.message, error.invalid
                self._tell(TrialExitedEarly(request_id, "invalid_hp" if error.invalid else "errored"))
                return False
            course.at = step
            values = dict.fromkeys(self._searcher.metrics, course.metric)
            values |= {name: value(course.trial, step) for name, value in self._others.items()}
            course.values = values
            self._tell(ValidationReported(request_id, course.metric, float(step), values))
            if course.waits:
                self._leave(course)
                return True
        return False

    def _leave(self, course: _Course) -> None:
        request_id = course.trial.request_id
        checkpoint = f"{request_id}@{course.at}"
        self._saved[checkpoint] = course.at
        self._tell(CheckpointCommitted(request_id, checkpoint, course.at))
        self._tell(TrialPaused(request_id))

    def _end(self, course: _Course) -> None:
        method, request_id = self._searcher.method, course.trial.request_id
        if course.ended:
            return
        course.ended = True
        if course in self._queue:
            self._queue.remove(course)
        ended: Ended = "error" if course.error is not None else "stopped" if course.stopped else "completed"
        rungs = tuple(method.units_of(request_id))
        self._done.append(
            SimulatedTrial(
                course.trial,
                (self._length if ended == "completed" else course.at) - course.start,
                ended,
                course.metric,
                rung=method.level_of(request_id) if ended == "stopped" and not course.evidence and rungs else None,
                rungs=rungs,
                error=course.error,
                invalid=course.invalid,
                evidence=course.evidence,
                values=course.values,
            )
        )
        self._tell(TrialExited(request_id))


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
