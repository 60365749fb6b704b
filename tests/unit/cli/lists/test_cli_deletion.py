"""What `det experiment list` and `describe` say of an experiment whose files could not be removed."""

from __future__ import annotations

import pytest

from detlab.cli.commands.experiment import _deletion, _state
from detlab.schemas.wire import ExperimentState, ExperimentView
from detlab.schemas.wire.storage import DeletionView

AWAY = DeletionView(checkpoints=2, bytes=2048, failure="the store is away", retry_at=1_000.0, task="command-1")


def view(state: ExperimentState, left: DeletionView | None) -> ExperimentView:
    return ExperimentView(id=7, name="x", owner="ada", state=state, deletion=left)


def test_a_list_tells_a_deletion_that_failed_from_one_that_goes_on() -> None:
    deleting = ExperimentState.DELETING
    assert _state(view(deleting, AWAY)) == "DELETING (failed, det e describe 7)"
    assert _state(view(deleting, AWAY.model_copy(update={"failure": ""}))) == "DELETING"
    assert _state(view(ExperimentState.COMPLETED, None)) == "COMPLETED"


def test_what_to_do_is_said() -> None:
    said = " | ".join(f"{text}" for _, text in _deletion(view(ExperimentState.DELETING, AWAY)))
    for words in (
        "or now: det experiment delete 7",
        "det task logs command-1",
        "det experiment delete 7 --forget-files",
    ):
        assert words in said
    collected = dict(_deletion(view(ExperimentState.COMPLETED, AWAY)))
    assert collected["files to remove"].endswith("still stored, and tried again later: the store is away")
    assert not any("--forget-files" in text for text in collected.values())
    assert _deletion(view(ExperimentState.COMPLETED, None)) == []


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (
            DeletionView(checkpoints=1, bytes=10, task="command-1"),
            "1 checkpoint (10 B) still stored: to be removed by task command-1",
        ),
        (DeletionView(event_files=True), "event files still stored: to be removed by a task"),
        (AWAY, "2 checkpoints (2.0 KiB) still stored, and tried again later: the store is away"),
    ],
)
def test_what_is_left_is_said_in_a_sentence(left: DeletionView, said: str) -> None:
    assert left.said == said
