"""The interface of a search method that runs outside of the master: events in, operations out."""

from __future__ import annotations

import random
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from detlab.schemas.space import Space

RequestId: TypeAlias = uuid.UUID | str
"""The name of a trial: chosen by the method in `Create`, unique in the search."""


class ExitedReason(StrEnum):
    """Why a trial ended before its code was done."""

    ERRORED = "errored"
    USER_CANCELED = "user_canceled"
    INVALID_HP = "invalid_hp"
    INIT_INVALID_HP = "init_invalid_hp"


@dataclass(frozen=True)
class Create:
    """Create a trial.

    Attributes:
        hparams: A point of the space; constants may be left out.
        request_id: The method's name for the trial; random by default.
    """

    hparams: Mapping[str, Any]
    request_id: RequestId = field(default_factory=uuid.uuid4)


@dataclass(frozen=True)
class ValidateAfter:
    """Let a trial train up to `length`, then report its validation to the method.

    Attributes:
        request_id: The trial.
        length: In units of `searcher.time_metric`; without one, in validation reports. Counted from the trial's start.
    """

    request_id: RequestId
    length: float


@dataclass(frozen=True)
class Close:
    """End a trial once it has trained the lengths requested so far."""

    request_id: RequestId


@dataclass(frozen=True)
class Progress:
    """Report how much of the search is done, 0 to 1."""

    progress: float


@dataclass(frozen=True)
class Shutdown:
    """End the search: running trials are stopped, and the class receives no more events.

    Attributes:
        cancel: Whether the experiment counts as canceled.
        failure: Whether the experiment counts as failed.
    """

    cancel: bool = False
    failure: bool = False


Operation: TypeAlias = Create | ValidateAfter | Close | Progress | Shutdown
"""What a method answers to an event."""


class _Draws:
    """The random numbers of `SearcherState.sample`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a search is to be repeatable

    def below(self, n: int) -> int:
        return self._random.randrange(n)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


@dataclass
class SearcherState:
    """The state of the search, updated before each call.

    Attributes:
        hyperparameters: The `hyperparameters` block of the experiment, as users have edited it.
        seed: The experiment's seed. `random`, and NumPy's old generator if NumPy is imported, are seeded with it.
        metric: The searcher's metric.
        smaller_is_better: Whether a smaller metric is better.
        time_metric: The unit of lengths; None: validation reports.
        max_trials: Most trials that may be created.
        max_concurrent_trials: Trials at a time, 0 for no limit; further ones wait.
        trials_created: Trials that exist.
        trials_closed: Trials that have ended.
        failures: Trials that failed or were canceled.
        trial_progress: 0.0 for each trial that exists, 1.0 once it has ended.
        hparams: The hyperparameters of each trial.
        metrics: The metrics of each trial that the method has received, oldest first.
        last_event_id: The number of the newest event.
    """

    hyperparameters: Mapping[str, Any]
    seed: int = 0
    metric: str = "loss"
    smaller_is_better: bool = True
    time_metric: str | None = None
    max_trials: int = 1000
    max_concurrent_trials: int = 16
    trials_created: set[RequestId] = field(default_factory=set)
    trials_closed: set[RequestId] = field(default_factory=set)
    failures: set[RequestId] = field(default_factory=set)
    trial_progress: dict[RequestId, float] = field(default_factory=dict)
    hparams: dict[RequestId, dict[str, Any]] = field(default_factory=dict)
    metrics: dict[RequestId, list[float]] = field(default_factory=dict)
    last_event_id: int = 0
    require: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._draws = _Draws(self.seed)

    def sample(self) -> dict[str, Any]:
        """Draw a random point of the space; the same seed gives the same points in the same order."""
        return Space(self.hyperparameters, self.require).sample(self._draws)

    def best(self, request_id: RequestId) -> float | None:
        """Return the best metric of a trial; None if it has reported no number."""
        known = [value for value in self.metrics.get(request_id, ()) if value == value]  # noqa: PLR0124 - NaN
        if not known:
            return None
        return min(known) if self.smaller_is_better else max(known)


class SearchMethod(ABC):
    """A search method. Each call returns a list of operations, in order; it may be empty.

    The class is created with `searcher.options` as keyword arguments. It should depend on its events alone: after a
    restart it receives all of them again, and its earlier answers stand.
    """

    @abstractmethod
    def initial_operations(self, searcher_state: SearcherState) -> Sequence[Operation]:
        """Return the first operations of the search; at least one `Create`."""

    def on_trial_created(self, searcher_state: SearcherState, request_id: RequestId) -> Sequence[Operation]:
        """React to a new trial."""
        return []

    def on_validation_completed(
        self, searcher_state: SearcherState, request_id: RequestId, metric: float, train_length: float
    ) -> Sequence[Operation]:
        """React to a validation.

        For a trial with a `ValidateAfter`, this is called once it has trained that long. Without another one it then
        saves, frees its slots and waits for a `ValidateAfter` or a `Close`. For any other trial it is called at each
        report, and the trial continues.

        Args:
            searcher_state: The state of the search.
            request_id: The trial.
            metric: The searcher's metric as reported; it may be NaN or infinite.
            train_length: How long it has trained.
        """
        return []

    def on_trial_closed(self, searcher_state: SearcherState, request_id: RequestId) -> Sequence[Operation]:
        """React to the end of a trial, for any reason."""
        return []

    def on_trial_exited_early(
        self, searcher_state: SearcherState, request_id: RequestId, exited_reason: ExitedReason
    ) -> Sequence[Operation]:
        """React to a trial that ended before its code was done; its `on_trial_closed` follows."""
        return []

    def progress(self, searcher_state: SearcherState) -> float | None:
        """Return how much of the search is done, 0 to 1; None: the share of the created trials that have ended."""
        return None
