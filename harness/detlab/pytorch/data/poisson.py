"""Batches in which each sample is by itself with the same probability, as the accountant of differential privacy wants.

Nobody is to know which samples a batch has: they are drawn from the operating system's entropy, not from the trial's
seed, which stands in its config. So a resumed trial draws anew, and no two trainings have the same batches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from detlab.pytorch.data.fetch import BatchFeed
from detlab.pytorch.data.loader import DataLoader
from detlab.pytorch.errors import DataError


class _Nobody(list[Any]):
    """Indices of a batch that has none: of a sample that is read, so that there is a batch, and not trained on."""


class Drawn:
    """Our loader, with a sample rate: each rank draws from samples of its own. An epoch is 1 / rate steps.

    Args:
        loader: The loader.
        rank: This rank.
        size: Number of ranks.
        seed: What the random numbers of workers come from; not those of the draws.

    Raises:
        DataError: There is not a sample for each rank.
    """

    weight = 1.0

    def __init__(self, loader: DataLoader, rank: int, size: int, seed: int) -> None:
        assert loader._sample_rate is not None
        count = len(loader.dataset)
        self._own = np.arange(rank, count, size)
        if len(self._own) == 0:
            raise DataError(f"the training data has {count} samples, for {size} ranks", hint="use fewer slots")
        self._rate = loader._sample_rate
        self._batch_size = loader.batch_size
        self._count = count
        self._feed = BatchFeed(loader, seed, rank)
        self._per_epoch = steps_per_epoch(self._rate)
        self._first = self._left = 0

    def open(self, position: Any) -> tuple[int, Iterator[tuple[list[Any] | None, Any, bool]]]:
        """Begin with the rest of an epoch, which after another number of ranks has one step at least."""
        self._first = position.batches
        position.batch_in_epoch = position.batches
        self._left = max(1, self._per_epoch - position.batches)
        return self._left, self._iterate(position.epoch)

    def consumed(self, steps: int) -> tuple[None, int]:
        """Return the batches of the epoch that were taken; no samples are, since each may come again."""
        return None, self._first + steps

    def describe(self) -> dict[str, Any]:
        """Return `batch_size` and `dataset_size`."""
        return {"batch_size": self._batch_size, "dataset_size": self._count}

    def order(self) -> tuple[None, None]:
        """Return that there is no order."""
        return None, None

    def close(self) -> None:
        """Stop workers."""
        self._feed.close()

    def jobs(self) -> Iterator[tuple[int, list[Any]]]:
        """Return the number of each batch, and its indices."""
        draws = np.random.default_rng()  # seeded by the operating system
        for step in range(self._left):
            chosen = self._own[draws.random(len(self._own)) < self._rate].tolist()
            yield self._first + step, chosen or _Nobody([int(self._own[0])])

    def _iterate(self, epoch: int) -> Iterator[tuple[list[Any] | None, Any, bool]]:
        left = self._left
        with contextlib.closing(self._feed.iterate(self, epoch)) as batches:
            for ids, data in batches:
                left -= 1
                yield ([] if isinstance(ids, _Nobody) else ids), data, left == 0


def steps_per_epoch(rate: float) -> int:
    """Return in how many steps each sample is drawn once on average."""
    return max(1, round(1 / rate))
