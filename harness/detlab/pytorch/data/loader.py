"""`DataLoader`, and operations on a batch of any structure: move it to the device, count its samples."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.utils.data

from detlab.pytorch import samplers
from detlab.pytorch.errors import DataError, UncountableBatch

logger = logging.getLogger("detlab.pytorch")

# What a data loader yields: a tensor, or tensors in dictionaries, lists and tuples.
TorchData: TypeAlias = Any


class DataLoader:
    """A dataset and how to draw batches from it; the trainer repeats, shards, skips and shuffles.

    All arguments mean what they mean for `torch.utils.data.DataLoader`, whose documentation says more, with these
    differences: `batch_size` is that of one slot; in training, the order of an epoch follows from the trial's seed and
    the epoch alone, so `generator` is only used by `get_data_loader()` and by iterating this object by hand.

    Args:
        dataset: Has `__getitem__` and `__len__`; an `IterableDataset` is refused.
        batch_size: Samples per batch and slot.
        shuffle: Draw the samples of every epoch in another order.
        sampler: Yields the indices of one epoch, instead of `shuffle`. It must yield the same on all ranks; its random
            draws are seeded, and `set_epoch(epoch)` is called if it has it.
        batch_sampler: Yields lists of indices, instead of `batch_size`, `shuffle`, `sampler` and `drop_last`.
        num_workers: Processes that load ahead; 0 loads in the training process.
        collate_fn: Makes a batch of a list of samples.
        pin_memory: Copy batches to page-locked memory, from which they move to a GPU without waiting.
        drop_last: Leave out the samples of an epoch that do not fill a whole batch on every rank.
        timeout: Seconds to wait for a worker's batch; 0 waits without limit.
        worker_init_fn: Called in every worker with its number.
        multiprocessing_context: How workers start: `fork`, `spawn`, `forkserver`, or a context.
        generator: Source of random numbers outside the trainer.
        prefetch_factor: Batches that each worker loads ahead; 2 if there are workers.
        persistent_workers: Keep the workers, and their copies of the dataset, over all epochs.

    Raises:
        DataError: Arguments exclude each other or have impossible values; all of them are listed.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
    ) -> None:
        problems = [
            *_sampling_problems(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last),
            *_worker_problems(num_workers, timeout, multiprocessing_context, prefetch_factor, persistent_workers),
        ]
        if problems:
            raise DataError.of("this DataLoader cannot work:", problems)
        self.dataset = dataset
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.prefetch_factor = 2 if prefetch_factor is None and num_workers > 0 else prefetch_factor
        self.persistent_workers = persistent_workers
        self.collate_fn = torch.utils.data.default_collate if collate_fn is None else collate_fn
        self.drop_last = drop_last
        self._sample_rate: float | None = None  # of the trainer's copy at the level dp
        if batch_sampler is None:
            self.sampler = _default_sampler(dataset, shuffle, generator) if sampler is None else sampler
            self.batch_size = batch_size
            self.batch_sampler = torch.utils.data.BatchSampler(self.sampler, batch_size, drop_last)
        else:
            self.sampler = torch.utils.data.SequentialSampler(dataset)
            self.batch_size = None
            self.batch_sampler = batch_sampler

    def get_data_loader(
        self, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0
    ) -> torch.utils.data.DataLoader:
        """Return a plain torch loader over the same data.

        Args:
            repeat: Yield batches without end.
            skip: Batches of this rank to leave out at the beginning.
            num_replicas: Number of ranks; each gets every `num_replicas`-th batch.
            rank: This rank.
        """
        return torch.utils.data.DataLoader(
            self.dataset,
            batch_sampler=adapt_batch_sampler(self.batch_sampler, repeat, skip, num_replicas, rank),
            collate_fn=self.collate_fn,
            worker_init_fn=self.worker_init_fn,
            generator=self.generator,
            **self._loading(),
        )

    def _loading(self) -> dict[str, Any]:
        """Return torch's arguments on how to load, which do not touch what is loaded."""
        return {
            "num_workers": self.num_workers,
            "pin_memory": self.pin_memory,
            "timeout": self.timeout,
            "multiprocessing_context": self.multiprocessing_context,
            "prefetch_factor": self.prefetch_factor,
            "persistent_workers": self.persistent_workers,
        }

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get_data_loader())

    def __len__(self) -> int:
        return len(self.batch_sampler)


def _sampling_problems(
    dataset: Any, batch_size: Any, shuffle: bool, sampler: Any, batch_sampler: Any, drop_last: bool
) -> Iterator[str]:
    if isinstance(dataset, torch.utils.data.IterableDataset):
        yield (
            f"dataset: {type(dataset).__name__} is an IterableDataset, whose samples cannot be chosen by number, so it "
            "cannot be sharded, shuffled or resumed: give it to torch.utils.data.DataLoader and call "
            "context.experimental.disable_dataset_reproducibility_checks()"
        )
    elif sampler is None and batch_sampler is None and not hasattr(dataset, "__len__"):
        yield f"dataset: {type(dataset).__name__} has no len(): define __len__, or give a sampler"
    if shuffle and sampler is not None:
        yield "shuffle and sampler: the sampler alone decides on the order; leave one of them out"
    if batch_sampler is not None:
        taken = {
            "batch_size": batch_size != 1,
            "shuffle": shuffle,
            "sampler": sampler is not None,
            "drop_last": drop_last,
        }
        names = [name for name, given in taken.items() if given]
        if names:
            yield f"batch_sampler with {', '.join(names)}: the batch sampler alone decides on the batches"
    elif batch_size is None:
        yield "batch_size is None: give the number of samples per batch, or a batch_sampler"
    elif not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
        yield f"batch_size is {batch_size!r}, it must be a whole number, at least 1"


def _worker_problems(
    num_workers: int,
    timeout: float,
    multiprocessing_context: Any,
    prefetch_factor: int | None,
    persistent_workers: bool,
) -> Iterator[str]:
    if num_workers < 0:
        yield f"num_workers is {num_workers}, it must not be negative; 0 loads in the training process"
    if timeout < 0:
        yield f"timeout is {timeout}, it must not be negative"
    if prefetch_factor is not None and prefetch_factor < 1:
        yield f"prefetch_factor is {prefetch_factor}, it must be at least 1"
    if num_workers != 0:
        return
    needing = {
        "timeout": timeout > 0,
        "multiprocessing_context": multiprocessing_context is not None,
        "prefetch_factor": prefetch_factor is not None,
        "persistent_workers": persistent_workers,
    }
    names = [name for name, given in needing.items() if given]
    if names:
        yield f"{', '.join(names)}: only for loading with workers; leave it out, or set num_workers"


def _default_sampler(dataset: Any, shuffle: bool, generator: Any) -> Any:
    # torch refuses to shuffle an empty dataset without saying which; the trainer names the method that built it.
    if shuffle and len(dataset) > 0:
        return torch.utils.data.RandomSampler(dataset, generator=generator)
    return torch.utils.data.SequentialSampler(dataset)


def adapt_batch_sampler(
    batch_sampler: Any, repeat: bool = False, skip: int = 0, num_replicas: int = 1, rank: int = 0
) -> Any:
    """Return `batch_sampler`, repeated without end, sharded, and without the first `skip` batches of this rank."""
    if repeat:
        batch_sampler = samplers.RepeatBatchSampler(batch_sampler)
    if num_replicas > 1:
        batch_sampler = samplers.DistributedBatchSampler(batch_sampler, num_replicas, rank)
    if skip > 0:
        batch_sampler = samplers.SkipBatchSampler(batch_sampler, skip)
    return batch_sampler


def dataset_repro_warning(fn: str, data_obj: Any) -> str:
    """Return the message for a method `fn` that returned a loader other than our `DataLoader`."""
    kind = type(data_obj)
    return (
        f"{fn}() returned a {kind.__module__}.{kind.__qualname__}, which the trainer cannot shard over ranks or resume "
        "exactly: return a detlab.pytorch.DataLoader (it takes the same arguments as torch's), or, if sharding and "
        "resuming are the trial's own, call context.experimental.disable_dataset_reproducibility_checks() in __init__"
    )


def data_length(data: Any) -> int:
    """Return the number of samples in a batch: the length of the first tensor or array found in it.

    Raises:
        UncountableBatch: The batch contains no tensor or array; define `get_batch_length` in the trial. As in
            Determined, a `TypeError`, and a `ValueError`.
    """
    length = _first_length(data)
    if length is None:
        raise UncountableBatch(
            f"cannot count the samples of a batch of type {type(data).__name__}: it holds no tensor with a dimension",
            hint="define get_batch_length(self, batch) in the trial",
        )
    return length


def _first_length(data: Any) -> int | None:
    if isinstance(data, (torch.Tensor, np.ndarray)):
        return len(data) if data.ndim > 0 else None
    if isinstance(data, torch.nn.utils.rnn.PackedSequence):
        return int(data.batch_sizes[0])
    if isinstance(data, Mapping):
        data = data.values()
    elif not isinstance(data, (list, tuple)):
        return None
    return next((length for length in map(_first_length, data) if length is not None), None)


_SEQUENCES = (list, tuple)


def to_device(data: TorchData, device: Any, warned_types: set[type] | None = None) -> TorchData:
    """Return a batch with all its tensors on `device`; what is there already is not copied.

    Dictionaries, lists and tuples (named ones too) are searched, NumPy arrays become tensors, and anything else that
    has a `to` method is moved with it. The rest, such as text and numbers, is passed on with one warning for each
    type. If nothing had to move, `data` itself is returned.

    Args:
        data: The batch.
        device: `torch.device`, or its name.
        warned_types: Types already warned about; pass the same set to each call to be warned only once.
    """
    if type(device) is not torch.device:
        device = torch.device(device)
    if type(data) in _SEQUENCES:  # most batches, so no generator: it would take as long as all the rest
        for item in data:
            if type(item) is not torch.Tensor or item.device != device:
                break
        else:
            return data
    return _moved(data, device, set() if warned_types is None else warned_types)


def _moved(data: Any, device: torch.device, warned: set[type]) -> Any:
    kind = type(data)
    if isinstance(data, torch.Tensor):
        # A copy to a GPU is queued behind what reads the tensor there; a copy to the host would be read too early.
        return data if data.device == device else data.to(device, non_blocking=device.type == "cuda")
    if kind is list or kind is tuple:
        items = [_moved(item, device, warned) for item in data]
        return data if all(map(_same, items, data)) else kind(items)
    if kind is dict:
        moved = {key: _moved(value, device, warned) for key, value in data.items()}
        return data if all(map(_same, moved.values(), data.values())) else moved
    if isinstance(data, np.ndarray):
        return _from_array(data, device, warned)
    if callable(getattr(data, "to", None)):
        return data.to(device)
    if isinstance(data, (dict, list, tuple)):
        return _moved_subclass(data, device, warned)
    _warn_once(kind, device, warned)
    return data


def _same(left: Any, right: Any) -> bool:
    return left is right


def _moved_subclass(data: Any, device: torch.device, warned: set[type]) -> Any:
    if isinstance(data, dict):
        clone = copy.copy(data)
        clone.update({key: _moved(value, device, warned) for key, value in data.items()})
        return clone
    items = [_moved(item, device, warned) for item in data]
    return type(data)(*items) if hasattr(data, "_fields") else type(data)(items)


def _from_array(data: Any, device: torch.device, warned: set[type]) -> Any:
    try:
        return torch.from_numpy(data if data.flags.writeable else data.copy()).to(device)
    except TypeError:  # strings, objects: no tensor has such elements
        _warn_once(type(data), device, warned)
        return data


def _warn_once(kind: type, device: torch.device, warned: set[type]) -> None:
    if kind not in warned:
        warned.add(kind)
        logger.warning(
            "not able to move data of type %s.%s to %s, it is passed on as it is; a method to(device) would be called",
            kind.__module__,
            kind.__qualname__,
            device,
        )
