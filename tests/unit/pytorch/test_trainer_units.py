"""When periods are due: against counting batch by batch."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.pytorch.errors import TrainerError
from detlab.pytorch.units import Batch, Due, Epoch, TrainUnit

units = st.one_of(
    st.none(),
    st.integers(1, 12).map(Batch),
    st.integers(1, 4).map(Epoch),
    st.lists(st.integers(1, 30), min_size=1, max_size=4).map(Batch),
    st.lists(st.integers(1, 6), min_size=1, max_size=3).map(Epoch),
)
lengths = st.one_of(st.integers(1, 40).map(Batch), st.integers(1, 6).map(Epoch))


def by_counting(length: TrainUnit, periods: dict[str, TrainUnit | None], epoch: int) -> list[tuple[int, set[str]]]:
    """Every batch at which something is due, found by looking at each of them."""
    events = []
    batches = epochs = 0
    while (epochs if isinstance(length, Epoch) else batches) < length.value:
        batches += 1
        ended = batches % epoch == 0
        epochs += ended
        due = set()
        for name, unit in periods.items():
            if unit is None or (isinstance(unit, Epoch) and not ended):
                continue
            count = epochs if isinstance(unit, Epoch) else batches
            if count in unit.value if isinstance(unit.value, list) else count % unit.value == 0:
                due.add(name)
        if due:
            events.append((batches, due))
    return events


@given(lengths, units, units, units, st.integers(1, 9))
def test_jumping_finds_what_counting_finds(
    length: TrainUnit, report: TrainUnit | None, validate: TrainUnit | None, save: TrainUnit | None, epoch: int
) -> None:
    periods = {"report": report, "validate": validate, "checkpoint": save}
    due = Due(length, periods)
    events, batches, epochs = [], 0, 0
    while not due.over(batches, epochs):
        stop = min(due.next_batch(batches), batches + epoch - batches % epoch)
        assert stop > batches
        batches = stop
        ended = batches % epoch == 0
        epochs += ended
        names = due.at(batches, epochs, epoch_ended=ended)
        if names:
            events.append((batches, names))
    assert events == by_counting(length, periods, epoch)
    assert due.progress(batches, epochs) == 1.0


@given(st.integers(1, 50), st.integers(0, 200))
def test_next_after_is_the_first_multiple(value: int, count: int) -> None:
    expected = next(n for n in range(count + 1, count + value + 1) if n % value == 0)
    assert Batch(value).next_after(count) == expected


def test_a_container_that_only_knows_membership_is_asked_each_time() -> None:
    class Powers:
        def __contains__(self, count: object) -> bool:
            return isinstance(count, int) and count & (count - 1) == 0

    unit = Batch(Powers())
    assert [n for n in range(1, 20) if unit.should_stop(n)] == [1, 2, 4, 8, 16]
    assert unit.next_after(5) == 6
    assert Batch([3]).next_after(3) == sys.maxsize


@pytest.mark.parametrize("value", [0, -1, 1.0, True, None, "3"])
def test_what_is_no_amount_is_refused(value: object) -> None:
    with pytest.raises(TrainerError):
        Epoch(value)


def test_units_say_what_they_are() -> None:
    assert repr(Batch(3)) == "Batch(3)"
    assert Batch(3) == Batch(3) != Epoch(3)
    assert len({Batch(3), Batch(3), Epoch(3)}) == 2
