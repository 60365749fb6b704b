"""Methods that never stop a trial: `single`, `random`, `grid`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence, Set
from typing import Any, ClassVar, Self

from detlab.schemas.expconf import GridConfig, RandomConfig, SearcherBlock, SingleConfig
from detlab_hub.core.searchers.errors import SteeringRefused
from detlab_hub.core.searchers.events import INVALID_REASONS, CreateTrial, Decision, ExitReason, ResumeTrial
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.hyperparameters import SpaceGrid
from detlab_hub.core.searchers.method import SearchMethod, TrialFactory, create_many
from detlab_hub.core.searchers.randomness import SearchRandom


class RandomSearch(SearchMethod):
    """`max_trials` independent points.

    Args:
        max_trials: Trials whose hyperparameters turned out valid.
        max_concurrent: Trials at a time; 0 for no limit.
        replace_invalid: Whether a trial that raised InvalidHP is replaced by a random one.
    """

    name = "random"
    draws_anew = True
    trains_on = True
    Config: ClassVar[type[SearcherBlock]] = RandomConfig

    def __init__(self, max_trials: int, max_concurrent: int, *, replace_invalid: bool = True) -> None:
        self._max_trials = max_trials
        self._max_concurrent = max_concurrent
        self._replace_invalid = replace_invalid
        self._budget_used = 0
        self._running = 0
        self._waiting: deque[str] = deque()
        """Trials that had ended, and are to train on when places are free."""

    @classmethod
    def from_config(cls, fields: Fields, space: Mapping[str, Any]) -> Self:
        """As `searcher` says."""
        return cls(fields.count("max_trials"), fields.max_concurrent)

    @property
    def budget(self) -> int:
        """`max_trials`."""
        return self._max_trials

    @property
    def most_invalid(self) -> int:
        """None if they are not replaced."""
        return super().most_invalid if self._replace_invalid else 0

    def start(self, factory: TrialFactory) -> list[Decision]:
        """Create as many trials as may run at a time."""
        first = min(self._max_trials, self._max_concurrent or self._max_trials)
        self._budget_used = self._running = first
        return create_many(first, lambda: self.create(factory))

    def create(self, factory: TrialFactory) -> CreateTrial:
        """Create the next trial."""
        return factory.draw()

    def exited_early(self, factory: TrialFactory, request_id: str, reason: ExitReason) -> list[Decision]:
        """Give an invalid trial's budget back; its `exited` then draws the replacement."""
        if self._replace_invalid and reason in INVALID_REASONS:
            self._budget_used -= 1
        return []

    def exited(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Fill the freed place while there is budget."""
        self._running -= 1
        return self._fill(factory, 1)

    def reopened(self, factory: TrialFactory, request_ids: Sequence[str]) -> list[Decision]:
        """Let them train on, as many at a time as the search allows."""
        self._waiting.extend(request_ids)
        return self._fill(factory, 0)

    def extended(self, factory: TrialFactory, trials: int, units: int) -> list[Decision]:
        """Make further trials, at once where a place is free."""
        refuse_units(self.name, units)
        self._max_trials += trials
        return self._fill(factory, trials)

    def resized(self, factory: TrialFactory, limit: int) -> list[Decision]:
        """Fill new places; with a lower limit, leave places empty as trials end."""
        self._max_concurrent = limit
        return self._fill(factory, self._max_trials)

    def _fill(self, factory: TrialFactory, most: int) -> list[Decision]:
        resumed = _resume(self._waiting, self._max_concurrent, self._running)
        self._running += len(resumed)
        free = self._max_concurrent - self._running if self._max_concurrent else most
        count = max(0, min(most, free, self._max_trials - self._budget_used))
        self._budget_used += count
        self._running += count
        return [*resumed, *create_many(count, lambda: self.create(factory))]

    def progress(self, shares: Mapping[str, float], closed: Set[str]) -> float:
        """Return the part of the budget that is done; invalid trials do not count, since they are replaced."""
        done = sum(1.0 if request_id in closed else share for request_id, share in shares.items())
        return done / self._max_trials

    def state(self) -> dict[str, Any]:
        """Return the budget, what of it is spent, and the places."""
        return {
            "budget_used": self._budget_used,
            "running": self._running,
            "max_trials": self._max_trials,
            "max_concurrent": self._max_concurrent,
            "waiting": list(self._waiting),
        }


class SingleSearch(RandomSearch):
    """One trial at a random point: an experiment without a search is a search of one trial."""

    name = "single"
    Config = SingleConfig

    @classmethod
    def from_config(cls, fields: Fields, space: Mapping[str, Any]) -> Self:
        """Make the method; it has no fields."""
        return cls(max_trials=1, max_concurrent=1, replace_invalid=False)


class GridSearch(SearchMethod):
    """Every point of the grid once, from the last to the first; invalid points are not replaced.

    Args:
        grid: The points.
        max_concurrent: Trials at a time; 0 for no limit.
        max_trials: Points that are tried, chosen at random; None for all.
    """

    name = "grid"
    trains_on = True
    Config = GridConfig

    def __init__(self, grid: SpaceGrid, max_concurrent: int, max_trials: int | None = None) -> None:
        self._grid = grid
        self._max_concurrent = max_concurrent
        self._size = min(grid.size, max_trials or grid.size)
        self._chosen: list[int] | None = None
        """Numbers of the points that are tried, ascending; None for all."""
        self._remaining = self._size
        self._added = 0
        """Points that users added beyond the grid."""
        self._added_left = 0
        self._running = 0
        self._waiting: deque[str] = deque()
        """Trials that had ended, and are to train on when places are free."""

    @classmethod
    def from_config(cls, fields: Fields, space: Mapping[str, Any]) -> Self:
        """Make the method that the `searcher` block describes, over the whole space."""
        return cls(SpaceGrid(space, fields.require), fields.max_concurrent, fields.optional_count("max_trials"))

    @property
    def budget(self) -> int:
        """Points of the grid, and those that users added."""
        return self._size + self._added

    @property
    def most_invalid(self) -> int:
        """None: the grid ends."""
        return 0

    def start(self, factory: TrialFactory) -> list[Decision]:
        """Choose the points if they are not all tried, and create as many trials as may run at a time."""
        if self._size < self._grid.size:
            self._chosen = _chosen(self._size, self._grid.size, factory.rng)
        return self._fill(factory, self._remaining)

    def exited(self, factory: TrialFactory, request_id: str) -> list[Decision]:
        """Continue with the next point."""
        self._running -= 1
        return self._fill(factory, 1)

    def reopened(self, factory: TrialFactory, request_ids: Sequence[str]) -> list[Decision]:
        """Let them train on, as many at a time as the search allows."""
        self._waiting.extend(request_ids)
        return self._fill(factory, 0)

    def extended(self, factory: TrialFactory, trials: int, units: int) -> list[Decision]:
        """Make trials at points that users added; they come before the rest of the grid."""
        refuse_units(self.name, units)
        if len(factory.enqueued) < self._added_left + trials:
            raise SteeringRefused("a grid has no further points: add points of your own (det search add)")
        self._added += trials
        self._added_left += trials
        return self._fill(factory, trials)

    def resized(self, factory: TrialFactory, limit: int) -> list[Decision]:
        """Fill new places; with a lower limit, leave places empty as trials end."""
        self._max_concurrent = limit
        return self._fill(factory, self._remaining + self._added_left)

    def respaced(self, factory: TrialFactory, space: Mapping[str, Any]) -> list[Decision]:
        """Refuse: the points that were tried would not be those of the new grid.

        Raises:
            SteeringRefused: Always.
        """
        raise SteeringRefused(
            "the space of a grid cannot be changed: it is enumerated from its first point; add points instead"
        )

    def _fill(self, factory: TrialFactory, most: int) -> list[Decision]:
        resumed = _resume(self._waiting, self._max_concurrent, self._running)
        self._running += len(resumed)
        free = self._max_concurrent - self._running if self._max_concurrent else most
        count = max(0, min(most, free, self._remaining + self._added_left))
        self._running += count
        return [*resumed, *create_many(count, lambda: self._next(factory))]

    def _next(self, factory: TrialFactory) -> CreateTrial:
        if self._added_left:
            self._added_left -= 1
            return factory.draw()
        self._remaining -= 1
        place = self._remaining if self._chosen is None else self._chosen[self._remaining]
        return factory.at(self._grid.point(place))

    def progress(self, shares: Mapping[str, float], closed: Set[str]) -> float:
        """Return the part of the points that is done; an invalid point counts as done."""
        running = sum(share for request_id, share in shares.items() if request_id not in closed)
        return (len(closed) + running) / self.budget

    def state(self) -> dict[str, Any]:
        """Return the points left, and the places."""
        return {
            "remaining": self._remaining,
            "added": self._added,
            "added_left": self._added_left,
            "running": self._running,
            "max_concurrent": self._max_concurrent,
            "waiting": list(self._waiting),
        }


def _resume(waiting: deque[str], limit: int, running: int) -> list[Decision]:
    """Take from trials that wait those that have a place now; without a limit, that is all."""
    count = min(len(waiting), max(0, limit - running)) if limit else len(waiting)
    return [ResumeTrial(waiting.popleft()) for _ in range(count)]


def _chosen(count: int, size: int, rng: SearchRandom) -> list[int]:
    """Choose so many of the numbers below `size`, each set of them as likely as any other (Floyd's algorithm)."""
    found: set[int] = set()
    for most in range(size - count, size):
        number = rng.below(most + 1)
        found.add(most if number in found else number)
    return sorted(found)


def refuse_units(name: str, units: int) -> None:
    """Refuse to lengthen the trials of a method that does not count their training.

    Raises:
        SteeringRefused: There are units.
    """
    if units:
        raise SteeringRefused(f"{name} has no rungs to lengthen: its trials train as long as their code decides")
