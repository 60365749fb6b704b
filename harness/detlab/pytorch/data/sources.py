"""Where the batches of an epoch come from: our `DataLoader`, or any other iterable.

`Sampled` chooses the samples, so it can skip consumed samples without reading them, and split the rest again for
another number of ranks. `Foreign` can only read an iterable again up to its position.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

import torch
import torch.utils.data

from detlab.pytorch.data.epoch import (
    CutBatches,
    GivenBatches,
    Share,
    batch_order,
    check_sampler,
    derive_seed,
    forked_rng,
    known_length,
    sample_order,
)
from detlab.pytorch.data.fetch import BatchFeed
from detlab.pytorch.data.loader import DataLoader
from detlab.pytorch.errors import DataError

logger = logging.getLogger("detlab.pytorch")

TRAINING_BUILDER = "build_training_data_loader"
EMPTY_HINT = "is the data where the dataset expects it?"

# The batches of one rank: their ids, the batch, whether it is the last of the epoch.
Steps: TypeAlias = Iterator[tuple[list[Any] | None, Any, bool]]


@dataclasses.dataclass(slots=True)
class Position:
    """How far an epoch is.

    Attributes:
        epoch: Its number, from 0.
        batch_in_epoch: Batches that each rank has taken.
        samples: Samples that all ranks together have taken; None if unknown.
        batches: Batches that all ranks together have taken.
        ended: Whether that was all of the epoch.
    """

    epoch: int = 0
    batch_in_epoch: int = 0
    samples: int | None = 0
    batches: int = 0
    ended: bool = False


class SampleSource(Protocol):
    """What a stream reads."""

    @property
    def weight(self) -> float:
        """Weight of this rank in the next step of the opened epoch: 1, but where not every rank has samples."""

    def open(self, position: Position) -> tuple[int | None, Steps]:
        """Return how many batches of the epoch are left for this rank, if that is known, and the batches."""

    def consumed(self, steps: int) -> tuple[int | None, int]:
        """Return the samples and batches that all ranks have taken of the epoch, `steps` after it was opened."""

    def describe(self) -> dict[str, Any]:
        """Return what the state tells of the data: `batch_size`, `dataset_size`, None where unknown."""

    def order(self) -> tuple[int | None, int | None]:
        """Return size and checksum of the order of the opened epoch, None where unknown."""

    def close(self) -> None:
        """Stop workers."""


def is_cut(loader: DataLoader) -> bool:
    """Tell whether the batches are samples cut by `batch_size`, not a batch sampler's own."""
    return type(loader.batch_sampler) is torch.utils.data.BatchSampler


def check_not_empty(loader: DataLoader, builder: str) -> None:
    """Refuse a dataset without samples.

    Raises:
        DataError: The dataset is empty; the message names the method that built it.
    """
    if known_length(loader.dataset) == 0:
        kind = type(loader.dataset).__name__
        raise DataError(
            f"{builder}() returned a DataLoader over a {kind} without samples: its len() is 0", hint=EMPTY_HINT
        )


class Sampled:
    """Our loader, dealt out to ranks.

    Args:
        loader: The loader.
        rank: This rank.
        size: Number of ranks.
        seed: What the order of the epochs follows from.
    """

    def __init__(self, loader: DataLoader, rank: int, size: int, seed: int) -> None:
        check_not_empty(loader, TRAINING_BUILDER)
        check_sampler(loader.batch_sampler, size)
        self._loader = loader
        self._rank = rank
        self._size = size
        self._seed = seed
        self._feed = BatchFeed(loader, seed, rank)
        self._share: Share | None = None
        self._order: tuple[int | None, int | None] | None = None

    @property
    def weight(self) -> float:
        """Weight of this rank in the next step of the opened epoch; zero if its batch is another rank's."""
        return 1.0 if self._share is None else self._share.weight

    def open(self, position: Position) -> tuple[int, Steps]:
        """Choose the order of an epoch, and this rank's share of what is left of it."""
        share = Share(self._rest(position), self._rank, self._size)
        if share.steps == 0:
            raise self._no_step(share, position)
        self._share, self._order = share, None
        return share.steps, self._iterate(share, position.epoch)

    def consumed(self, steps: int) -> tuple[int, int]:
        """Return the samples and batches that all ranks have taken of the epoch."""
        assert self._share is not None
        return self._share.position(steps)

    def describe(self) -> dict[str, Any]:
        """Return `batch_size` and `dataset_size`, None where unknown."""
        return {
            "batch_size": self._loader.batch_sampler.batch_size if is_cut(self._loader) else None,
            "dataset_size": known_length(self._loader.dataset),
        }

    def order(self) -> tuple[int | None, int | None]:
        """Return size and checksum of the order of the opened epoch."""
        if self._order is None:
            assert self._share is not None
            self._order = self._share.batches.order_size, self._share.batches.digest()
        return self._order

    def close(self) -> None:
        """Stop workers."""
        self._feed.close()

    def _rest(self, position: Position) -> CutBatches | GivenBatches:
        sampler = self._loader.batch_sampler
        if not is_cut(self._loader):
            given = batch_order(sampler, self._seed, position.epoch)
            return GivenBatches(given, bool(getattr(sampler, "drop_last", False)), consumed=position.batches)
        if position.samples is None:
            raise DataError(
                "the checkpoint was made in the middle of an epoch with a loader other than detlab.pytorch.DataLoader: "
                "which samples of the epoch are consumed is not known",
                hint=f"let {TRAINING_BUILDER}() return the loader that it returned then, at least for this epoch",
            )
        order = sample_order(sampler.sampler, self._seed, position.epoch)
        return CutBatches(
            order, sampler.batch_size, sampler.drop_last, samples=position.samples, batches=position.batches
        )

    def _iterate(self, share: Share, epoch: int) -> Steps:
        left = share.steps
        with contextlib.closing(self._feed.iterate(share, epoch)) as batches:
            if share.weight == 0:  # the one batch is another rank's: this one takes none of its samples
                for _, data in batches:
                    yield [], data, True
                return
            for ids, data in batches:
                left -= 1
                yield ids, data, left == 0

    def _no_step(self, share: Share, position: Position) -> DataError:
        samples = share.batches.order_size
        if position.batch_in_epoch > 0:
            return DataError(
                f"the checkpoint was made after {position.batches} batches ({position.samples} samples) of epoch "
                f"{position.epoch}, but the sampler now gives the epoch no more than that ({samples} samples)",
                hint="give the DataLoader the sampler that it had",
            )
        cut = f"batches of {self._loader.batch_sampler.batch_size}" if is_cut(self._loader) else "its own batches"
        why = " and drop_last=True" if share.batches.drop_last else ""
        return DataError(
            f"an epoch has no step: {TRAINING_BUILDER}() gives {samples} samples in {cut}, for {self._size} ranks{why}",
            hint="every rank needs a sample, with drop_last a whole batch: use fewer slots, smaller batches, more data",
        )


class Foreign:
    """An iterable of batches that is read again from its start for each epoch, as it is.

    Args:
        loader: The iterable.
        size: Number of ranks, each of which has its own.
        seed: What torch's samplers draw from when an iteration begins.
    """

    weight = 1.0

    def __init__(self, loader: Any, size: int, seed: int) -> None:
        self._loader = loader
        self._size = size
        self._seed = seed
        self._skipped = 0
        dataset = getattr(loader, "dataset", None)
        # How many batches torch makes of an IterableDataset is only a guess.
        guess = isinstance(dataset, torch.utils.data.IterableDataset)
        self._length = None if guess else known_length(loader)
        self._dataset_size = None if guess or dataset is None else known_length(dataset)
        if self._length == 0 or self._dataset_size == 0:
            raise self._empty(0)

    def open(self, position: Position) -> tuple[int | None, Steps]:
        """Begin an iteration; set `position.batch_in_epoch` to the batches to skip, for any number of ranks."""
        skip = position.batches // self._size
        position.batch_in_epoch = self._skipped = skip
        left = None if self._length is None else self._length - skip
        if left is not None and left <= 0:
            raise self._too_short(self._length or 0)
        return left, self._iterate(position.epoch, skip)

    def consumed(self, steps: int) -> tuple[None, int]:
        """Return the batches that all ranks have taken of the epoch; the samples are unknown."""
        return None, (self._skipped + steps) * self._size

    def describe(self) -> dict[str, Any]:
        """Return `batch_size` and `dataset_size`, None where unknown."""
        batch_size = getattr(self._loader, "batch_size", None)
        return {
            "batch_size": batch_size if isinstance(batch_size, int) else None,
            "dataset_size": self._dataset_size,
        }

    def order(self) -> tuple[None, None]:
        """Return that the order is unknown."""
        return None, None

    def close(self) -> None:
        """Do nothing: its workers end with its iterator."""

    def _iterate(self, epoch: int, skip: int) -> Steps:
        """Yield the batches of an epoch after the first `skip`.

        What torch's samplers draw when an iteration begins, and what is read only to be skipped, comes from a seed of
        the epoch: the process's random numbers stay where the checkpoint put them.
        """
        ahead, done = self._length is None, skip
        held: tuple[Any] | None = None
        with forked_rng(derive_seed(self._seed, "foreign", epoch)):
            batches = self._begin(epoch)
            self._skip(batches, epoch)
            # Read ahead, this batch was already loaded when the checkpoint was made: its draws are in the past.
            if ahead or skip == 0:
                held = self._read(batches, done, epoch)
        while True:
            batch = held or self._read(batches, done, epoch)
            done += 1
            held = _following(batches) if ahead else None
            last = held is None if ahead else done == self._length
            yield None, batch[0], last
            if last:
                return

    def _begin(self, epoch: int) -> Iterator[Any]:
        loader = self._loader
        batch_sampler = getattr(loader, "batch_sampler", None)
        parts = [loader, getattr(loader, "dataset", None), getattr(loader, "sampler", None)]
        parts += [batch_sampler, getattr(batch_sampler, "sampler", None)]
        for part in {id(part): part for part in parts}.values():
            if callable(getattr(part, "set_epoch", None)):
                part.set_epoch(epoch)
        return iter(loader)

    def _skip(self, batches: Iterator[Any], epoch: int) -> None:
        if self._skipped == 0:
            return
        logger.info(
            "reading %d batches of epoch %d again to get to where the checkpoint was made; a detlab.pytorch.DataLoader "
            "would leave them out unread",
            self._skipped,
            epoch,
        )
        for number in range(self._skipped):
            self._read(batches, number, epoch)

    def _read(self, batches: Iterator[Any], done: int, epoch: int) -> tuple[Any]:
        batch = _following(batches)
        if batch is None:
            raise self._empty(epoch) if done == 0 else self._too_short(done)
        return batch

    def _empty(self, epoch: int) -> DataError:
        hint = "is it a generator? Return an object that can be iterated once for each epoch" if epoch else EMPTY_HINT
        kind = type(self._loader).__name__
        return DataError(f"{TRAINING_BUILDER}() returned a {kind} that gives no batch in epoch {epoch}", hint=hint)

    def _too_short(self, done: int) -> DataError:
        promised = "it has no len()" if self._length is None else f"its len() is {self._length}"
        resumed = f", and {self._skipped} were taken before the checkpoint" if self._skipped else ""
        return DataError(
            f"{TRAINING_BUILDER}() returned a {type(self._loader).__name__} that has no batch after {done}: "
            f"{promised}{resumed}",
            hint="len() must be the number of batches of every epoch on this rank; leave __len__ out if that varies",
        )


def _following(batches: Iterator[Any]) -> tuple[Any] | None:
    try:
        return (next(batches),)
    except StopIteration:
        return None
