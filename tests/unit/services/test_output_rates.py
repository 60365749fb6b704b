"""The rate of a task's output, by the times of its lines, with a clock of the test's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.schemas.wire import LogRecord, RecordBatch
from detlab_hub.services.base.limits.model import PerUserLimits
from detlab_hub.services.base.limits.output import AHEAD, OutputRates, OutputWriter

NOW = 1_800_000_000.0
HOURS = 3600.0
BEGAN = OutputWriter(NOW - 2 * HOURS)
SMALL = replace(PerUserLimits(), log_lines_per_second=2, log_lines_burst=10, log_kb_per_second=100, log_burst_mb=1)


def batch_of(first: int, times: list[float], text: str = "x") -> RecordBatch:
    return RecordBatch(
        stream="logs", records=[LogRecord(seq=first + n, time=time, text=text) for n, time in enumerate(times)]
    )


def backlog(kb_per_second: int, seconds: int, offset: float = 0.0) -> Iterator[RecordBatch]:
    """Everything that a task wrote in the past, in batches of 100 seconds: a line of 1 kB each."""
    for start in range(0, seconds, 100):
        times = [BEGAN.began + offset + start + n / kb_per_second for n in range(100 * kb_per_second)]
        yield batch_of(start * kb_per_second + 1, times, "x" * 1024)


@pytest.mark.soak
@pytest.mark.parametrize("offset", [0.0, -3 * HOURS, 30.0])
def test_two_hours_of_a_slow_task_delivered_at_once_pass_whole(offset: float) -> None:
    """Also where the node's clock is hours behind the master's, or a little ahead."""
    rates = OutputRates(replace(PerUserLimits(), log_burst_mb=16, log_lines_burst=10_000))
    lost = [rates.thinned("1.1", 0, BEGAN, batch, NOW)[1] for batch in backlog(50, 7200, offset)]
    assert len(lost) == 72
    assert sum(lost) == 0


@pytest.mark.slow
def test_the_backlog_of_each_node_passes() -> None:
    rates = OutputRates(replace(PerUserLimits(), log_burst_mb=16, log_lines_burst=10_000))
    writer = replace(BEGAN, nodes=2)
    assert sum(rates.thinned("1.1", node, writer, b, NOW)[1] for node in (0, 1) for b in backlog(50, 7200)) == 0


def test_a_task_of_one_node_gains_nothing_by_numbers_of_nodes() -> None:
    rates = OutputRates(SMALL)
    kept = [30 - rates.thinned("1.1", node, BEGAN, batch_of(1, [NOW] * 30), NOW)[1] for node in range(5)]
    assert kept == [10, 0, 0, 0, 0]


def test_a_backlog_that_was_written_too_fast_is_thinned() -> None:
    rates = OutputRates(SMALL)
    batch, left_out = rates.thinned("1.1", 0, BEGAN, batch_of(1, [NOW - HOURS] * 50), NOW)
    assert left_out == 40
    assert batch.records[-1].seq == 50
    assert "40 lines were left out here" in batch.records[-1].text  # type: ignore[union-attr]
    assert rates.thinned("1.1", 0, BEGAN, batch_of(51, [NOW - HOURS + 2.0] * 4), NOW)[1] == 0, "the rate comes back"


def test_long_lines_count_by_their_bytes() -> None:
    rates = OutputRates(replace(SMALL, log_lines_burst=1000))
    batch, left_out = rates.thinned("1.1", 0, BEGAN, batch_of(1, [NOW] * 20, "x" * 100_000), NOW)
    assert left_out == 10
    assert [record.seq for record in batch.records] == [*range(1, 11), 20]
    _, left_out = rates.thinned("2.1", 0, BEGAN, batch_of(1, [NOW] * 5, "x" * 100_000), NOW)
    assert left_out == 0, "another task's"


def test_whom_no_limit_binds_loses_nothing() -> None:
    rates = OutputRates(SMALL)
    assert rates.thinned("1.1", 0, replace(BEGAN, bound=False), batch_of(1, [NOW] * 500), NOW)[1] == 0


FORGED: dict[str, Callable[[int], float]] = {
    "the epoch": lambda n: 0.0,
    "one second later each": float,
    "back and forth": lambda n: NOW if n % 2 else 0.0,
    "from the beginning of the task": lambda n: BEGAN.began + n,
    "the future": lambda n: NOW + 1e6 * n,
    "no number": lambda n: (math.nan, math.inf, -math.inf)[n % 3],
    "huge": lambda n: -1.7e308 if n % 2 else 1.7e308,
}


@pytest.mark.slow
@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_flood_with_forged_times_is_bounded(forged: Callable[[int], float]) -> None:
    rates, kept, number = OutputRates(SMALL), 0, 0
    for _ in range(40):
        times = [forged(number + n) for n in range(1000)]
        kept += 1000 - rates.thinned("1.1", 0, BEGAN, batch_of(number + 1, times), NOW)[1]
        number += 1000
    assert kept <= 10 + 2 * (NOW - BEGAN.began + AHEAD)


@given(
    st.lists(
        st.tuples(st.floats(0, 30), st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=30)), min_size=1, max_size=20
    )
)
def test_no_times_get_more_than_the_age_of_the_task_allows(steps: list[tuple[float, list[float]]]) -> None:
    rates, now, writer, kept, number = OutputRates(SMALL), NOW, OutputWriter(NOW), 0, 1
    for wait, offsets in steps:
        now += wait
        kept += len(offsets) - rates.thinned("1.1", 0, writer, batch_of(number, [NOW + x for x in offsets]), now)[1]
        number += len(offsets)
        assert kept <= 10 + 2 * (now - NOW + AHEAD) + 1e-6
