"""`det experiment set|label|archive`, against a scripted master."""

from __future__ import annotations

import pytest

from detlab.client import Client
from detlab.schemas.wire import AttemptView, ExperimentState

ESCAPES = "\x1b[31mred\x1b]0;title\x07"


def test_name_description_and_notes_are_set(master, det, det_json) -> None:
    master.add_experiment()
    assert det("e", "set", "name", 1, "wider").stdout == "Experiment 1: name set\n"
    det("e", "set", "description", 1, "the wider network")
    assert det_json("e", "set", "notes", 1, "diverges\nabove 0.1")["notes"] == "diverges\nabove 0.1"
    view = master.experiments[1]
    assert (view.name, view.description) == ("wider", "the wider network")
    shown = det("e", "describe", 1).stdout
    assert "\nnotes        diverges\n             above 0.1\n" in shown
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


def test_checkpoints_are_deleted_after_a_confirmation(master, det, det_json) -> None:
    master.add_experiment()
    master.add_trial(1)
    one, two = (master.add_checkpoint(1, {"a.pt": b"1", "b/c.log": b"2"}).uuid for _ in range(2))
    refused = det("c", "delete", one)
    assert refused.exit_code == 2
    assert "add --yes" in refused.stderr
    assert master.checkpoints[one].state == "COMPLETED"
    done = det("c", "delete", f"{one},{two}", "--yes").stdout.splitlines()
    assert [line.partition(";")[0] for line in done] == [f"Deleted checkpoint {one}", f"Deleted checkpoint {two}"]
    assert {item.state for item in master.checkpoints.values()} == {"DELETED"}
    assert [item["state"] for item in det_json("c", "delete", one, "--yes")] == ["DELETED"]


def test_files_of_checkpoints_are_removed_by_patterns(master, det) -> None:
    master.add_experiment()
    master.add_trial(1)
    uuid = master.add_checkpoint(1, {"a.pt": b"1", "c.log": b"2", "d.log": b"2"}).uuid
    assert det("c", "rm", uuid, "--yes").exit_code == 2
    done = det("c", "rm", uuid, "--glob", "c.*", "--glob", "d.*", "-y")
    assert done.stdout == f"Checkpoint {uuid}: 2 files deleted, 1 file left\n"
    assert "1 (others deleted)" in det("c", "list", 1).stdout
    assert list(master.checkpoints[uuid].files) == ["a.pt"]


def test_the_attempts_of_a_trial_are_a_table(master, det) -> None:
    master.add_experiment()
    first = AttemptView(run=1, agent_id="node1", started_at=1000.0, ended_at=1100.0, reason="paused")
    master.add_trial(1, attempts=[first])
    assert "Attempt" not in det("trial", "describe", 1).stdout
    second = AttemptView(run=2, agent_id="node2", resume_step=400, started_at=1200.0)
    master.update_trial(1, attempts=[first, second])
    shown = det("trial", "describe", 1).stdout.splitlines()
    rows = [line.split() for line in shown if "node" in line]
    assert [(row[0], row[1], row[2]) for row in rows] == [("1", "0", "node1"), ("2", "400", "node2")]
    with Client(master.url, master.token) as client:
        assert client.get_trial(1).restart_steps == [400]
