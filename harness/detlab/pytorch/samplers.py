"""Building blocks for custom samplers: repeat, shard, skip, shuffle.

Names and signatures are those of `determined.pytorch.samplers`. `detlab.pytorch.DataLoader` needs none of them: the
trainer itself repeats, shards, skips and shuffles, and it refuses a sampler that shards or repeats as well. They are
for loaders that a trial builds by hand. Chain them in this order: shuffle, repeat, shard, skip.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch.utils.data

from detlab.pytorch.errors import DataError


def _repeat(source: Iterable[Any]) -> Iterator[Any]:
    while True:
        empty = True
        for item in source:
            empty = False
            yield item
        if empty:
            raise DataError(f"cannot repeat {type(source).__name__}: it yields nothing", hint="is the dataset empty?")


def _check_shard(num_workers: int, rank: int) -> None:
    problems = []
    if num_workers < 1:
        problems.append(f"num_workers is {num_workers}, it must be at least 1")
    if not 0 <= rank < max(num_workers, 1):
        problems.append(f"rank is {rank}, it must be from 0 to num_workers - 1 = {num_workers - 1}")
    if problems:
        raise DataError.of("this sampler cannot shard:", problems)


def _share(total: int, num_workers: int, rank: int) -> int:
    """Return how many of `total` items the rank gets that takes every `num_workers`-th, beginning with its own."""
    return total // num_workers + (total % num_workers > rank)


def _check_skip(skip: int) -> None:
    if skip < 0:
        raise DataError(f"skip is {skip}, it must not be negative")


class RepeatSampler(torch.utils.data.Sampler):
    """All samples of `sampler`, repeated without end; `len()` is that of one pass."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        return _repeat(self._sampler)


class RepeatBatchSampler(torch.utils.data.BatchSampler):
    """All batches of `batch_sampler`, repeated without end; `len()` is that of one pass."""

    def __init__(self, batch_sampler: Any) -> None:
        self.batch_sampler = batch_sampler

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[list[Any]]:
        return _repeat(self.batch_sampler)


class DistributedSampler(torch.utils.data.Sampler):
    """Every `num_workers`-th sample of `sampler`, beginning with the `rank`-th.

    Unlike torch's class of this name it shards any sampler, not a dataset, and shuffles nothing. `len()` is what this
    rank yields: one less on the last ranks where the samples do not divide.

    Args:
        sampler: Yields the same samples on all ranks.
        num_workers: Number of ranks.
        rank: This rank, from 0.

    Raises:
        DataError: There is no such rank.
    """

    def __init__(self, sampler: Any, num_workers: int, rank: int) -> None:
        _check_shard(num_workers, rank)
        self._sampler = sampler
        self._num_workers = num_workers
        self._rank = rank

    def __len__(self) -> int:
        return _share(len(self._sampler), self._num_workers, self._rank)

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self._sampler, self._rank, None, self._num_workers)


class DistributedBatchSampler(torch.utils.data.BatchSampler):
    """Every `num_workers`-th batch of `batch_sampler`, beginning with the `rank`-th.

    `len()` is what this rank yields: one less on the last ranks where the batches do not divide.

    Args:
        batch_sampler: Yields the same batches on all ranks.
        num_workers: Number of ranks.
        rank: This rank, from 0.

    Raises:
        DataError: There is no such rank.
    """

    def __init__(self, batch_sampler: Any, num_workers: int, rank: int) -> None:
        _check_shard(num_workers, rank)
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.rank = rank

    def __len__(self) -> int:
        return _share(len(self.batch_sampler), self.num_workers, self.rank)

    def __iter__(self) -> Iterator[list[Any]]:
        return itertools.islice(self.batch_sampler, self.rank, None, self.num_workers)


class SkipSampler(torch.utils.data.Sampler):
    """The samples of `sampler` without the first `skip`.

    `len()` stays the one of `sampler`: skipping is for a repeated sampler, in which it happens only once.
    """

    def __init__(self, sampler: Any, skip: int) -> None:
        _check_skip(skip)
        self._sampler = sampler
        self._skip = skip

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self._sampler, self._skip, None)


class SkipBatchSampler(torch.utils.data.BatchSampler):
    """The batches of `batch_sampler` without the first `skip`; `len()` stays the one of `batch_sampler`."""

    def __init__(self, batch_sampler: Any, skip: int) -> None:
        _check_skip(skip)
        self.batch_sampler = batch_sampler
        self.skip = skip

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[list[Any]]:
        return itertools.islice(self.batch_sampler, self.skip, None)


class ReproducibleShuffleSampler(torch.utils.data.Sampler):
    """The samples of `sampler` in an order that follows from `seed`; every pass has another order.

    Shuffle before repeating (an endless sampler cannot be shuffled) and before skipping.
    """

    def __init__(self, sampler: Any, seed: int) -> None:
        self._sampler = sampler
        self._rng = np.random.RandomState(seed)

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        samples = list(self._sampler)
        self._rng.shuffle(samples)
        return iter(samples)


class ReproducibleShuffleBatchSampler(torch.utils.data.Sampler):
    """The batches of `batch_sampler` in an order that follows from `seed`; every pass has another order.

    The content of the batches stays as it is: shuffling the samples mixes better, where that is possible.
    """

    def __init__(self, batch_sampler: Any, seed: int) -> None:
        self._batch_sampler = batch_sampler
        self._rng = np.random.RandomState(seed)

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def __iter__(self) -> Iterator[list[Any]]:
        batches = list(self._batch_sampler)
        self._rng.shuffle(batches)
        return iter(batches)
