"""What speaks for the kernel as the one that killed a task, and the exits of ranks in their order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from detlab.launch.host.cgroup import kernel_may_have_killed, machine_oom_kills
from detlab.launch.taskdir import failed_ranks, first_failing_rank, note_failing_rank, ranks_that_left


def test_the_machines_count_is_read_from_the_kernel(tmp_path: Path) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("pgfault 17\noom_kill 5\noom_kill_other x\n")
    assert machine_oom_kills(vmstat) == 5
    vmstat.write_text("pgfault 17\n")
    assert machine_oom_kills(vmstat) == 0
    assert machine_oom_kills(tmp_path / "none") == 0
    assert machine_oom_kills() >= 0


@pytest.mark.parametrize(
    ("codes", "before", "now", "told"),
    [
        ((-9,), 5, 6, True),
        ((137,), 5, 6, True),
        ((1, -15, -9), 5, 6, True),
        ((-9,), 5, 5, False),
        ((-15, 1), 5, 6, False),
        ((-11,), 5, 6, False),
    ],
)
def test_the_kernel_is_suspected_of_a_sigkill_only_and_only_if_it_killed_meanwhile(
    codes: tuple[int, ...], before: int, now: int, told: bool
) -> None:
    assert kernel_may_have_killed(codes, before, now) is told


def test_ranks_that_failed_are_told_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "ranks.jsonl"
    assert (failed_ranks(path), first_failing_rank(path)) == ([], None)
    path.write_text('{"rank": 0, "exit_code": 1, "time": 9.0}\n{"rank": 2, "exit_code": -9, "time": 8.0}\n{"ra')
    assert (failed_ranks(path), first_failing_rank(path)) == ([(2, -9), (0, 1)], 2)
    path.write_text("")
    note_failing_rank(path, 3, 75)
    assert failed_ranks(path) == [(3, 75)]


def test_ranks_that_left_before_another_failed_are_said(tmp_path):
    path = tmp_path / "ranks.jsonl"
    assert ranks_that_left(path) is None

    def note(*ended):
        path.write_text("".join(json.dumps({"rank": r, "exit_code": c, "time": t}) + "\n" for r, c, t in ended) + "{")

    note((1, 0, 10.0), (0, 1, 11.5))
    assert ranks_that_left(path) == "rank 1 ended with exit code 0 1.5 s before rank 0 failed"
    note((2, 0, 10.0), (1, 0, 10.1), (0, 1, 11.5), (0, -15, 12))
    assert ranks_that_left(path) == "ranks 2, 1 ended with exit code 0 1.5 s before rank 0 failed"
    note((0, 1, 10.0), (1, 0, 10.1))
    assert ranks_that_left(path) is None, "it ended after the failure"
    note((0, 0, 10.0), (1, 0, 10.1))
    assert ranks_that_left(path) is None
