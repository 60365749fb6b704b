"""The training stream: who gets which samples, and where in the data a batch is.

Their order, how they go on after an interruption, loading with workers and loaders that are not ours have files of
their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.data
from hypothesis import assume, given
from hypothesis import strategies as st
from trainer_streams import SIZES, Numbers, calm, cut, epoch_of, flat, has_step, joined, ranks, step

from detlab.pytorch.data.loader import DataLoader
from detlab.pytorch.data.resumable import TrainingStream, validation_loader
from detlab.pytorch.errors import TrainerError

# --- sharding


@calm
@given(**SIZES)
def test_shards_partition_each_epoch(n: int, batch_size: int, size: int, drop_last: bool, shuffle: bool) -> None:
    assume(has_step(n, batch_size, size, drop_last))
    streams = ranks(lambda: cut(n, batch_size, shuffle=shuffle, drop_last=drop_last), size)
    for _ in range(2):
        steps = epoch_of(streams)
        used = flat(steps)
        assert len(used) == len(set(used))
        assert set(used) <= set(range(n))
        assert len(used) == (n - n % (batch_size * size) if drop_last else n)
        assert all(len(ids) == batch_size for one in steps[:-1] for ids in one)
        last = [len(ids) for ids in steps[-1]]
        assert min(last) >= 1
        assert max(last) <= batch_size + 2
        assert max(last) - min(last) <= 1
        if size > 1 and len(steps) > 1:
            assert min(last) >= min(2, batch_size)  # batch norm cannot train on one sample
        assert {stream.epoch_length for stream in streams} == {len(steps)}


@calm
@given(**SIZES)
def test_batch_k_goes_to_rank_k_mod_size(n: int, batch_size: int, size: int, drop_last: bool, shuffle: bool) -> None:
    """In the order that one process alone would take."""
    assume(has_step(n, batch_size, size, drop_last))

    def make() -> DataLoader:
        return cut(n, batch_size, shuffle=shuffle, drop_last=drop_last)

    alone = [ids for one in epoch_of(ranks(make, 1)) for ids in one]
    steps = epoch_of(ranks(make, size))
    dealt = [ids for one in steps for ids in one]
    whole = n // (batch_size * size) * size
    least = len(alone[0])
    assert [ids[:least] for ids in dealt[:whole]] == alone[:whole]
    assert dealt[whole:] == [] or joined(dealt[whole:]) == joined(alone[whole:])


@pytest.mark.parametrize(
    ("n", "batch_size", "size", "drop_last", "expected"),
    [
        (8, 2, 2, False, [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]),
        (7, 2, 2, False, [[[0, 1, 4, 6], [2, 3, 5]]]),  # less than two for each rank: they join the last round
        (5, 2, 2, False, [[[0, 1, 4], [2, 3]]]),
        (10, 4, 2, False, [[[0, 1, 2, 3, 8], [4, 5, 6, 7, 9]]]),
        (12, 4, 2, False, [[[0, 1, 2, 3], [4, 5, 6, 7]], [[8, 9], [10, 11]]]),  # a batch for one rank: dealt out
        (3, 4, 2, False, [[[0, 1], [2]]]),  # no round to join
        (5, 4, 2, False, [[[0, 1, 2], [3, 4]]]),
        (11, 2, 4, False, [[[0, 1, 8], [2, 3, 9], [4, 5, 10], [6, 7]]]),
        (7, 2, 2, True, [[[0, 1], [2, 3]]]),
        (5, 2, 1, False, [[[0, 1]], [[2, 3]], [[4]]]),
        (5, 2, 1, True, [[[0, 1]], [[2, 3]]]),
    ],
)
def test_the_end_of_an_epoch(n: int, batch_size: int, size: int, drop_last: bool, expected: list[Any]) -> None:
    assert epoch_of(ranks(lambda: cut(n, batch_size, drop_last=drop_last), size)) == expected


@calm
@given(
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    size=st.integers(1, 5),
    drop_last=st.booleans(),
)
def test_a_batch_samplers_batches_are_dealt_out_whole(lengths: list[int], size: int, drop_last: bool) -> None:
    ends = list(itertools.accumulate(lengths, initial=0))
    given_batches = [list(range(*pair)) for pair in itertools.pairwise(ends)]
    whole = len(lengths) // size * size
    pool = joined(given_batches[whole:])
    assume(whole or (len(pool) >= size and not drop_last))

    class Given(list[list[int]]):
        pass

    batches = Given(given_batches)
    batches.drop_last = drop_last
    steps = epoch_of(ranks(lambda: DataLoader(Numbers(ends[-1]), batch_sampler=batches), size))
    dealt = [ids for one in steps for ids in one]
    assert all(ids[: len(own)] == own for ids, own in zip(dealt, given_batches[:whole], strict=False))
    if drop_last:
        assert dealt == given_batches[:whole]
    else:
        assert sorted(flat(steps)) == list(range(ends[-1]))
        if len(pool) >= (2 * size if whole and size > 1 else size):
            rest = [len(ids) for ids in dealt[whole:]]
            assert len(rest) == size
            assert max(rest) - min(rest) <= 1
        else:
            assert len(dealt) == whole


@pytest.mark.parametrize(
    ("make", "size", "words"),
    [
        (lambda: cut(3, 2), 4, ["3 samples", "batches of 2", "4 ranks"]),
        (lambda: cut(7, 4, drop_last=True), 2, ["7 samples", "batches of 4", "2 ranks", "drop_last=True"]),
        (lambda: DataLoader(Numbers(4), batch_sampler=[[0], [1]]), 3, ["2 samples", "its own batches", "3 ranks"]),
        (lambda: DataLoader(Numbers(4), sampler=[]), 1, ["0 samples", "batches of 1", "1 ranks"]),
    ],
)
def test_an_epoch_without_a_step_is_refused_and_the_sizes_named(
    make: Callable[[], DataLoader], size: int, words: list[str]
) -> None:
    for rank in range(size):
        with pytest.raises(TrainerError, match="an epoch has no step") as caught:
            TrainingStream(make(), rank=rank, size=size, seed=0)
        assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_dataset_without_samples_is_refused_and_its_builder_named(shuffle: bool) -> None:
    with pytest.raises(TrainerError, match=r"build_training_data_loader\(\).*Numbers without samples"):
        TrainingStream(cut(0, 4, shuffle=shuffle), rank=0, size=1, seed=0)
    with pytest.raises(TrainerError, match=r"build_validation_data_loader\(\).*Numbers without samples"):
        validation_loader(cut(0, 4, shuffle=shuffle), rank=0, size=1)


# --- positions


def test_a_batch_says_where_it_is() -> None:
    stream = TrainingStream(cut(5, 2), rank=0, size=1, seed=0)
    assert (stream.epoch, stream.batch_in_epoch, stream.epoch_length, stream.remaining_in_epoch) == (0, 0, 3, 3)
    seen = [next(stream) for _ in range(4)]
    assert [(one.epoch, one.batch_in_epoch, one.starts_epoch, one.ends_epoch) for one in seen] == [
        (0, 0, True, False),
        (0, 1, False, False),
        (0, 2, False, True),
        (1, 0, True, False),
    ]
    assert (stream.epoch, stream.batch_in_epoch, stream.epoch_length, stream.remaining_in_epoch) == (1, 1, 3, 2)


def test_after_the_last_batch_the_epoch_is_still_the_old_one() -> None:
    stream = TrainingStream(cut(4, 2), rank=0, size=1, seed=0)
    next(stream), next(stream)
    assert (stream.epoch, stream.batch_in_epoch, stream.epoch_length, stream.remaining_in_epoch) == (0, 2, 2, 0)
    again = TrainingStream(cut(4, 2), rank=0, size=1, seed=0, state=stream.state_dict())
    assert (again.epoch, again.batch_in_epoch, again.epoch_length, again.remaining_in_epoch) == (0, 2, 2, 0)
    assert again.state_dict() == stream.state_dict()
    assert next(again).starts_epoch
    assert (again.epoch, again.batch_in_epoch, again.epoch_length, again.remaining_in_epoch) == (1, 1, 2, 1)


@calm
@given(**SIZES)
def test_the_state_counts_what_all_ranks_have_taken(
    n: int, batch_size: int, size: int, drop_last: bool, shuffle: bool
) -> None:
    assume(has_step(n, batch_size, size, drop_last))
    streams = ranks(lambda: cut(n, batch_size, shuffle=shuffle, drop_last=drop_last), size)
    taken = 0
    for number in range(streams[0].epoch_length or 0):
        batches, state = step(streams)
        taken += sum(len(batch.ids or []) for batch in batches)
        assert state["samples_in_epoch"] == taken
        assert state["batch_in_epoch"] == number + 1
        assert state["world_size"] == size
        assert state["dataset_size"] == n
        assert state["batch_size"] == batch_size


def test_after_close_there_is_nothing_more() -> None:
    stream = TrainingStream(cut(4, 2), rank=0, size=1, seed=0)
    next(stream)
    state = stream.state_dict()
    stream.close()
    stream.close()
    assert stream.state_dict() == state
    with pytest.raises(TrainerError, match="closed"):
        next(stream)


def test_a_sample_that_cannot_be_loaded_raises_its_own_error() -> None:
    stream = TrainingStream(DataLoader({0: 1, 2: 3}, sampler=[0, 1, 2]), rank=0, size=1, seed=0)
    next(stream)
    with pytest.raises(KeyError):
        next(stream)
    with pytest.raises(TrainerError, match="failed before"):  # not a StopIteration, which would look like an end
        next(stream)


# --- validation


@calm
@given(
    n=st.integers(1, 50), batch_size=st.integers(1, 8), size=st.integers(1, 5), drop_last=st.booleans(), data=st.data()
)
def test_validation_deals_out_whole_batches_in_turn(
    n: int, batch_size: int, size: int, drop_last: bool, data: st.DataObject
) -> None:
    assume(n >= batch_size or not drop_last)
    shuffle = data.draw(st.booleans())
    loader = cut(n, batch_size, drop_last=drop_last, shuffle=shuffle)
    shares = [validation_loader(loader, rank=rank, size=size) for rank in range(size)]
    dealt = [[batch.tolist() for batch in share] for share in shares]
    assert [len(share) for share in shares] == [len(batches) for batches in dealt]
    turns = [batch for one in itertools.zip_longest(*dealt) for batch in one if batch is not None]
    alone = [batch.tolist() for batch in validation_loader(loader, rank=0, size=1)]
    assert turns == alone
    assert len(alone) == len(loader)
    if not shuffle:
        assert joined(alone) == list(range(n - n % batch_size if drop_last else n))
    assert [[batch.tolist() for batch in share] for share in shares] == dealt  # the same each time


def test_validation_of_given_batches_and_the_loaders_own_attributes() -> None:
    loader = DataLoader(Numbers(5), batch_sampler=[[0], [1, 2], [3, 4]], num_workers=0)
    share = validation_loader(loader, rank=1, size=2)
    assert [batch.tolist() for batch in share] == [[1, 2]]
    assert share.dataset is loader.dataset
    assert not hasattr(share, "nothing_of_this_name")
    assert len(validation_loader(loader, rank=4, size=5)) == 0
    share.close()


def test_validation_without_a_batch_is_refused_and_the_sizes_named() -> None:
    with pytest.raises(
        TrainerError, match=r"build_validation_data_loader\(\).*3 samples, batch_size=4, drop_last=True"
    ):
        validation_loader(cut(3, 4, drop_last=True), rank=0, size=1)
    with pytest.raises(TrainerError, match=r"build_validation_data_loader\(\).*list without a batch"):
        validation_loader([], rank=0, size=1)


def test_validation_leaves_other_loaders_as_they_are() -> None:
    for loader in ([1, 2], iter([1]), torch.utils.data.DataLoader(Numbers(3))):
        assert validation_loader(loader, rank=1, size=2) is loader
