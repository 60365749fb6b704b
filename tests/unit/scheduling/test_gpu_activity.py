"""What agents say of their GPUs: idle is what is known to be at 0 % all the time, and nothing else."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from detlab_hub.core.scheduling.gpu_activity import KEPT, MOST_GAP, GpuActivity, GpuUse

UNKNOWN = GpuUse(known=False, idle_since=None)


def said(*reports: tuple[float, dict[str, float]]) -> GpuActivity:
    activity = GpuActivity()
    for now, percents in reports:
        activity.note("node", percents, now)
    return activity


def test_zero_counts_from_the_first_report_of_it():
    activity = said((10, {"cuda0": 0.0}), (20, {"cuda0": 0.0}))
    assert activity.use_of([("node", ["cuda0"])], 25) == GpuUse(True, 10)
    activity.note("node", {"cuda0": 0.5}, 30)
    assert activity.use_of([("node", ["cuda0"])], 31) == GpuUse(True, None)
    activity.note("node", {"cuda0": 0.0}, 40)
    assert activity.use_of([("node", ["cuda0"])], 41) == GpuUse(True, 40)


def test_all_gpus_of_a_task_count_on_all_of_its_nodes():
    activity = said((10, {"cuda0": 0.0, "cuda1": 9.0}))
    activity.note("other", {"cuda0": 0.0}, 20)
    assert activity.use_of([("node", ["cuda0"]), ("other", ["cuda0"])], 25) == GpuUse(True, 20)
    assert activity.use_of([("node", ["cuda0", "cuda1"])], 25) == GpuUse(True, None)
    assert activity.use_of([("node", ["cuda0"]), ("gone", ["cuda0"])], 25) == UNKNOWN
    assert activity.use_of([("node", ["cuda0", "cuda7"])], 25) == UNKNOWN
    assert activity.use_of([], 25) == UNKNOWN


def test_shares_of_a_device_are_at_zero_while_the_device_is():
    activity = said((10, {"cuda0": 0.0}))
    assert activity.use_of([("node", ["cuda0.1", "cuda0.3"])], 11) == GpuUse(True, 10)


def test_reports_that_are_missing_late_or_left_out_end_what_is_known():
    late = 10 + MOST_GAP + 1
    assert said((10, {"cuda0": 0.0})).use_of([("node", ["cuda0"])], late) == UNKNOWN
    assert said((10, {"cuda0": 0.0}), (20, {})).use_of([("node", ["cuda0"])], 21) == UNKNOWN
    again = said((10, {"cuda0": 0.0}), (late, {"cuda0": 0.0}))
    assert again.use_of([("node", ["cuda0"])], late) == GpuUse(True, late)


def test_a_clock_that_is_set_back_begins_anew():
    activity = said((1000, {"cuda0": 0.0}))
    assert activity.use_of([("node", ["cuda0"])], 900) == UNKNOWN
    activity.note("node", {"cuda0": 0.0}, 900)
    assert activity.use_of([("node", ["cuda0"])], 910) == GpuUse(True, 900)


def test_agents_that_have_gone_are_forgotten():
    activity = said((0, {"cuda0": 0.0}))
    activity.note("stays", {"cuda0": 0.0}, KEPT)
    activity.forget(KEPT + 1)
    assert list(activity._agents) == ["stays"]


@given(st.integers(0, 2**32))
def test_it_is_as_a_plain_look_at_all_reports(seed):
    """Since when: the begin of the newest run of zeros without a gap, from all reports that were ever made."""
    draw = random.Random(seed)
    activity, reports, now = GpuActivity(), list[tuple[float, float | None]](), 0.0
    for _ in range(draw.randrange(1, 30)):
        now += draw.choice([5.0, 10.0, 30.0, MOST_GAP, MOST_GAP + 1])
        percent = draw.choice([0.0, 0.0, 0.0, 1.0, None])
        activity.note("node", {} if percent is None else {"cuda0": percent}, now)
        reports.append((now, percent))
    now += draw.choice([0.0, MOST_GAP, MOST_GAP + 1])
    since, after = None, now
    for at, percent in reversed(reports):
        if percent != 0.0 or after - at > MOST_GAP:
            break
        since = after = at
    assert activity.use_of([("node", ["cuda0"])], now).idle_since == since
