"""`det experiment gc|set gc-policy`, `det checkpoint undelete|bookmark|unbookmark`, on a scripted master."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from detlab.schemas.wire import ExperimentState
from detlab.schemas.wire.storage import GcItem, GcPolicy, GcPreview, GcRequest, Pin

UUIDS = [f"00000000-0000-4000-8000-{number:012d}" for number in range(3)]
ESCAPES = "\x1b[31mred\x07"


@pytest.fixture
def saved(master) -> list[str]:
    """An experiment with checkpoints of which one goes, one stays, and one is pinned."""
    master.add_experiment(state=ExperimentState.COMPLETED)
    items = [
        GcItem(uuid=UUIDS[0], trial_id=1, steps_completed=1, metric=0.5, size=10, keep=False, why=["no rule keeps it"]),
        GcItem(uuid=UUIDS[1], trial_id=1, steps_completed=2, metric=0.1, size=20, keep=True, why=["best of its trial"]),
        GcItem(uuid=UUIDS[2], trial_id=1, steps_completed=3, size=30, keep=True, why=["no rule keeps it"],
               pins=[Pin(kind="bookmark", reason=f"ann: {ESCAPES}")]),
    ]  # fmt: skip
    master.previews[1] = GcPreview(
        experiment_id=1, policy=GcPolicy(), items=items, going=1, staying=2, freed=10, kept=50, trash_until=2e9
    )
    return UUIDS


def test_a_dry_run_says_what_goes_and_why_the_rest_stays(master, det, det_json, saved) -> None:
    shown = det("e", "gc", 1, "--dry-run").stdout
    lines = shown.splitlines()
    by_uuid = {uuid: next(line for line in lines if uuid in line) for uuid in saved}
    assert by_uuid[UUIDS[0]].split()[-5:] == ["goes", "no", "rule", "keeps", "it"]
    assert by_uuid[UUIDS[1]].rstrip().endswith("best of its trial")
    assert "stays" in by_uuid[UUIDS[2]]
    assert "ann: " in by_uuid[UUIDS[2]]
    assert "\x1b" not in shown
    assert lines[-1].startswith("Experiment 1: 1 checkpoint (10 B) would be in the trash, until 2033-")
    assert lines[-1].endswith("2 (50 B) stay")
    assert det_json("e", "gc", 1, "--dry-run")["going"] == 1
    assert master.collections == []


def test_gc_needs_a_confirmation(master, det, saved) -> None:
    refused = det("e", "gc", 1)
    assert "add --yes" in refused.stderr
    assert master.collections == []
    assert "are in the trash" in det("e", "gc", 1, "--now", "--yes").stdout
    assert "are" in det("e", "gc", 1, "--purge", "--yes").stdout
    assert master.collections == [GcRequest(now=True), GcRequest(purge=True)]


def test_a_policy_is_previewed_and_set(master, det, det_json, saved) -> None:
    numbers = ("--save-experiment-best", 2, "--save-trial-best", 0, "--save-trial-latest", 1)
    assert det_json("e", "set", "gc-policy", 1, *numbers, "--dry-run")["applied"] is False
    assert master.collections == []
    done = det_json("e", "set", "gc-policy", 1, *numbers, "--yes")
    wanted = GcPolicy(save_experiment_best=2, save_trial_best=0, save_trial_latest=1)
    assert (done["applied"], master.collections) == (True, [GcRequest(policy=wanted)])


def test_negative_numbers_of_a_policy_are_refused_all_at_once(master, det, saved) -> None:
    numbers = ("--save-experiment-best=-1", "--save-trial-best=-2", "--save-trial-latest", 1)
    refused = det("e", "set", "gc-policy", 1, *numbers, "--yes")
    assert "save_experiment_best: must be at least 0" in refused.stderr
    assert "save_trial_best: must be at least 0" in refused.stderr
    assert master.collections == []


def test_a_deleted_checkpoint_is_restored(master, det, det_json) -> None:
    master.add_experiment()
    master.add_trial(1)
    uuid = master.add_checkpoint(1, {"a.pt": b"1"}).uuid
    assert f"Deleted checkpoint {uuid}; can be restored until " in det("c", "delete", uuid, "--yes").stdout
    assert "in the trash until" in det("c", "describe", uuid).stdout
    assert "in the trash until" in det("c", "list", 1).stdout
    assert det("c", "undelete", uuid).stdout == f"Restored checkpoint {uuid}\n"
    assert det_json("c", "undelete", uuid)[0]["state"] == "COMPLETED"
    assert det("c", "delete", uuid, "--now", "--yes").stdout == f"Deleted checkpoint {uuid}\n"
    assert "its files are gone" in det("c", "undelete", uuid).stderr


def test_a_bookmark_keeps_a_checkpoint(master, det, det_json) -> None:
    master.add_experiment()
    master.add_trial(1)
    uuid = master.add_checkpoint(1, {"a.pt": b"1"}).uuid
    shown = det("c", "bookmark", uuid, "--note", "for the paper").stdout
    assert shown == f"Checkpoint {uuid}: bookmarked\n  kept: bookmarked: for the paper\n"
    assert "kept: bookmarked: for the paper" in det("c", "describe", uuid).stdout
    assert "is in use: bookmarked: for the paper" in det("c", "delete", uuid, "--yes").stderr
    assert det_json("c", "unbookmark", uuid) == {uuid: []}


def test_what_was_not_deleted_nor_bookmarked_is_told_so(master, det) -> None:
    master.add_experiment()
    master.add_trial(1)
    uuid = master.add_checkpoint(1, {"a.pt": b"1"}).uuid
    assert det("c", "undelete", uuid).stdout == f"Checkpoint {uuid} is not deleted\n"
    assert det("c", "unbookmark", uuid).stdout == f"Checkpoint {uuid}: had no bookmark\n"
    det("c", "bookmark", uuid)
    assert det("c", "unbookmark", uuid).stdout == f"Checkpoint {uuid}: bookmark removed\n"


def test_no_time_is_told_until_which_what_goes_now_can_be_restored(master, det, monkeypatch) -> None:
    item = SimpleNamespace(uuid=UUIDS[0], view=SimpleNamespace(trash_until=2e9), delete=lambda *, now: None)
    monkeypatch.setattr("detlab.client.Client.get_checkpoint", lambda client, uuid: item)
    assert "can be restored until 2033-" in det("c", "delete", UUIDS[0], "--yes").stdout
    assert det("c", "delete", UUIDS[0], "--now", "--yes").stdout == f"Deleted checkpoint {UUIDS[0]}\n"


def test_a_policy_that_deletes_nothing_says_so(master, det, saved) -> None:
    found = master.previews[1]
    master.previews[1] = found.model_copy(update={"items": found.items[1:], "going": 0, "freed": 0})
    assert det("e", "gc", 1, "--dry-run").stdout.splitlines()[-1] == "Experiment 1: nothing to delete; 2 (50 B) stay"


def test_a_negative_policy_is_not_called_an_experiment_config(master, det, saved) -> None:
    numbers = ("--save-experiment-best=-1", "--save-trial-best=0", "--save-trial-latest", 1)
    refused = det("e", "set", "gc-policy", 1, *numbers, "--dry-run").stderr
    assert refused.startswith("Error: this is no policy for checkpoints\n")
