"""`det experiment set|label|archive`, against a scripted master."""

from __future__ import annotations

import pytest

from detlab.schemas.wire import ExperimentState

ESCAPES = "\x1b[31mred\x1b]0;title\x07"


def test_name_description_and_notes_are_set(master, det, det_json) -> None:
    master.add_experiment()
    assert det("e", "set", "name", 1, "wider").stdout == "Experiment 1: name set\n"
    det("e", "set", "description", 1, "the wider network")
    assert det_json("e", "set", "notes", 1, "diverges\nabove 0.1")["notes"] == "diverges\nabove 0.1"
    view = master.experiments[1]
    assert (view.name, view.description) == ("wider", "the wider network")
    shown = det("e", "describe", 1).stdout
    assert "note: diverges\nnote: above 0.1\n" in shown
    assert det("e", "set", "description", 1, "").stdout == "Experiment 1: description removed\n"


def test_hostile_notes_and_labels_are_plain_text(master, det) -> None:
    master.add_experiment(notes=ESCAPES, description=ESCAPES, state=ExperimentState.COMPLETED)
    for shown in (det("e", "label", "add", 1, ESCAPES), det("e", "describe", 1), det("e", "list")):
        assert "\x1b" not in shown.stdout
        assert "\x07" not in shown.stdout


def test_labels_are_added_and_removed(master, det) -> None:
    master.add_experiment()
    assert det("e", "label", "add", 1, "a", "b").stdout == "Experiment 1: labels a, b\n"
    det("e", "label", "add", 1, "a")
    assert master.experiments[1].labels == ["a", "b"]
    assert det("e", "label", "remove", 1, "a", "b", "c").stdout == "Experiment 1: labels none\n"


def test_archived_experiments_are_listed_on_request_only(master, det, det_json) -> None:
    for _ in range(2):
        master.add_experiment(state=ExperimentState.COMPLETED)
    assert det("e", "archive", 1).stdout == "Experiment 1: archived\n"
    assert [one["id"] for one in det_json("e", "list")] == [2]
    assert [one["id"] for one in det_json("e", "list", "--all")] == [2, 1]
    assert [one["id"] for one in det_json("e", "list", "--archived")] == [1]
    assert "COMPLETED (archived)" in det("e", "list", "--all").stdout
    assert det("e", "unarchive", 1).stdout == "Experiment 1: unarchived\n"
    assert [one["id"] for one in det_json("e", "list")] == [2, 1]


def test_a_running_experiment_is_not_archived(master, det) -> None:
    master.add_experiment()
    refused = det("e", "archive", 1)
    assert refused.exit_code == 1
    assert "only one that has ended can be archived" in refused.stderr


@pytest.mark.parametrize(("paused", "took"), [(0.0, "1m 40s"), (40.0, "1m 00s")])
def test_took_does_not_count_pauses(master, det, paused: float, took: str) -> None:
    master.add_experiment(state=ExperimentState.COMPLETED, started_at=1000.0, ended_at=1100.0, paused_seconds=paused)
    (row,) = [line for line in det("e", "list").stdout.splitlines() if "COMPLETED" in line]
    assert row.endswith(f" {took}")
