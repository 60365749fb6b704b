"""`det job`, against a scripted master."""

from __future__ import annotations

import time

import pytest

from detlab.schemas.jobwire import HintView, JobView, JobWhy, WaitView

HOSTILE = "\x1b[31mred\x1b]0;x\x07"


def job(job_id: str, order: int, **facts: object) -> JobView:
    given: dict[str, object] = {
        "id": job_id, "kind": "experiment", "owner": "alice", "mine": True, "pool": "default", "state": "queued",
        "order": order, "priority": 42, "submitted_at": 1.9e9, **facts,
    }  # fmt: skip
    return JobView.model_validate(given)


@pytest.fixture(autouse=True)
def three(master) -> None:
    master.jobs = [
        job("7", 1, name=HOSTILE, state="running", slots_held=4),
        job("place 2", 2, owner="another user", mine=False, slots_wanted=8, tasks_waiting=1),
        job("command-1a", 3, kind="command", slots_wanted=2, tasks_waiting=1, reason="needs 2 slots: 0 of 4 are free",
            estimated_start=time.time() + 620, moved=True),
    ]  # fmt: skip


def test_list(det, det_json) -> None:
    shown = det("job", "list").stdout
    assert "experiment 7" in shown
    assert "command command-1a" in shown
    assert "3 (moved)" in shown
    assert "in 10m" in shown
    assert "unknown" in shown  # the other's
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert det("j", "ls").stdout.splitlines()[0] == shown.splitlines()[0]
    assert [item["id"] for item in det_json("job", "list", "--mine")] == ["7", "command-1a"]
    assert det_json("job", "list", "--pool", "other") == []
    assert det("job", "list", "--pool", "other").stdout == "No running or pending jobs.\n"


def test_update(det, det_json, master) -> None:
    said = det("job", "update", "command-1a", "--priority", 10, "--weight", "2.5").stdout
    assert said == "Job command-1a: position 3 in the pool default, priority 10, weight 2.5\n"
    assert det_json("job", "update", "command-1a", "--ahead-of", "7")["order"] == 1
    assert [item.id for item in master.jobs] == ["command-1a", "7", "place 2"]
    assert det_json("job", "update", "command-1a", "--behind-of", "7")["order"] == 2
    assert det("job", "update", "9", "--priority", 3).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "nothing to change"),
        (("--priority", 0), "1<=x<=99"),
        (("--weight", 0), "weight: "),
        (("--weight", "nan"), "weight: "),
        (("--ahead-of", 1, "--behind-of", 2), "not both"),
    ],
)
def test_mistakes_are_said_before_anything_is_asked(det, master, arguments: tuple[object, ...], said: str) -> None:
    before = list(master.jobs)
    refused = det("job", "update", "7", *arguments)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert master.jobs == before


def test_update_of_several(det, det_json, master) -> None:
    done = det_json("job", "update-batch", "7.priority=10", "command-1a.weight=2", "command-1a.ahead-of=7")
    assert [(item["id"], item["priority"], item["weight"]) for item in done] == [
        ("7", 10, 1.0),
        ("command-1a", 42, 2.0),
    ]
    assert master.jobs[0].id == "command-1a"
    for wrong in ("7.colour=red", "7", "priority=3", "7.priority=", "7.priority=x"):
        assert det("job", "update-batch", wrong).exit_code == 2, wrong


def test_why(det, det_json, master) -> None:
    waits = WaitView(
        trial_id=12, slots=8, pool="default", place=2, ahead=1, reason="no_free_slots",
        detail=f"needs 8 slots: 4 of 8 are free {HOSTILE}",
        hints=[HintView(change="slots", value="4", text="would start now with 4 slots")],
    )  # fmt: skip
    master.whys["7"] = JobWhy(job=master.jobs[0], items=[waits], waiting=3)
    master.whys["trial-12"] = JobWhy(job=master.jobs[0], items=[waits], waiting=1)
    master.whys["command-1a"] = JobWhy(job=master.jobs[2])
    shown = det("job", "why", 7).stdout
    assert "Trial 12 of experiment 7: needs 8 slots: 4 of 8 are free" in shown
    assert "→ would start now with 4 slots" in shown
    assert "starts    unknown" in shown
    assert "2 of the pool's queue, 1 of other jobs before it" in shown
    assert "2 more of its tasks wait" in shown
    assert "\x1b" not in shown
    assert det_json("job", "why", "--trial", 12)["items"][0]["reason"] == "no_free_slots"
    assert det_json("job", "why", "trial-12") == det_json("job", "why", "-t", "12")
    assert det("job", "why", "command-1a").stdout.startswith("No task of command command-1a waits")
    assert det("job", "why", 8).exit_code == 1


def test_why_says_that_an_experiment_is_paused(det, master) -> None:
    master.whys["7"] = JobWhy(job=master.jobs[0].model_copy(update={"state": "PAUSED", "slots_held": 0}))
    assert "It is paused, and starts nothing until it is activated" in det("job", "why", 7).stdout


def test_why_says_once_what_holds_of_several_tasks(det, master) -> None:
    def waits(trial: int, slots: int) -> WaitView:
        hints = [HintView(change="slots", value="1", text="would start now with 1 slot")]
        return WaitView(trial_id=trial, slots=slots, pool="default", place=trial - 10, reason="no_free_slots",
                        detail=f"needs {slots} slots: 1 of 2 free", hints=hints)  # fmt: skip

    master.whys["7"] = JobWhy(job=master.jobs[0], items=[waits(11, 2), waits(12, 2), waits(13, 4)], waiting=3)
    shown = det("job", "why", 7).stdout
    assert "Trials 11, 12 of experiment 7: needs 2 slots: 1 of 2 free\n" in shown
    assert "1, 2 of the pool's queue" in shown
    assert "\nTrial 13 of experiment 7: needs 4 slots" in shown
    assert shown.count("would start now") == 2


def test_why_of_a_task_in_the_queue_of_a_batch_system_is_in_its_words(det, master) -> None:
    said = f"Slurm job 7: Priority, expected to start 2026-11-27 16:00:00 {HOSTILE}"
    waits = WaitView(trial_id=12, slots=8, pool="slurm", place=0, reason="batch_system", detail=said)
    master.whys["7"] = JobWhy(job=master.jobs[0], items=[waits], waiting=1)
    shown = det("job", "why", 7).stdout
    assert "Trial 12 of experiment 7: Slurm job 7: Priority, expected to start 2026-11-27 16:00:00" in shown
    assert "in the cluster's own queue" in shown
    assert "unknown" not in shown, "the start is in the reason"
    assert "\x1b" not in shown


def test_list_leaves_out_what_is_the_same_of_all(master, det) -> None:
    def head() -> str:
        return str(det("job", "list").stdout.splitlines()[0])

    assert "Starts" in head()
    assert "Weight" not in head()
    master.jobs = [job("7", 1, weight=2.0, slots_held=1), job("8", 2, slots_wanted=2, tasks_waiting=1)]
    assert "Weight" in head()
    assert "Starts" not in head(), "nobody knows"
    assert "unknown" not in det("job", "list").stdout
