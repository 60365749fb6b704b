"""The training stream: who gets which samples, in which order, and how it goes on after an interruption.

Loading with workers and loaders that are not ours have files of their own.
"""

from __future__ import annotations

import itertools
import json
import logging
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from detlab.pytorch import samplers
from detlab.pytorch._data import DataLoader
from detlab.pytorch._errors import TrainerError
from detlab.pytorch._stream import Fetched, TrainingStream, validation_loader

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
State = dict[str, Any]


class Numbers(torch.utils.data.Dataset):
    """Sample i is the number i."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        return index


def cut(n: int, batch_size: int = 1, **more: Any) -> DataLoader:
    return DataLoader(Numbers(n), batch_size=batch_size, **more)


def ranks(make: Callable[[], Any], size: int, seed: int = 0, state: State | None = None) -> list[TrainingStream]:
    return [TrainingStream(make(), rank=rank, size=size, seed=seed, state=state) for rank in range(size)]


def step(streams: list[TrainingStream]) -> tuple[list[Fetched], State]:
    """Take one batch on every rank, and the state, which must not depend on the rank."""
    batches = [next(stream) for stream in streams]
    states = [stream.state_dict() for stream in streams]
    assert all(state == states[0] for state in states)
    assert json.loads(json.dumps(states[0])) == states[0]
    places = {(one.epoch, one.batch_in_epoch, one.starts_epoch, one.ends_epoch) for one in batches}
    assert len(places) == 1
    for batch in batches:
        assert batch.data.tolist() == batch.ids
    return batches, states[0]


def epoch_of(streams: list[TrainingStream]) -> list[list[list[int]]]:
    """Take steps to the end of the epoch; return ids by step and rank."""
    steps = []
    while True:
        batches, _ = step(streams)
        steps.append([batch.ids for batch in batches])
        if batches[0].ends_epoch:
            return steps


def flat(steps: list[list[list[int]]]) -> list[int]:
    return [index for one in steps for ids in one for index in ids]


def joined(batches: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(batches))


def has_step(n: int, batch_size: int, size: int, drop_last: bool) -> bool:
    return n >= size * batch_size if drop_last else n >= size


# --- sharding

SIZES = {
    "n": st.integers(1, 60),
    "batch_size": st.integers(1, 9),
    "size": st.integers(1, 5),
    "drop_last": st.booleans(),
    "shuffle": st.booleans(),
}


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


# --- order


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
    with pytest.raises(TrainerError, match=r"RepeatSampler says that it has 5 items"):
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


# --- resuming


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
    steps = epoch_of(resumed)
    assert length == stop + len(steps)
    rest = flat(steps)
    left = n - len(used)
    assert set(used).isdisjoint(rest)
    if left < other_size and stop > 0:
        assert len(steps) == 1  # fewer samples than ranks: all ranks take them all
        assert steps[0] == [steps[0][0]] * other_size
        assert len(set(rest)) == left
        return
    assert len(rest) == len(set(rest))
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
    if ends[-1] - ends[stop * size] >= 2:
        assert sorted(flat(other)) == list(range(ends[stop * size], ends[-1]))


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
