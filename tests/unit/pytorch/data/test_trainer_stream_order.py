"""The order of samples: it follows from seed and epoch alone, whatever sampler gives it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from hypothesis import given
from hypothesis import strategies as st
from trainer_streams import Numbers, calm, cut, epoch_of, flat, ranks

from detlab.pytorch import samplers
from detlab.pytorch.data.loader import DataLoader
from detlab.pytorch.data.resumable import TrainingStream, validation_loader
from detlab.pytorch.errors import TrainerError


@calm
@given(seed=st.integers(0, 2**31 - 1), size=st.integers(1, 3))
def test_seeds_reproduce(seed: int, size: int) -> None:
    def make() -> DataLoader:
        return cut(40, 3, shuffle=True)

    one, other = ranks(make, size, seed), ranks(make, size, seed)
    assert [epoch_of(one), epoch_of(one)] == [epoch_of(other), epoch_of(other)]


def test_seeds_and_epochs_differ() -> None:
    stream, other = (ranks(lambda: cut(100, 10, shuffle=True), 1, seed) for seed in (1, 2))
    orders = [tuple(flat(epoch_of(stream))) for _ in range(3)] + [tuple(flat(epoch_of(other)))]
    assert len(set(orders)) == 4


def test_unshuffled_epochs_are_in_order() -> None:
    stream = ranks(lambda: cut(10, 3), 1)
    assert [flat(epoch_of(stream)) for _ in range(2)] == [list(range(10))] * 2


class EpochAware(torch.utils.data.Sampler):
    """Follows `set_epoch`, as torch's own sharding sampler does."""

    def __init__(self, n: int) -> None:
        self.n, self.epoch = n, -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[int]:
        return iter([(index + self.epoch) % self.n for index in range(self.n)])


class FromGlobals(torch.utils.data.Sampler):
    """Draws from all three sources of the process."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[int]:
        order = list(range(self.n))
        random.shuffle(order)
        np.random.shuffle(order)
        yield from (order[index] for index in torch.randperm(self.n))


class FromOwn(torch.utils.data.Sampler):
    """Draws from generators that it keeps, and that move on with every pass."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.generators = [np.random.default_rng(), np.random.RandomState(3), random.Random(), torch.Generator()]

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[int]:
        new, old, plain, torchs = self.generators
        order = torch.randperm(self.n, generator=torchs).numpy()
        new.shuffle(order)
        old.shuffle(order)
        order = list(order)
        plain.shuffle(order)
        return iter(order)


SAMPLERS: dict[str, Callable[[int], Any]] = {
    "set_epoch": EpochAware,
    "globals": FromGlobals,
    "own": FromOwn,
    "random": lambda n: torch.utils.data.RandomSampler(range(n), generator=torch.Generator()),
    "replacement": lambda n: torch.utils.data.RandomSampler(range(n), replacement=True),
    "subset": lambda n: torch.utils.data.SubsetRandomSampler(range(n), generator=torch.Generator()),
    "weighted": lambda n: torch.utils.data.WeightedRandomSampler([1.0] * n, n),
    "nested": lambda n: samplers.SkipSampler(samplers.ReproducibleShuffleSampler(range(n), 1), 2),
}


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("batched", [False, True])
def test_any_samplers_order_follows_from_seed_and_epoch_alone(kind: str, batched: bool) -> None:
    """Even if the sampler was used before, or skips an epoch, as it does after an interruption."""

    def make() -> DataLoader:
        sampler = SAMPLERS[kind](31)
        if not batched:
            return DataLoader(Numbers(31), batch_size=4, sampler=sampler)

        class Own(torch.utils.data.BatchSampler):
            pass

        return DataLoader(Numbers(31), batch_sampler=Own(sampler, 4, False))

    stream = TrainingStream(make(), rank=0, size=1, seed=11)
    epochs = [flat(epoch_of([stream])) for _ in range(3)]
    assert len({tuple(order) for order in epochs}) == 3
    used = make()
    list(used.batch_sampler)
    torch.manual_seed(99)
    fresh = {**stream.state_dict(), "epoch": 1}
    again = TrainingStream(used, rank=0, size=1, seed=11, state=fresh)
    assert flat(epoch_of([again])) == epochs[2]
    other = TrainingStream(make(), rank=0, size=1, seed=12)
    if kind != "set_epoch":
        assert flat(epoch_of([other])) != epochs[0]


def rng_states() -> list[Any]:
    return [torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()]


@pytest.mark.parametrize("kind", [*SAMPLERS, "shuffle"])
def test_the_processs_random_numbers_are_untouched(kind: str) -> None:
    loader = cut(20, 3, shuffle=True) if kind == "shuffle" else cut(20, 3, sampler=SAMPLERS[kind](20))
    before = rng_states()
    streams = [TrainingStream(loader, rank=0, size=1, seed=1)]
    epoch_of(streams)
    epoch_of(streams)
    list(validation_loader(loader, rank=0, size=1))
    assert rng_states() == before


def test_a_samplers_own_generator_is_given_back_as_it_was() -> None:
    generator = torch.Generator().manual_seed(5)
    before = generator.get_state().tolist()
    epoch_of(ranks(lambda: cut(9, 2, sampler=torch.utils.data.SubsetRandomSampler(range(9), generator)), 1))
    assert generator.get_state().tolist() == before


@pytest.mark.parametrize(
    "sampler",
    [
        samplers.DistributedSampler(range(10), 2, 0),
        samplers.SkipSampler(samplers.DistributedSampler(range(10), 2, 0), 1),
        torch.utils.data.distributed.DistributedSampler(Numbers(10), num_replicas=2, rank=0),
    ],
)
def test_a_sampler_that_shards_itself_is_refused(sampler: Any) -> None:
    loader = cut(10, 2, sampler=sampler)
    with pytest.raises(TrainerError, match=r"holds a DistributedSampler.*2 ranks"):
        TrainingStream(loader, rank=0, size=2, seed=0)
    with pytest.raises(TrainerError, match="DistributedSampler"):
        validation_loader(loader, rank=0, size=2)
    TrainingStream(loader, rank=0, size=1, seed=0)


def test_a_sampler_that_repeats_without_end_is_refused() -> None:
    with pytest.raises(TrainerError, match=r"RepeatSampler has the length 5"):
        TrainingStream(cut(5, 2, sampler=samplers.RepeatSampler(range(5))), rank=0, size=1, seed=0)
    with pytest.raises(TrainerError, match="repeats epochs itself"):
        TrainingStream(
            DataLoader(Numbers(5), batch_sampler=samplers.RepeatBatchSampler([[1], [2]])), rank=0, size=1, seed=0
        )


def test_indices_of_any_integer_kind_become_plain_numbers() -> None:
    stream = TrainingStream(cut(3, 3, sampler=[np.int32(2), torch.tensor(0), 1]), rank=0, size=1, seed=0)
    ids = next(stream).ids
    assert ids == [2, 0, 1]
    assert {type(index) for index in ids or []} == {int}


def test_a_dataset_may_be_indexed_by_anything() -> None:
    words = {"a": 1, "b": 2, "c": 3}
    stream = TrainingStream(DataLoader(words, batch_size=2, sampler=list(words)), rank=0, size=1, seed=0)
    batches = [next(stream), next(stream)]
    assert [batch.ids for batch in batches] == [["a", "b"], ["c"]]
    assert [batch.data.tolist() for batch in batches] == [[1, 2], [3]]
    assert json.dumps(stream.state_dict())
