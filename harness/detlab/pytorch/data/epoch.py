"""The order of an epoch, and each rank's share of it: functions of (seed, epoch) and of counts alone.

Nothing here changes the random numbers of the process: what is drawn is drawn from generators that are seeded for
the purpose and put back afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import operator
import random
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
import torch.utils.data

from detlab.pytorch import samplers
from detlab.pytorch.errors import DataError

_SHARDING = (
    torch.utils.data.distributed.DistributedSampler,
    samplers.DistributedSampler,
    samplers.DistributedBatchSampler,
)
# The indices of an epoch: an array, unless they are all in turn, or not integers.
Order: TypeAlias = "range | list[Any] | np.ndarray[Any, Any]"

_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


# --- random numbers


def derive_seed(*parts: int | str) -> int:
    """Return a seed of 63 bits that follows from `parts`; other parts give an unrelated one."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_process(seed: int) -> None:
    """Seed torch (CPU), NumPy and `random` in this process."""
    # Not torch.manual_seed: where no GPU is in use yet it queues the call for each, and the queue only grows.
    torch.default_generator.manual_seed(seed)
    np.random.seed(_words(seed))
    random.seed(seed)


def _words(seed: int) -> list[int]:
    return [seed & 0xFFFFFFFF, seed >> 32]


@contextlib.contextmanager
def forked_rng(seed: int) -> Iterator[None]:
    """Run the block with the process's random numbers seeded; restore their state afterwards."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    seed_process(seed)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


@contextlib.contextmanager
def _seeded(generator: Any, seed: int) -> Iterator[None]:
    if isinstance(generator, torch.Generator):
        state = generator.get_state()
        generator.manual_seed(seed)
        restore = generator.set_state
    elif isinstance(generator, random.Random):
        state = generator.getstate()
        generator.seed(seed)
        restore = generator.setstate
    elif isinstance(generator, np.random.RandomState):
        state = generator.get_state()
        generator.seed(_words(seed))
        restore = generator.set_state
    else:
        bits = generator.bit_generator
        state = bits.state
        bits.state = type(bits)(seed).state
        restore = partial(setattr, bits, "state")

    try:
        yield
    finally:
        restore(state)


# --- the order


def _parts(sampler: Any) -> list[Any]:
    """Return a sampler, the samplers that it is made of, and their generators."""
    found: dict[int, Any] = {}
    queue = [sampler]
    while queue:
        part = queue.pop()
        if id(part) in found:
            continue
        found[id(part)] = part
        if isinstance(part, _GENERATORS):
            continue
        for value in getattr(part, "__dict__", {}).values():
            items = value if isinstance(value, (list, tuple)) and len(value) < 1000 else [value]
            queue += [item for item in items if isinstance(item, (*_GENERATORS, torch.utils.data.Sampler))]
    return list(found.values())


def check_sampler(sampler: Any, size: int) -> None:
    """Refuse a sampler that deals out the samples to ranks itself: the trainer would do it a second time.

    Raises:
        DataError: The sampler does so, and there is more than one rank.
    """
    if size > 1:
        sharding = [type(part).__name__ for part in _parts(sampler) if isinstance(part, _SHARDING)]
        if sharding:
            raise DataError(
                f"the DataLoader's sampler holds a {sharding[0]}, but the trainer itself deals out the samples to its "
                f"{size} ranks: each would see only part of its part",
                hint="give the DataLoader the sampler without it, or shuffle=True",
            )


def known_length(items: Any) -> int | None:
    """Return `len(items)`; None if it has none."""
    try:
        return len(items)
    except (TypeError, NotImplementedError):
        return None


def _drawn(sampler: Any, seed: int, epoch: int) -> list[Any]:
    """Return everything that a sampler yields in an epoch."""
    length = known_length(sampler)
    limit = None if length is None else 2 * length + 1000
    with forked_rng(derive_seed(seed, "order", epoch)), contextlib.ExitStack() as stack:
        for index, part in enumerate(_parts(sampler)):
            if isinstance(part, _GENERATORS):
                stack.enter_context(_seeded(part, derive_seed(seed, "order", epoch, index)))
            elif callable(getattr(part, "set_epoch", None)):
                part.set_epoch(epoch)
        items = list(itertools.islice(sampler, limit))
    if limit is not None and len(items) == limit:
        raise DataError(
            f"the sampler {type(sampler).__name__} has the length {length} and yields {limit} items or more",
            hint="does it repeat? The trainer repeats epochs itself; give it a sampler of one epoch",
        )
    return items


def _numbers(items: Iterable[Any]) -> list[Any]:
    """Return indices as plain integers where they are integers of any kind, else as they are."""
    items = list(items)
    try:
        return [operator.index(item) for item in items]
    except TypeError:
        return items


def sample_order(sampler: Any, seed: int, epoch: int) -> Order:
    """Return the indices of an epoch, in order: a range, an array of int64, or a list if they are not integers."""
    if type(sampler) is torch.utils.data.SequentialSampler:
        return range(len(sampler))
    if type(sampler) is torch.utils.data.RandomSampler and not sampler.replacement:
        count = len(sampler.data_source)
        if count == len(sampler):
            generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
            order: Order = torch.randperm(count, generator=generator, device="cpu").numpy()
            return order
    return _compact(_numbers(_drawn(sampler, seed, epoch)))


def _compact(items: list[Any]) -> Order:
    """Return a list of integers as an array, any other list as it is."""
    try:
        if all(type(item) is int for item in items):
            return np.array(items, dtype=np.int64)
    except OverflowError:
        pass
    return items


def batch_order(batch_sampler: Any, seed: int, epoch: int) -> list[list[Any]]:
    """Return the batches of an epoch that a batch sampler gives, in order, as lists of indices."""
    return [_numbers(batch) for batch in _drawn(batch_sampler, seed, epoch)]


# --- batches of an epoch, from some point on


class Batches(Protocol):
    """The batches of (the rest of) an epoch, before they are dealt out; counts are of this rest."""

    drop_last: bool
    resumed: bool
    order_size: int

    def __len__(self) -> int:
        """Return the number of whole batches."""

    def batch(self, index: int) -> list[Any]:
        """Return a whole batch."""

    def beyond(self, count: int) -> list[Any]:
        """Return all samples after the first `count` whole batches."""

    def position(self, count: int) -> tuple[int, int]:
        """Return the samples and batches of the epoch that are consumed after `count` whole batches."""

    def end(self) -> tuple[int, int]:
        """Return the samples and batches of the whole epoch."""

    def digest(self) -> int | None:
        """Return a checksum of the order; None if there is only one possible."""


class CutBatches:
    """Samples in order, cut into batches of one size.

    Args:
        order: Indices of the epoch.
        batch_size: Samples per batch.
        drop_last: Whether an incomplete end is left out.
        samples: How many samples are consumed already.
        batches: In how many batches.
    """

    def __init__(self, order: Order, batch_size: int, drop_last: bool, *, samples: int = 0, batches: int = 0) -> None:
        self.drop_last = drop_last
        self.resumed = samples > 0
        self.order_size = len(order)
        self._order = order
        self._batch_size = batch_size
        self._samples = samples
        self._batches = batches

    def __len__(self) -> int:
        return max(0, self.order_size - self._samples) // self._batch_size

    def batch(self, index: int) -> list[Any]:
        """Return a whole batch."""
        start = self._samples + index * self._batch_size
        return _as_list(self._order[start : start + self._batch_size])

    def beyond(self, count: int) -> list[Any]:
        """Return all samples after the first `count` whole batches."""
        return _as_list(self._order[self._samples + count * self._batch_size :])

    def position(self, count: int) -> tuple[int, int]:
        """Return the samples and batches of the epoch that are consumed after `count` whole batches."""
        return self._samples + count * self._batch_size, self._batches + count

    def end(self) -> tuple[int, int]:
        """Return the samples and batches of the whole epoch."""
        rest = self.order_size - self._samples
        return self.order_size, self._batches + (rest + self._batch_size - 1) // self._batch_size

    def digest(self) -> int | None:
        """Return a checksum of the order; None if there is only one possible."""
        if isinstance(self._order, range):
            return None
        return _checksum(self._order)


def _checksum(order: Order) -> int:
    return zlib.crc32(order.data if isinstance(order, np.ndarray) else repr(order).encode())


def _as_list(part: Any) -> list[Any]:
    return part.tolist() if isinstance(part, np.ndarray) else list(part)


class GivenBatches:
    """Batches as a batch sampler gave them.

    Args:
        batches: All batches of the epoch.
        drop_last: Whether the end that does not give every rank a batch is left out.
        consumed: How many batches are consumed already.
    """

    def __init__(self, batches: list[list[Any]], drop_last: bool, *, consumed: int = 0) -> None:
        self.drop_last = drop_last
        self.resumed = consumed > 0
        self._given = batches
        self._consumed = consumed
        self._samples = list(itertools.accumulate(map(len, batches), initial=0))
        self.order_size = self._samples[-1]

    def __len__(self) -> int:
        return max(0, len(self._given) - self._consumed)

    def batch(self, index: int) -> list[Any]:
        """Return a whole batch."""
        return list(self._given[self._consumed + index])

    def beyond(self, count: int) -> list[Any]:
        """Return all samples after the first `count` batches."""
        return list(itertools.chain.from_iterable(self._given[self._consumed + count :]))

    def position(self, count: int) -> tuple[int, int]:
        """Return the samples and batches of the epoch that are consumed after `count` batches."""
        return self._samples[self._consumed + count], self._consumed + count

    def end(self) -> tuple[int, int]:
        """Return the samples and batches of the whole epoch."""
        return self.order_size, len(self._given)

    def digest(self) -> int | None:
        """Return a checksum of the order."""
        return _checksum(_compact(list(itertools.chain.from_iterable(self._given))))


# --- one rank's share


class Share:
    """One rank's batches of (the rest of) an epoch: equally many on all ranks, together each sample once.

    Batch k goes to rank k mod `size`. What is left when that gives no further rank-complete round is pooled: dealt out
    evenly, in runs that differ by at most one sample; with fewer than two samples for each rank (a batch of one has no
    variance for batch norm), added to the batches of the last round; with `drop_last`, left out.

    A rest of an epoch, which another number of ranks began, always has a step, even under `drop_last`. If it has no
    round and fewer than two samples for each rank, some ranks take it, weighted by their samples, and the others lend
    their hands: they have the batch of one that takes, with weight zero, so that all ranks do the same work in step.

    Args:
        batches: What to deal out.
        rank: This rank.
        size: Number of ranks.

    Attributes:
        steps: Batches of each rank.
        weight: Of this rank's last batch in the mean over the ranks: 1, but for such a rest, which is one step. With
            zero, the batch is another rank's.
    """

    def __init__(self, batches: Batches, rank: int, size: int) -> None:
        self.batches = batches
        self.rank = rank
        self.size = size
        self.weight = 1.0
        self._place = rank  # of the rank whose batches these are
        rounds = len(batches) // size
        self._last: list[Any] | None = None
        self._dropped = batches.drop_last and (rounds > 0 or not batches.resumed)
        pool = [] if self._dropped else batches.beyond(rounds * size)
        two_each = size > 1 and (rounds > 0 or batches.resumed)
        if len(pool) >= (2 * size if two_each else size):
            self.steps = rounds + 1
            self._last = even_part(pool, rank, size)
        elif pool and rounds:
            self.steps = rounds
            self._last = batches.batch((rounds - 1) * size + rank) + pool[rank::size]
        elif pool and batches.resumed:
            self.steps = 1
            self._take_partly(pool)
        else:
            self.steps = rounds

    def _take_partly(self, pool: list[Any]) -> None:
        """Deal out a rest to as many ranks as it has batches, with two samples each or more if batches have more."""
        batches = self.batches.end()[1] - self.batches.position(0)[1]
        takers = len(pool) if batches >= len(pool) else min(batches, len(pool) // 2)
        self._place = self.rank % takers
        self._last = even_part(pool, self._place, takers)
        self.weight = self.size * len(self._last) / len(pool) if self.rank < takers else 0.0

    def batch(self, step: int) -> list[Any]:
        """Return the indices of this rank's batch."""
        if self._last is not None and step == self.steps - 1:
            return list(self._last)
        return self.batches.batch(step * self.size + self._place)

    def jobs(self) -> Iterator[tuple[int, list[Any]]]:
        """Return, for each step, the number of this rank's batch among all of the epoch, and its indices."""
        first = self.batches.position(0)[1] + self._place
        return ((first + step * self.size, self.batch(step)) for step in range(self.steps))

    def position(self, steps: int) -> tuple[int, int]:
        """Return the samples and batches of the epoch that all ranks have consumed after `steps`."""
        if steps == self.steps and not self._dropped:
            return self.batches.end()
        return self.batches.position(steps * self.size)


def even_part(pool: list[Any], rank: int, size: int) -> list[Any]:
    """Return the rank's run of a list that is dealt out in runs as equal as can be."""
    least, more = divmod(len(pool), size)
    start = rank * least + min(rank, more)
    return pool[start : start + least + (rank < more)]
