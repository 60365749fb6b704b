"""From lists of indices to batches of data, in order: in this process, or by torch's workers.

In this process the batch is fetched as torch does it, without torch's iterator around it. Workers draw the random
numbers of each batch from a seed of that batch, so that neither prefetching nor an interruption changes them.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol

import torch
import torch.utils.data

from detlab.pytorch.data.epoch import derive_seed, seed_process
from detlab.pytorch.data.loader import DataLoader


class Fetch:
    """A dataset and its collate function: indices in, one batch out, with the very values that torch would give.

    Args:
        dataset: Has `__getitem__`, or `__getitems__` for many at once.
        collate_fn: Makes a batch of a list of samples.
    """

    def __init__(self, dataset: Any, collate_fn: Callable[[list[Any]], Any]) -> None:
        self.dataset = dataset
        self._collate = collate_fn
        self._columns = collate_fn is torch.utils.data.default_collate and _is_columns(dataset)

    def __call__(self, indices: list[Any]) -> Any:
        """Return the batch of these samples."""
        dataset = self.dataset
        if self._columns:
            rows = torch.tensor(indices, dtype=torch.int64, device="cpu")
            return [column[rows] for column in dataset.tensors]
        if getattr(dataset, "__getitems__", None):
            return self._collate(dataset.__getitems__(indices))
        return self._collate([dataset[index] for index in indices])


def _is_columns(dataset: Any) -> bool:
    """Tell whether picking rows equals picking samples and stacking them."""
    return type(dataset) is torch.utils.data.TensorDataset and all(
        type(column) is torch.Tensor and column.layout == torch.strided and column.is_contiguous()
        for column in dataset.tensors
    )


class _WorkerDataset(torch.utils.data.Dataset):
    """What torch's workers hold: makes whole batches, each from its own seed."""

    def __init__(self, fetch: Fetch) -> None:
        self.fetch = fetch

    def __getitems__(self, job: tuple[int, list[Any]]) -> Any:
        seed, indices = job
        seed_process(seed)
        return self.fetch(indices)

    def __len__(self) -> int:
        return len(self.fetch.dataset)


def _as_it_is(batch: Any) -> Any:
    return batch


class _WorkerInit:
    """Lets `get_worker_info().dataset` be the user's own dataset, then calls the user's function."""

    def __init__(self, user: Callable[[int], None] | None) -> None:
        self._user = user

    def __call__(self, worker_id: int) -> None:
        info = torch.utils.data.get_worker_info()
        object.__setattr__(info, "dataset", info.dataset.fetch.dataset)
        if self._user is not None:
            self._user(worker_id)


class _Jobs:
    """The batch sampler of torch's loader: hands over the jobs that were set last."""

    def __init__(self) -> None:
        self.next: Iterator[Any] = iter(())

    def __iter__(self) -> Iterator[Any]:
        return self.next


class Chosen(Protocol):
    """Which batches to fetch."""

    def jobs(self) -> Iterator[tuple[int, list[Any]]]:
        """Return the number of each batch in the epoch, and its indices."""


class BatchFeed:
    """Fetches batches with the settings of a `DataLoader`.

    Args:
        loader: Dataset, collate function, workers.
        seed: Where the random numbers of the workers come from.
        rank: This rank.
    """

    def __init__(self, loader: DataLoader, seed: int, rank: int) -> None:
        self._seed = seed
        self._rank = rank
        self._fetch = Fetch(loader.dataset, loader.collate_fn)
        self._workers = loader.num_workers > 0
        self._persistent = loader.persistent_workers
        self._jobs = _Jobs()
        self._generator = torch.Generator()
        self._torch: Any = None
        if self._workers or loader.pin_memory:
            self._torch = torch.utils.data.DataLoader(
                _WorkerDataset(self._fetch) if self._workers else loader.dataset,
                batch_sampler=self._jobs,
                collate_fn=_as_it_is if self._workers else loader.collate_fn,
                worker_init_fn=_WorkerInit(loader.worker_init_fn) if self._workers else None,
                generator=self._generator,
                **loader._loading(),
            )

    def iterate(self, chosen: Chosen, epoch: int) -> Generator[tuple[list[Any], Any], None, None]:
        """Return an iterator of (indices, batch).

        Args:
            chosen: What to fetch.
            epoch: Number of the epoch.
        """
        if self._torch is not None:
            return self._iterate_torch(chosen, epoch)
        fetch = self._fetch
        return ((indices, fetch(indices)) for _, indices in chosen.jobs())

    def close(self) -> None:
        """Stop the workers."""
        if self._torch is not None:
            _shut_down(self._torch._iterator)
            self._torch = None

    def _iterate_torch(self, chosen: Chosen, epoch: int) -> Generator[tuple[list[Any], Any], None, None]:
        issued: collections.deque[list[Any]] = collections.deque()
        # torch draws a seed for the workers at iter(): from here, so that the process's numbers stay as they are.
        self._generator.manual_seed(derive_seed(self._seed, "workers", epoch, self._rank))
        self._jobs.next = self._issue(chosen, epoch, issued)
        with _cpu_default():
            iterator = iter(self._torch)
        try:
            for data in iterator:
                yield issued.popleft(), data
        finally:
            if not self._persistent:
                _shut_down(iterator)

    def _issue(self, chosen: Chosen, epoch: int, issued: collections.deque[list[Any]]) -> Iterator[Any]:
        for number, indices in chosen.jobs():
            issued.append(indices)
            yield (derive_seed(self._seed, "batch", epoch, number), indices) if self._workers else indices


def _cpu_default() -> contextlib.AbstractContextManager[Any]:
    if torch.get_default_device().type == "cpu":
        return contextlib.nullcontext()
    return torch.device("cpu")  # torch's loader draws with a CPU generator, on the default device


def _shut_down(iterator: Any) -> None:
    stop = getattr(iterator, "_shutdown_workers", None)
    if stop is not None:
        stop()
