"""The position of a trial in its data: an endless stream of batches that can save its position and resume from it."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.utils.data

from detlab.pytorch.data.epoch import (
    CutBatches,
    GivenBatches,
    batch_order,
    check_sampler,
    derive_seed,
    known_length,
    sample_order,
)
from detlab.pytorch.data.fetch import BatchFeed
from detlab.pytorch.data.loader import DataLoader
from detlab.pytorch.data.poisson import Drawn
from detlab.pytorch.data.sources import (
    EMPTY_HINT,
    TRAINING_BUILDER,
    Foreign,
    Position,
    Sampled,
    SampleSource,
    Steps,
    check_not_empty,
    is_cut,
)
from detlab.pytorch.errors import DataError

logger = logging.getLogger("detlab.pytorch")

VALIDATION_BUILDER = "build_validation_data_loader"
STATE_VERSION = 1


@dataclasses.dataclass(slots=True)
class FetchedBatch:
    """One batch of this rank.

    Attributes:
        data: What the loader made of it.
        ids: Indices of its samples in the dataset, in order; None if the loader is not ours, none of them if the batch
            is another rank's (`TrainingStream.next_weight`).
        epoch: Number of the epoch, from 0.
        batch_in_epoch: Number of the batch in the epoch, from 0, the same on all ranks.
        starts_epoch: Whether it is the first of the epoch.
        ends_epoch: Whether it is the last of the epoch.
    """

    data: Any
    ids: list[Any] | None
    epoch: int
    batch_in_epoch: int
    starts_epoch: bool
    ends_epoch: bool


class TrainingStream:
    """This rank's training batches, epoch after epoch, without end.

    All ranks take equally many batches of an epoch, and together each sample once. The order of an epoch follows
    from the seed and the epoch alone; neither choosing it nor iterating draws from the process's random numbers, but
    loading in this process (`num_workers=0`) does what the dataset does.

    A loader other than our `DataLoader` is iterated from its start for each epoch, unchanged, on every rank; if it has
    a `set_epoch`, that is called. Its `len()`, if it has one, must be right and the same on all ranks; without it, one
    batch is read ahead, to know which is the last.

    Args:
        loader: Our `DataLoader`, or any iterable of batches that can be iterated again.
        rank: This rank.
        size: Number of ranks.
        seed: The trial's. A `state` has its own, which is used instead.
        state: What `state_dict()` said, on any rank; with any number of ranks and batch size.

    Attributes:
        epoch: Epoch of the last batch, from 0.
        batch_in_epoch: Batches of this epoch that were yielded, those before a resume included.
        epoch_length: Batches of this epoch on each rank, those before a resume included; None if unknown.

    Raises:
        DataError: There is nothing to train on, or `state` is of other data.
    """

    epoch: int
    batch_in_epoch: int

    def __init__(self, loader: Any, *, rank: int, size: int, seed: int, state: Mapping[str, Any] | None = None) -> None:
        if state is not None and state.get("version") != STATE_VERSION:
            raise DataError(
                f"the checkpoint's position in the data has version {state.get('version')}, this detlab reads "
                f"version {STATE_VERSION}",
                hint="resume with the detlab that wrote it",
            )
        if state is not None and state["seed"] != seed:
            logger.info("the order of the samples follows the checkpoint's seed %s, not %s", state["seed"], seed)
            seed = state["seed"]
        self._seed = seed
        self._size = size
        self._source: SampleSource
        if isinstance(loader, DataLoader) and loader._sample_rate is not None:
            self._source = Drawn(loader, rank, size, seed)
        elif isinstance(loader, DataLoader):
            self._source = Sampled(loader, rank, size, seed)
        else:
            self._source = Foreign(loader, size, seed)
        self._batches: Steps = iter(())
        self._closed = False
        position = Position() if state is None else self._position_of(state)
        self._start_at(position)
        self._ended = position.ended
        self.epoch_length: int | None = position.batch_in_epoch
        if not position.ended:
            self._open(position)
            self._check_order(state)

    @property
    def remaining_in_epoch(self) -> int | None:
        """Batches of this epoch that are still to come; None if unknown."""
        return None if self.epoch_length is None else self.epoch_length - self.batch_in_epoch

    @property
    def next_weight(self) -> float:
        """Weight of this rank's next batch in the mean over the ranks.

        It is 1, but for the rest of an epoch which is too small for all ranks of a resumed trial: then the weights of
        those that take it are as their samples, with a mean of 1, and the others have another's batch and weight zero.
        """
        return 1.0 if self._ended else self._source.weight

    def __iter__(self) -> Iterator[FetchedBatch]:
        return self

    def __next__(self) -> FetchedBatch:
        if self._ended and not self._closed:
            self._ended = False
            self._open(Position(self.epoch + 1))
        try:
            ids, data, last = next(self._batches)
        except StopIteration:  # all that a generator says after it raised
            raise DataError("no more batches: the training data was closed, or failed before") from None
        number = self.batch_in_epoch
        self.batch_in_epoch = number + 1
        if last:
            self._ended = True
            self.epoch_length = self.batch_in_epoch
            self._stop()
        return FetchedBatch(data, ids, self.epoch, number, number == 0, last)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch that was yielded: the same on all ranks, plain values only."""
        steps = self.batch_in_epoch - self._start.batch_in_epoch
        samples, batches = self._source.consumed(steps) if steps else (self._start.samples, self._start.batches)
        order_size, order_digest = (None, None) if self._ended else self._source.order()
        return {
            "version": STATE_VERSION,
            "seed": self._seed,
            "epoch": self.epoch,
            "batch_in_epoch": self.batch_in_epoch,
            "epoch_ended": self._ended,
            "samples_in_epoch": samples,
            "batches_in_epoch": batches,
            "world_size": self._size,
            "order_size": order_size,
            "order_digest": order_digest,
            **self._source.describe(),
        }

    def close(self) -> None:
        """Stop the workers. May be called again."""
        self._closed = True
        self._stop()
        self._source.close()

    def _stop(self) -> None:
        batches, self._batches = self._batches, iter(())
        close = getattr(batches, "close", None)
        if close is not None:
            close()

    def _start_at(self, position: Position) -> None:
        self._start = position
        self.epoch = position.epoch
        self.batch_in_epoch = position.batch_in_epoch

    def _open(self, position: Position) -> None:
        steps, self._batches = self._source.open(position)
        self._start_at(position)
        self.epoch_length = None if steps is None else position.batch_in_epoch + steps

    def _position_of(self, state: Mapping[str, Any]) -> Position:
        here, there = self._source.describe()["dataset_size"], state["dataset_size"]
        if here is not None and there is not None and here != there:
            raise DataError(
                f"the checkpoint was made with a training dataset of {there} samples, this one has {here}: the "
                "position in the one means nothing in the other",
                hint=f"give {TRAINING_BUILDER}() the same data, or start a new trial from the checkpoint's weights",
            )
        return Position(
            state["epoch"],
            state["batch_in_epoch"],
            state["samples_in_epoch"],
            state["batches_in_epoch"],
            state["epoch_ended"],
        )

    def _check_order(self, state: Mapping[str, Any] | None) -> None:
        """Warn if the order of the resumed epoch is not what it was before."""
        if state is None or self.batch_in_epoch == 0 or state["order_size"] is None:
            return
        if (state["order_size"], state["order_digest"]) != self._source.order():
            logger.warning(
                "epoch %d has another order of samples than before the interruption: some are used twice, some not at "
                "all. A sampler's order must follow from random draws, which are seeded, and set_epoch() alone",
                self.epoch,
            )


class ValidationShare:
    """One rank's validation batches, the same each time: whole batches of the loader, every `size`-th.

    Attributes other than these are the loader's own (`dataset`, `batch_size`, …).

    Args:
        loader: Our `DataLoader`.
        rank: This rank.
        size: Number of ranks.

    Raises:
        DataError: The loader has no batch.
    """

    def __init__(self, loader: DataLoader, rank: int, size: int) -> None:
        check_not_empty(loader, VALIDATION_BUILDER)
        check_sampler(loader.batch_sampler, size)
        self._loader = loader
        self._feed = BatchFeed(loader, derive_seed("validation"), rank)
        sampler = loader.batch_sampler
        if is_cut(loader):
            order = sample_order(sampler.sampler, 0, 0)
            self._batches: CutBatches | GivenBatches = CutBatches(order, sampler.batch_size, sampler.drop_last)
            total = len(self._batches) if sampler.drop_last else self._batches.end()[1]
        else:
            self._batches = GivenBatches(batch_order(sampler, 0, 0), drop_last=False)
            total = len(self._batches)
        if total == 0:
            raise DataError(
                f"{VALIDATION_BUILDER}() returned a DataLoader without a batch: {self._batches.order_size} samples, "
                f"batch_size={loader.batch_size}, drop_last={loader.drop_last}",
                hint="leave drop_last out, or make the batches smaller",
            )
        self._numbers = range(rank, total, size)

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Any]:
        with contextlib.closing(self._feed.iterate(self, 0)) as batches:
            for _, data in batches:
                yield data

    def jobs(self) -> Iterator[tuple[int, list[Any]]]:
        """Return the number of each batch, and its indices."""
        return ((number, self._batches.batch(number)) for number in self._numbers)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)

    def close(self) -> None:
        """Stop the workers."""
        self._feed.close()


def validation_loader(loader: Any, *, rank: int, size: int) -> Any:
    """Return an iterable, with `len()` if `loader` has it, of the batches that this rank validates on.

    Args:
        loader: Our `DataLoader`, whose whole batches are dealt out in turn, so that a rank may get one less than
            another, or none; or any other iterable, which is returned as it is.
        rank: This rank.
        size: Number of ranks.

    Raises:
        DataError: There is nothing to validate on.
    """
    if isinstance(loader, DataLoader):
        return ValidationShare(loader, rank, size)
    guess = isinstance(getattr(loader, "dataset", None), torch.utils.data.IterableDataset)
    if not guess and known_length(loader) == 0:
        kind = type(loader).__name__
        raise DataError(f"{VALIDATION_BUILDER}() returned a {kind} without a batch: its len() is 0", hint=EMPTY_HINT)
    return loader
