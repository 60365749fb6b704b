"""How a run stands by its processes."""

from __future__ import annotations

import pytest

from detlab_hub.core.tracking.writers import (
    RunStanding,
    WriterFacts,
    WriterState,
    run_id_of_key,
    run_ids_of_key,
    standing_of,
)

OPEN, FINISHED, FAILED, KILLED, LOST = WriterState


def one(state: WriterState, begun: int, ended: int | None = None, reason: str = "") -> WriterFacts:
    return WriterFacts(state, begun, ended, reason)


@pytest.mark.parametrize(
    ("writers", "standing"),
    [
        ([], RunStanding("RUNNING")),
        ([one(OPEN, 1)], RunStanding("RUNNING")),
        ([one(FINISHED, 1, 5)], RunStanding("FINISHED", 5)),
        ([one(FAILED, 1, 5, "why")], RunStanding("FAILED", 5, "why")),
        ([one(LOST, 1, 5, "silent")], RunStanding("FAILED", 5, "silent")),
        ([one(KILLED, 1, 5)], RunStanding("KILLED", 5)),
        # Several at once: it goes on while one does, and fails if one has.
        ([one(FINISHED, 1, 5), one(OPEN, 2)], RunStanding("RUNNING")),
        ([one(FINISHED, 1, 9), one(FAILED, 2, 5, "why")], RunStanding("FAILED", 9, "why")),
        ([one(KILLED, 1, 9), one(FINISHED, 2, 5)], RunStanding("KILLED", 9)),
        # Resumed: how it had ended before does not matter any more, in whatever order they are sent.
        ([one(FAILED, 1, 5, "why"), one(OPEN, 7)], RunStanding("RUNNING")),
        ([one(FINISHED, 7, 9), one(FAILED, 1, 5, "why")], RunStanding("FINISHED", 9)),
        # Clocks that were set back, or stand still.
        ([one(FINISHED, 5, 5)], RunStanding("FINISHED", 5)),
        ([one(FAILED, 0, 0)], RunStanding("FAILED", 0)),
    ],
)
def test_a_run_stands_as_its_processes_do(writers: list[WriterFacts], standing: RunStanding) -> None:
    assert standing_of(writers) == standing


def test_keys_of_two_users_never_meet() -> None:
    assert run_id_of_key("ada", "baseline") != run_id_of_key("ben", "baseline")
    assert run_id_of_key("a", "b:c") != run_id_of_key("a:b", "c")
    assert len(run_id_of_key("ada", "baseline")) == 32


def test_an_id_begins_as_the_key_that_the_script_prints_and_runs_of_before_are_found() -> None:
    key = "7551ee24" + "0" * 24
    new, old = run_ids_of_key("ada", key)
    assert new == run_id_of_key("ada", key)
    assert new[:8] == key[:8] != old[:8]
    assert new[8:] == old[8:] != run_id_of_key("ben", key)[8:]
    assert run_ids_of_key("ada", "baseline") == (run_id_of_key("ada", "baseline"),)
