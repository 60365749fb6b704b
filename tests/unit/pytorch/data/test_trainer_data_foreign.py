"""Loaders that are not ours: iterated as they are, epoch after epoch, and read again up to where they were."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils.data
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detlab.pytorch.data.loader import DataLoader
from detlab.pytorch.data.resumable import TrainingStream
from detlab.pytorch.errors import TrainerError

calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Batches:
    """Yields numbers; may have a length, right or wrong."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.epochs: list[int] = []

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


class Sized(Batches):
    def __init__(self, count: int, said: int | None = None) -> None:
        super().__init__(count)
        self.said = count if said is None else said

    def __len__(self) -> int:
        return self.said


class Noisy(Batches):
    """Each batch is a draw from the process's random numbers."""

    def __iter__(self) -> Iterator[Any]:
        return (torch.rand(()).item() for _ in range(self.count))


class NoisySized(Noisy):
    def __len__(self) -> int:
        return self.count


def stream(loader: Any, rank: int = 0, size: int = 1, **more: Any) -> TrainingStream:
    return TrainingStream(loader, rank=rank, size=size, **{"seed": 4, **more})


def take(source: TrainingStream, count: int) -> list[Any]:
    return [next(source) for _ in range(count)]


@calm
@given(count=st.integers(1, 6), sized=st.booleans())
def test_epochs_follow_each_other(count: int, sized: bool) -> None:
    source = stream((Sized if sized else Batches)(count))
    assert source.epoch_length == (count if sized else None)
    assert source.remaining_in_epoch == (count if sized else None)
    for epoch in range(3):
        for number in range(count):
            one = next(source)
            assert (one.data, one.ids) == (number, None)
            assert (one.epoch, one.batch_in_epoch) == (epoch, number)
            assert (one.starts_epoch, one.ends_epoch) == (number == 0, number == count - 1)
        assert source.epoch_length == count
        assert source.remaining_in_epoch == 0


@calm
@given(count=st.integers(1, 6), stop=st.integers(0, 14), sized=st.booleans())
def test_resume_at_every_batch_continues_identically(count: int, stop: int, sized: bool) -> None:
    kind = Sized if sized else Batches
    calm = stream(kind(count))
    take(calm, stop)
    state = calm.state_dict()
    assert json.loads(json.dumps(state)) == state
    assert state["samples_in_epoch"] is None or stop == 0
    resumed = stream(kind(count), state=state)
    assert resumed.state_dict() == state
    assert take(resumed, 8) == take(calm, 8)
    assert resumed.state_dict() == calm.state_dict()


def test_reading_again_is_said(caplog: pytest.LogCaptureFixture) -> None:
    calm = stream(Sized(5))
    take(calm, 7)
    with caplog.at_level(logging.INFO, logger="detlab.pytorch"):
        next(stream(Sized(5), state=calm.state_dict()))
    assert "reading 2 batches of epoch 1 again" in caplog.text


def test_reading_again_leaves_the_random_numbers_where_the_checkpoint_put_them() -> None:
    torch.manual_seed(1)
    calm = stream(NoisySized(6))
    take(calm, 3)
    state, numbers = calm.state_dict(), torch.get_rng_state()
    expected = [one.data for one in take(calm, 9)]
    resumed = stream(NoisySized(6), state=state)
    torch.manual_seed(2)
    torch.set_rng_state(numbers)
    assert [one.data for one in take(resumed, 9)] == expected


def test_read_ahead_only_the_batch_in_hand_may_differ_after_a_resume() -> None:
    torch.manual_seed(1)
    calm = stream(Noisy(6))
    take(calm, 3)
    state, numbers = calm.state_dict(), torch.get_rng_state()
    expected = [one.data for one in take(calm, 3)]
    resumed = stream(Noisy(6), state=state)
    torch.set_rng_state(numbers)
    assert [one.data for one in take(resumed, 3)][1:] == expected[1:]


def shuffled() -> torch.utils.data.DataLoader:
    data = torch.utils.data.TensorDataset(torch.arange(30))
    return torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)


def test_torchs_loader_shuffles_by_seed_and_epoch_and_leaves_the_random_numbers_alone() -> None:
    def order(source: TrainingStream) -> list[int]:
        return [index for one in take(source, 8) for index in one.data[0].tolist()]

    before = torch.get_rng_state().tolist()
    source = stream(shuffled())
    epochs = [order(source) for _ in range(2)]
    assert torch.get_rng_state().tolist() == before
    assert all(sorted(epoch) == list(range(30)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    torch.manual_seed(77)
    again = stream(shuffled())
    assert [order(again) for _ in range(2)] == epochs
    assert order(stream(shuffled(), seed=5)) != epochs[0]
    middle = stream(shuffled())
    take(middle, 3)
    resumed = stream(shuffled(), state=middle.state_dict())
    assert [one.data[0].tolist() for one in take(resumed, 9)] == [one.data[0].tolist() for one in take(middle, 9)]


def test_torchs_workers_are_gone_after_close() -> None:
    import multiprocessing

    data = torch.utils.data.TensorDataset(torch.arange(30))
    source = stream(torch.utils.data.DataLoader(data, batch_size=4, num_workers=1))
    next(source)
    assert len(multiprocessing.active_children()) == 1
    source.close()
    assert multiprocessing.active_children() == []


def test_set_epoch_is_called_wherever_it_is() -> None:
    batches = Sized(2)
    take(stream(batches), 5)
    assert batches.epochs == [0, 1, 2]
    data = torch.utils.data.TensorDataset(torch.arange(40))
    sampler = torch.utils.data.distributed.DistributedSampler(data, num_replicas=2, rank=0)
    source = stream(torch.utils.data.DataLoader(data, batch_size=20, sampler=sampler), size=2)
    first, second = take(source, 2)
    assert sampler.epoch == 1
    assert first.data[0].tolist() != second.data[0].tolist()


class Lines(torch.utils.data.IterableDataset):
    """Says four and gives six."""

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[int]:
        return iter(range(6))


def test_an_iterable_dataset_ends_where_it_ends_whatever_it_says() -> None:
    source = stream(torch.utils.data.DataLoader(Lines(), batch_size=2))
    assert source.epoch_length is None
    assert [(one.data.tolist(), one.ends_epoch) for one in take(source, 4)] == [
        ([0, 1], False),
        ([2, 3], False),
        ([4, 5], True),
        ([0, 1], False),
    ]


def test_on_other_ranks_each_skips_its_part_of_what_all_have_taken() -> None:
    sources = [stream(Sized(6), rank, 2) for rank in range(2)]
    for source in sources:
        take(source, 3)
    assert sources[0].state_dict() == sources[1].state_dict()
    assert sources[0].state_dict()["batches_in_epoch"] == 6
    alone = stream(Sized(12), state=sources[0].state_dict())
    assert alone.epoch_length == 12
    assert [one.data for one in take(alone, 6)] == list(range(6, 12))
    three = stream(Sized(4), 0, 3, state=sources[0].state_dict())
    assert (three.batch_in_epoch, three.remaining_in_epoch) == (2, 2)
    assert next(three).data == 2


@pytest.mark.parametrize("loader", [[], Sized(0), torch.utils.data.DataLoader([])])
def test_nothing_to_train_on_is_refused_and_its_builder_named(loader: Any) -> None:
    with pytest.raises(TrainerError, match=r"build_training_data_loader\(\) returned a .* no batch in epoch 0"):
        stream(loader)


def test_an_iterable_without_a_length_and_without_a_batch_is_refused_when_it_is_read() -> None:
    with pytest.raises(TrainerError, match="Batches that gives no batch in epoch 0"):
        next(stream(Batches(0)))


def test_a_generator_is_refused_when_its_one_epoch_is_over() -> None:
    source = stream(index for index in range(3))
    assert [one.ends_epoch for one in take(source, 3)] == [False, False, True]
    with pytest.raises(TrainerError, match=r"no batch in epoch 1(.|\n)*is it a generator"):
        next(source)


def test_a_loader_that_ends_before_its_own_length_is_refused() -> None:
    source = stream(Sized(3, said=5))
    take(source, 3)
    with pytest.raises(TrainerError, match=r"Sized that has no batch after 3: its len\(\) is 5"):
        next(source)


def test_a_loader_shorter_than_what_was_taken_is_refused() -> None:
    calm = stream(Batches(9))
    take(calm, 6)
    with pytest.raises(TrainerError, match=r"no batch after 4: its len\(\) is 4, and 6 were taken"):
        stream(Sized(4), state=calm.state_dict())
    with pytest.raises(TrainerError, match=r"no batch after 4: it has no len\(\), and 6 were taken"):
        next(stream(Batches(4), state=calm.state_dict()))


def test_another_dataset_length_is_refused() -> None:
    source = stream(shuffled())
    next(source)
    with pytest.raises(TrainerError, match="of 30 samples, this one has 31"):
        stream(DataLoader(list(range(31))), state=source.state_dict())


def test_in_the_middle_of_an_epoch_ours_cannot_follow_another() -> None:
    ours, source = DataLoader(list(range(30)), batch_size=4), stream(shuffled())
    take(source, 3)
    with pytest.raises(TrainerError, match="which samples of the epoch are consumed is not known"):
        stream(ours, state=source.state_dict())
    take(source, 5)
    assert next(stream(ours, state=source.state_dict())).epoch == 1
    took = stream(ours)
    take(took, 2)
    assert next(stream(shuffled(), state=took.state_dict())).batch_in_epoch == 2
