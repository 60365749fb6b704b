"""Amounts of training, and when a period is due. Pure."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable

from detlab.pytorch.errors import TrainerError


class TrainUnit:
    """An amount of training: `Batch(100)`, `Epoch(1)`; as a period also a container of counts, `Batch([10, 50])`.

    Args:
        value: A positive count, or a container of counts at which something is due.

    Raises:
        TrainerError: The value is neither a positive integer nor a container.
    """

    def __init__(self, value: int | Container[int]) -> None:
        self.value = value
        name = type(self).__name__
        if isinstance(value, bool | str | bytes) or not isinstance(value, int | Container):
            raise TrainerError(f"{name}({value!r}): give a positive integer or a container of them")
        if isinstance(value, int) and value < 1:
            raise TrainerError(f"{name}({value}): must be at least 1")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.value == self.value

    def __hash__(self) -> int:
        return hash((type(self).__name__, repr(self.value)))

    def should_stop(self, step_num: int) -> bool:
        """Return whether a period of this unit is due after `step_num` units."""
        if isinstance(self.value, int):
            return step_num % self.value == 0
        return step_num in self.value

    def reached_by(self, step_num: int) -> bool:
        """Return whether `step_num` units are at least this length; a length is a number, not a container."""
        return isinstance(self.value, int) and step_num >= self.value

    def next_after(self, step_num: int) -> int:
        """Return the first count above `step_num` at which something may be due."""
        if isinstance(self.value, int):
            return (step_num // self.value + 1) * self.value
        if isinstance(self.value, Iterable):
            return min((count for count in self.value if count > step_num), default=sys.maxsize)
        return step_num + 1  # only `in` can tell


class Batch(TrainUnit):
    """Counts batches: calls of `train_batch` on each rank."""


class Epoch(TrainUnit):
    """Counts epochs: passes over the training data."""


class Due:
    """Which of a trial's periods are due.

    Args:
        max_length: Where training ends; a number of batches or epochs.
        periods: By name; None is never due.
    """

    def __init__(self, max_length: TrainUnit, periods: dict[str, TrainUnit | None]) -> None:
        self.max_length = max_length
        self._periods = {name: unit for name, unit in periods.items() if unit is not None}
        units = [max_length, *self._periods.values()]
        self._in_batches = [unit for unit in units if not isinstance(unit, Epoch)]

    def next_batch(self, batches: int) -> int:
        """Return the first batch count above `batches` at which something counted in batches may be due."""
        return min((unit.next_after(batches) for unit in self._in_batches), default=sys.maxsize)

    def at(self, batches: int, epochs: int, *, epoch_ended: bool) -> set[str]:
        """Return the names of the periods that are due now.

        Args:
            batches: Batches trained, at least 1.
            epochs: Epochs completed.
            epoch_ended: Whether the last batch ended an epoch.
        """
        return {
            name
            for name, unit in self._periods.items()
            if (epoch_ended and unit.should_stop(epochs) if isinstance(unit, Epoch) else unit.should_stop(batches))
        }

    def over(self, batches: int, epochs: int) -> bool:
        """Return whether the length is reached."""
        return self.max_length.reached_by(epochs if isinstance(self.max_length, Epoch) else batches)

    def progress(self, batches: int, epochs: float) -> float:
        """Return how much of the length is done, from 0 to 1.

        Args:
            batches: Batches trained.
            epochs: Epochs completed, and the part of the current one.
        """
        assert isinstance(self.max_length.value, int)
        done = epochs if isinstance(self.max_length, Epoch) else batches
        return min(1.0, done / self.max_length.value)
