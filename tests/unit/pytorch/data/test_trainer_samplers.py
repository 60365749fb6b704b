"""The public samplers: what they yield, how long they say they are, what they refuse."""

from __future__ import annotations

import inspect
import itertools

import pytest
import torch.utils.data
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detlab.pytorch import samplers
from detlab.pytorch.errors import TrainerError

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
SAMPLER_AND_BATCH_SAMPLER = [
    (samplers.RepeatSampler, samplers.RepeatBatchSampler, ()),
    (samplers.DistributedSampler, samplers.DistributedBatchSampler, (2, 1)),
    (samplers.SkipSampler, samplers.SkipBatchSampler, (2,)),
    (samplers.ReproducibleShuffleSampler, samplers.ReproducibleShuffleBatchSampler, (7,)),
]


@pytest.mark.parametrize(
    ("cls", "parameters"),
    [
        (samplers.RepeatSampler, ["sampler"]),
        (samplers.RepeatBatchSampler, ["batch_sampler"]),
        (samplers.DistributedSampler, ["sampler", "num_workers", "rank"]),
        (samplers.DistributedBatchSampler, ["batch_sampler", "num_workers", "rank"]),
        (samplers.SkipSampler, ["sampler", "skip"]),
        (samplers.SkipBatchSampler, ["batch_sampler", "skip"]),
        (samplers.ReproducibleShuffleSampler, ["sampler", "seed"]),
        (samplers.ReproducibleShuffleBatchSampler, ["batch_sampler", "seed"]),
    ],
)
def test_signatures_are_those_of_determined(cls: type, parameters: list[str]) -> None:
    assert list(inspect.signature(cls).parameters) == parameters
    assert issubclass(cls, torch.utils.data.Sampler)


@calm
@given(n=st.integers(1, 20), passes=st.integers(1, 3))
def test_repeating_yields_the_same_again_and_again(n: int, passes: int) -> None:
    items = list(range(n))
    for cls in (samplers.RepeatSampler, samplers.RepeatBatchSampler):
        repeated = cls(items)
        assert len(repeated) == n
        assert list(itertools.islice(repeated, n * passes)) == items * passes


def test_repeating_nothing_is_refused_instead_of_hanging() -> None:
    with pytest.raises(TrainerError, match="is the dataset empty"):
        next(iter(samplers.RepeatSampler([])))


@calm
@given(n=st.integers(0, 40), size=st.integers(1, 7))
def test_shards_partition_and_are_as_long_as_they_say(n: int, size: int) -> None:
    for cls in (samplers.DistributedSampler, samplers.DistributedBatchSampler):
        shards = [cls(range(n), size, rank) for rank in range(size)]
        assert [list(shard) for shard in shards] == [list(range(rank, n, size)) for rank in range(size)]
        assert [len(shard) for shard in shards] == [len(list(shard)) for shard in shards]


@pytest.mark.parametrize(("num_workers", "rank"), [(0, 0), (2, 2), (2, -1), (-1, 5)])
def test_a_rank_that_cannot_be_is_refused(num_workers: int, rank: int) -> None:
    for cls in (samplers.DistributedSampler, samplers.DistributedBatchSampler):
        with pytest.raises(TrainerError, match=r"cannot shard") as caught:
            cls([1], num_workers, rank)
        assert isinstance(caught.value, ValueError)  # Determined's


@calm
@given(n=st.integers(0, 20), skip=st.integers(0, 25))
def test_skipping_leaves_out_the_first(n: int, skip: int) -> None:
    for cls in (samplers.SkipSampler, samplers.SkipBatchSampler):
        skipped = cls(range(n), skip)
        assert list(skipped) == list(range(n))[skip:]
        assert len(skipped) == n


def test_a_negative_skip_is_refused() -> None:
    with pytest.raises(TrainerError, match="negative"):
        samplers.SkipSampler([1], -1)


@calm
@given(n=st.integers(0, 30), seed=st.integers(0, 2**32 - 1))
def test_a_shuffle_follows_from_its_seed(n: int, seed: int) -> None:
    for cls in (samplers.ReproducibleShuffleSampler, samplers.ReproducibleShuffleBatchSampler):
        one, other = cls(range(n), seed), cls(range(n), seed)
        passes = [list(one), list(one)]
        assert passes == [list(other), list(other)]
        assert all(sorted(order) == list(range(n)) for order in passes)
        assert len(one) == n


def test_seeds_and_passes_differ() -> None:
    one, other = (samplers.ReproducibleShuffleSampler(range(100), seed) for seed in (1, 2))
    first = list(one)
    assert first != list(one)
    assert first != list(other)


def test_a_chain_continues_where_it_was() -> None:
    """Shuffle, repeat, shard, skip: the chain that a trial builds by hand resumes where it was."""

    def chain(skip: int) -> list[int]:
        shuffled = samplers.ReproducibleShuffleSampler(range(10), 3)
        sharded = samplers.DistributedSampler(samplers.RepeatSampler(shuffled), 2, 1)
        return list(itertools.islice(samplers.SkipSampler(sharded, skip), 20))

    assert chain(7)[:13] == chain(0)[7:]


def test_batch_kinds_take_torchs_place() -> None:
    for _, cls, arguments in SAMPLER_AND_BATCH_SAMPLER:
        batches = cls(torch.utils.data.BatchSampler(range(6), 2, False), *arguments)
        loader = torch.utils.data.DataLoader(list(range(6)), batch_sampler=batches)
        assert next(iter(loader)).shape == (2,)
