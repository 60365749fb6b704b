"""How the training stream goes on after an interruption, on as many ranks or others."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from trainer_streams import SIZES, Numbers, calm, cut, epoch_of, flat, has_step, joined, ranks, step

from detlab.pytorch.data.epoch import CutBatches, Share
from detlab.pytorch.data.loader import DataLoader
from detlab.pytorch.data.resumable import TrainingStream
from detlab.pytorch.errors import TrainerError


@settings(calm, max_examples=60)
@given(**SIZES, seed=st.integers(0, 1000), data=st.data())
def test_resume_at_every_batch_continues_identically(
    n: int, batch_size: int, size: int, drop_last: bool, shuffle: bool, seed: int, data: st.DataObject
) -> None:
    assume(has_step(n, batch_size, size, drop_last))

    def make() -> DataLoader:
        return cut(n, batch_size, shuffle=shuffle, drop_last=drop_last)

    calm = ranks(make, size, seed)
    length = calm[0].epoch_length or 0
    stop = data.draw(st.integers(0, 2 * length), label="interrupted after")
    state = calm[0].state_dict()
    for _ in range(stop):
        _, state = step(calm)
    resumed = ranks(make, size, seed, state)
    assert [one.state_dict() for one in resumed] == [one.state_dict() for one in calm]
    assert [one.remaining_in_epoch for one in resumed] == [one.remaining_in_epoch for one in calm]
    for _ in range(length + 1):
        batches, state = step(calm)
        again, state_again = step(resumed)
        for one, other in zip(batches, again, strict=True):
            assert one.data.tolist() == other.data.tolist()
            one.data = other.data = None
        assert batches == again
        assert state == state_again
        assert [one.epoch_length for one in resumed] == [one.epoch_length for one in calm]


@settings(calm, max_examples=150)
@given(**SIZES, other_size=st.integers(1, 6), other_batch_size=st.integers(1, 9), data=st.data())
def test_resume_on_other_ranks_or_batches_takes_exactly_the_rest(
    n: int,
    batch_size: int,
    size: int,
    drop_last: bool,
    shuffle: bool,
    other_size: int,
    other_batch_size: int,
    data: st.DataObject,
) -> None:
    assume(has_step(n, batch_size, size, drop_last) and has_step(n, other_batch_size, other_size, drop_last))
    streams = ranks(lambda: cut(n, batch_size, shuffle=shuffle, drop_last=drop_last), size)
    stop = data.draw(st.integers(0, streams[0].epoch_length or 0), label="interrupted after")
    state, used = streams[0].state_dict(), []
    for _ in range(stop):
        batches, state = step(streams)
        used += [index for batch in batches for index in batch.ids or []]
    resumed = ranks(lambda: cut(n, other_batch_size, shuffle=shuffle, drop_last=drop_last), other_size, state=state)
    if state["epoch_ended"]:
        assert next(resumed[0]).starts_epoch
        return
    length = resumed[0].epoch_length
    weights = [stream.next_weight for stream in resumed]
    steps = epoch_of(resumed)
    assert length == stop + len(steps)
    rest = flat(steps)
    left = n - len(used)
    assert set(used).isdisjoint(rest)
    assert len(rest) == len(set(rest))  # no sample is taken by two ranks
    if all(ids for one in steps for ids in one):
        assert weights == [1] * other_size
    else:
        assert stop > 0
        assert len(steps) == 1
        assert weights == [pytest.approx(other_size * len(ids) / left) for ids in steps[0]]
    group = other_size * other_batch_size
    if not drop_last or (left < group and stop > 0):
        assert len(rest) == left
    else:
        assert len(rest) == left - left % group
    assert next(resumed[0]).starts_epoch


@calm
@given(data=st.data(), lengths=st.lists(st.integers(1, 3), min_size=4, max_size=20), size=st.integers(1, 3))
def test_resume_of_given_batches_skips_those_that_are_consumed(
    data: st.DataObject, lengths: list[int], size: int
) -> None:
    ends = list(itertools.accumulate(lengths, initial=0))
    given_batches = [list(range(*pair)) for pair in itertools.pairwise(ends)]

    def make() -> DataLoader:
        return DataLoader(Numbers(ends[-1]), batch_sampler=given_batches)

    streams = ranks(make, size)
    stop = data.draw(st.integers(0, (streams[0].epoch_length or 0) - 1))
    state = streams[0].state_dict()
    for _ in range(stop):
        _, state = step(streams)
    assert state["batches_in_epoch"] == stop * size
    assert state["samples_in_epoch"] == ends[stop * size]
    calm, same = epoch_of(streams), epoch_of(ranks(make, size, state=state))
    assert calm == same
    other = epoch_of(ranks(make, 2, state=state))
    assert sorted(flat(other)) == list(range(ends[stop * size], ends[-1]))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 8])
def test_a_rest_too_small_for_all_ranks_is_dealt_to_some_and_weighted_by_samples(
    batch_size: int, drop_last: bool
) -> None:
    for size, left in itertools.product(range(2, 8), range(1, 14)):
        if left >= size * min(2, batch_size):
            continue
        rest = CutBatches(range(10, 10 + left + 4), batch_size, drop_last, samples=4, batches=2)
        shares = [Share(rest, rank, size) for rank in range(size)]
        takers = [share for share in shares if share.weight > 0]
        assert [share.steps for share in shares] == [1] * size
        assert takers == shares[: len(takers)]
        assert joined([share.batch(0) for share in takers]) == list(range(14, 14 + left))
        sizes = [len(share.batch(0)) for share in takers]
        assert [share.weight for share in takers] == [pytest.approx(size * count / left) for count in sizes]
        assert max(sizes) <= max(batch_size, 3 if batch_size > 1 else 1)
        assert min(sizes) >= min(2, batch_size, left)  # batch norm needs two, if it ever could do with the batches
        assert max(sizes) - min(sizes) <= 1
        jobs = [next(share.jobs()) for share in takers]
        assert [number for number, _ in jobs] == [2 + rank for rank in range(len(takers))]
        for rank, share in enumerate(shares):  # who has none takes another's, random augmentation included
            assert next(share.jobs()) == jobs[rank % len(takers)]
            assert share.position(1) == rest.end()


def test_interrupted_many_times_on_ever_other_ranks_each_sample_is_used_once() -> None:
    state, used = None, []
    for size, batch_size in [(1, 7), (3, 2), (2, 5), (4, 1), (1, 3)]:
        streams = ranks(lambda b=batch_size: cut(60, b, shuffle=True), size, 3, state)
        for _ in range(2):
            batches, state = step(streams)
            used += [index for batch in batches for index in batch.ids or []]
    assert state is not None
    assert state["batch_in_epoch"] == 10
    assert state["samples_in_epoch"] == len(used) == len(set(used)) == 60
    assert used == flat(epoch_of(ranks(lambda: cut(60, 60, shuffle=True), 1, 3)))[: len(used)]


def test_the_checkpoints_seed_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    calm = ranks(lambda: cut(20, 2, shuffle=True), 1, 5)
    _, state = step(calm)
    with caplog.at_level(logging.INFO, logger="detlab.pytorch"):
        resumed = ranks(lambda: cut(20, 2, shuffle=True), 1, 6, state)
    assert "follows the checkpoint's seed 5, not 6" in caplog.text
    assert [epoch_of(resumed), epoch_of(resumed)] == [epoch_of(calm), epoch_of(calm)]


def test_data_of_another_length_is_refused_and_both_named() -> None:
    _, state = step(ranks(lambda: cut(20, 2), 1))
    with pytest.raises(TrainerError, match=r"dataset of 20 samples, this one has 21"):
        TrainingStream(cut(21, 2), rank=0, size=1, seed=0, state=state)


def test_a_sampler_that_gives_another_order_than_before_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    _, state = step(ranks(lambda: cut(6, 2, sampler=[0, 1, 2, 3, 4, 5]), 1))
    TrainingStream(cut(6, 2, sampler=[0, 1, 2, 3, 4, 5]), rank=0, size=1, seed=0, state=state)
    assert not caplog.records
    TrainingStream(cut(6, 2, sampler=[5, 4, 3, 2, 1, 0]), rank=0, size=1, seed=0, state=state)
    assert "another order of samples" in caplog.text


@pytest.mark.parametrize(
    "make",
    [lambda: cut(6, 2, sampler=[0]), lambda: DataLoader(Numbers(6), batch_sampler=[[0, 1]])],
)
def test_a_sampler_that_now_gives_less_than_was_consumed_is_refused(make: Callable[[], DataLoader]) -> None:
    streams = ranks(lambda: cut(6, 2), 1)
    step(streams)
    _, state = step(streams)
    with pytest.raises(TrainerError, match=r"after 2 batches \(4 samples\) of epoch 0, but the sampler"):
        TrainingStream(make(), rank=0, size=1, seed=0, state=state)


def test_a_state_of_another_version_is_refused() -> None:
    _, state = step(ranks(lambda: cut(6, 2), 1))
    with pytest.raises(TrainerError, match="version 99"):
        TrainingStream(cut(6, 2), rank=0, size=1, seed=0, state={**state, "version": 99})
