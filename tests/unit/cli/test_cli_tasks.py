"""`det task`, `queue`, `tensorboard`, the operator's commands … against a fake master."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from detlab.errors import Problem
from detlab.schemas.jobwire import JobView, JobWhy
from detlab.schemas.taskwire import AuditItem, IdleGpuView, QueueItem, TokenView, UsageRow
from detlab.schemas.wire import FailureView, ProblemView

HOSTILE = "\x1b]0;owned\x07\x1b[31m[red]evil[/red]\x1b[0m\u202egnp\x9b2J\nsecond <img src=x onerror=alert(1)>"
SHOWN = "[red]evil[/red]gnp second <img src=x onerror=alert(1)>"


# --- finding ------------------------------------------------------------------------------------------------


def test_an_unknown_id_suggests_near_ones(master, det) -> None:
    view = master.add_task("shell", "brave-otter")
    near = view.id.replace("shell", "shel")
    result = det("shell", "logs", near)
    assert result.exit_code == 1
    assert f"there is no shell '{near}' of yours" in result.stderr
    assert f"Did you mean {view.id}?" in result.stderr
    assert "det shell list" in result.stderr
    assert f"Did you mean {view.id}?" in det("task", "describe", "brave-oter").stderr
    assert "Did you mean" not in det("task", "describe", "zzzzzz").stderr


def test_another_users_id_is_as_if_it_were_not_there(master, det) -> None:
    """The master says not found for it, and lists only one's own."""
    result = det("notebook", "kill", "notebook-ffff00001111")
    assert result.exit_code == 1
    assert "there is no notebook 'notebook-ffff00001111' of yours" in result.stderr


def test_ids_may_be_cut_and_names_used_when_they_are_clear(master, det) -> None:
    for number in ("aaaa11112222", "aaaa33334444"):
        master.tasks[f"shell-{number}"] = master.add_task("shell", number).model_copy(update={"id": f"shell-{number}"})
    master.add_task("shell", "the-one")
    assert "shell-aaaa11112222" in det("shell", "describe", "aaaa1").stdout
    assert "shell-aaaa33334444" in det("shell", "describe", "shell-aaaa3").stdout
    assert "matches 2 shells" in det("shell", "describe", "aaaa").stderr
    assert "there is no shell 'aaa'" in det("shell", "describe", "aaa").stderr
    assert "the-one" in det("shell", "describe", "the-one").stdout


def test_the_wrong_kind_names_the_right_command(master, det) -> None:
    view = master.add_task("notebook")
    result = det("shell", "kill", view.id)
    assert result.exit_code == 1
    assert f"{view.id} is a notebook, not a shell" in result.stderr
    assert "det notebook --help" in result.stderr
    assert not master.tasks[view.id].state.terminal


@pytest.mark.slow
def test_completion_of_ids(master) -> None:
    master.add_task("notebook", "one")
    over = master.add_task("notebook", "two")
    master.end_task(over.id)
    master.add_task("shell")
    words = {"_DET_COMPLETE": "bash_complete", "COMP_WORDS": "det notebook kill n", "COMP_CWORD": "3"}
    code = [sys.executable, "-c", "from detlab.cli import main; main()"]
    found = subprocess.run(code, env={**os.environ, **words}, capture_output=True, text=True, check=False)
    assert found.stdout == "plain,notebook-0001\n"
    words["DET_URL"] = "http://127.0.0.1:9"
    found = subprocess.run(code, env={**os.environ, **words}, capture_output=True, text=True, check=False)
    assert (found.stdout.strip(), found.stderr) == ("", "")


# --- list, describe, logs, kill -----------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["notebook", "shell", "cmd", "tensorboard", "task", "queue"])
def test_empty_states_say_what_to_do(det, group: str) -> None:
    result = det(group) if group == "queue" else det(group, "list")
    assert result.exit_code == 0
    assert result.stdout.startswith(("No ", "Queue is empty"))
    assert group == "queue" or "Try: det " in result.stdout


def test_lists_show_each_kind_its_own(master, det, det_json) -> None:
    master.add_task("notebook", HOSTILE)
    master.add_task("shell")
    waits = master.add_task("command", place=2, pending_reason="no free slot")
    failed = master.add_task("command")
    master.end_task(failed.id, 3)
    shown = det("task", "list").stdout
    assert SHOWN in shown
    assert "\x1b" not in shown
    assert "position 2: no free slot" in shown
    assert "failed (3)" in shown
    assert len(det("cmd", "list").stdout.splitlines()) == 4
    assert det("command", "list").stdout == det("cmd", "list").stdout
    assert [item["id"] for item in det_json("cmd", "list")] == [failed.id, waits.id]
    assert [item["kind"] for item in det_json("task", "list", "--kind", "shell")] == ["shell"]
    assert det_json("task", "list", "--state", "error")[0]["id"] == failed.id
    assert len(det_json("task", "list", "-n", "2")) == 2
    assert "No commands match." in det("cmd", "list", "--owner", "bob").stdout


def test_a_list_says_when_what_is_idle_will_be_ended(master, det) -> None:
    soon = time.time() + 7230  # half a minute more than is read
    master.add_task("tensorboard", cull_at=soon)
    over = master.add_task("shell", cull_at=soon)
    master.end_task(over.id)
    assert det("task", "list").stdout.count("idle; ends in 2h 00m") == 1
    assert "idle; ends in 2h 00m" in det("tensorboard", "list").stdout
    assert "idle" not in det("shell", "list").stdout


def test_gpus_that_do_nothing_are_told(master, det) -> None:
    now = time.time()
    master.add_task("notebook", slots_needed=2, gpus_idle_since=now - 41 * 60 - 5)
    view = master.add_task("command", slots_needed=1, gpus_idle_since=now - 3600, gpus_released_at=now + 305)
    shown = det("task", "list").stdout
    assert "2 slots at 0 % for 41m" in shown
    assert "1 slot at 0 % for 1h 00m; ends in 5m" in shown
    assert "GPUs at 0 %" in det("cmd", "describe", view.id).stdout


def test_usage_and_why_name_who_holds_gpus_at_zero(master, det) -> None:
    since = time.time() - 41 * 60 - 5
    master.idle = [
        IdleGpuView(user=HOSTILE, task_id="notebook-1", slots=2, since=since),
        IdleGpuView(user="ada", experiment_id=7, trial_id=31, slots=1, since=since),
    ]
    shown = det("usage").stdout
    assert SHOWN in shown
    assert "notebook-1" in shown
    assert "31" in shown
    job = JobView(id="7", kind="experiment", owner="ada", state="ACTIVE", order=1, priority=42, slots_held=1)
    master.whys["7"] = JobWhy(job=job, idle=master.idle[1:])
    assert det("job", "why", "7").stdout.splitlines() == [
        "Trial 31 of experiment 7 holds 1 slot, 0 % for 41m 05s.",
        "No task of experiment 7 waits: it holds 1 slot.",
    ]


def test_describe(master, det, det_json) -> None:
    view = master.add_task("command", HOSTILE, config={"entrypoint": "x"})
    master.end_task(view.id, 1, failure=FailureView(kind="exception", message=HOSTILE, log_tail=[HOSTILE]))
    shown = det("cmd", "describe", view.id).stdout
    assert f"{view.id}: {SHOWN}" in shown
    assert f"det cmd logs {view.id}" in shown
    assert "\x1b" not in shown
    assert det_json("cmd", "describe", view.id)["config"] == {"entrypoint": "x"}


def test_logs(master, det) -> None:
    view = master.add_task("command")
    assert f"Command {view.id} has no output yet." in det("cmd", "logs", view.id).stderr
    for number in range(5):
        master.task_log(view.id, f"line {number} {HOSTILE}")
    assert det("cmd", "logs", view.id, "--tail", "1").stdout == f"line 4 {SHOWN}\n"
    master.end_task(view.id)
    assert len(det("cmd", "logs", view.id, "-f").stdout.splitlines()) == 5
    assert json.loads(det("task", "logs", view.id, "--tail", "1", "--json").stdout)["task_id"] == view.id


def test_kill_ends_all_or_nothing(master, det, det_json) -> None:
    one, two = master.add_task("shell"), master.add_task("shell")
    assert det("shell", "kill", one.id, "nowhere").exit_code == 1
    assert not master.tasks[one.id].state.terminal
    result = det("shell", "kill", one.id, two.id, one.id)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [f"Shell {one.id}: killed", f"Shell {two.id}: killed"]


def test_killing_what_is_over_says_so_and_succeeds(master, det, det_json) -> None:
    view = master.add_task("command")
    master.end_task(view.id, 3)
    result = det("cmd", "kill", view.id)
    assert result.exit_code == 0
    assert result.stderr == f"Command {view.id} has already ended: failed (3).\n"
    assert ("POST", f"tasks/{view.id}/kill") not in master.requests


# --- tensorboards, shells -----------------------------------------------------------------------------------


def test_tensorboard_of_experiments_and_trials(master, det, comes_up) -> None:
    master.add_experiment()
    master.add_trial(1)
    assert det("tb", "start", "1", "--trial", "1", "--no-open").exit_code == 0
    assert (master.asked[0].experiment_ids, master.asked[0].trial_ids) == ([1], [1])
    assert "there is no experiment 7" in det("tb", "start", "7").stderr
    result = det("tb", "start")
    assert result.exit_code == 2
    assert "det tensorboard start 7" in result.stderr


def test_shell_start_without_a_terminal_prints_the_address(master, det, comes_up) -> None:
    result = det("shell", "start")
    assert result.exit_code == 0
    assert f"Shell shell-0001: {master.url}/user/alice/shell-0001/" in result.stdout


# --- waiting, outputs ---------------------------------------------------------------------------------------


def test_wait(master, det) -> None:
    view = master.add_task("command")
    result = det("task", "wait", view.id, "--timeout", "0.2")
    assert result.exit_code == 5
    assert "it continues" in result.stderr
    master.end_task(view.id, 9)
    assert det("task", "wait", view.id).exit_code == 9
    done = master.add_task("cell")
    master.end_task(done.id)
    assert det("task", "wait", done.id).stdout == f"Cell {done.id}: completed.\n"


def test_outputs(master, det, det_json, workplace: Path) -> None:
    view = master.add_task("notebook_run")
    assert det("task", "outputs", view.id).stdout == "No outputs yet.\n"
    master.add_output(view.id, "run.ipynb", b"{}")
    master.add_output(view.id, "plots/a.png", b"png")
    assert "run.ipynb" in det("task", "outputs", view.id).stdout
    assert [item["name"] for item in det_json("task", "outputs", view.id)] == ["run.ipynb", "plots/a.png"]
    assert det("task", "outputs", view.id, "-o", "out").stdout.splitlines() == ["out/run.ipynb", "out/plots/a.png"]
    assert (workplace / "out" / "plots" / "a.png").read_bytes() == b"png"
    assert "has no output 'b'" in det("task", "outputs", view.id, "b").stderr


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "a\\b"])
def test_outputs_stay_in_the_folder(master, det, workplace: Path, name: str) -> None:
    view = master.add_task("cell")
    master.add_output(view.id, name, b"x")
    result = det("task", "outputs", view.id, "-o", "out")
    assert result.exit_code == 1
    assert "a name that is not valid for a file" in result.stderr
    assert not (workplace / "out").exists()


def test_an_altered_output_is_not_kept(master, det, workplace: Path) -> None:
    view = master.add_task("cell")
    output = master.add_output(view.id, "x", b"x")
    master.blobs[output.digest] = b"y"
    assert det("task", "outputs", view.id, "-o", "out").exit_code == 1
    assert not (workplace / "out" / "x").exists()


# --- queue, administration ----------------------------------------------------------------------------------


def test_queue(master, det, det_json) -> None:
    master.queue = [
        QueueItem(allocation_id="a", place=1, kind="trial", owner="another user", trial_id=4, reason=HOSTILE, slots=8),
        QueueItem(allocation_id="b", place=2, kind="command", owner="alice", mine=True, task_id="command-1"),
    ]
    shown = det("queue").stdout
    assert SHOWN in shown
    assert "command command-1" in shown
    assert "trial 4" in shown
    assert [item["place"] for item in det_json("q", "--mine")] == [2]
    for words in (("queue", "list"), ("q", "ls")):
        assert det(*words).stdout == shown


def test_agents_are_switched_enrolled_removed(master, det) -> None:
    master.add_agent("node1")
    assert det("agent", "disable", "node1").stdout == "Agent node1: disabled, 0 tasks run\n"
    assert "connected, disabled" in det("agent", "list").stdout
    assert det("agent", "enable", "node1").stdout == "Agent node1: enabled, 0 tasks run\n"
    result = det("agent", "enrol")
    assert result.stdout == "dtenrol_abc\n"
    assert "--enrolment-token-file" in result.stderr
    assert det("agent", "remove", "node1").exit_code == 2
    assert det("agent", "remove", "node1", "--yes").exit_code == 0
    assert "there is no agent node1" in det("agent", "disable", "node1").stderr


def test_audit_usage_tokens(master, det, det_json) -> None:
    master.audit = [AuditItem(id=1, time=1.0, actor="ada", action="task.kill", subject=HOSTILE)]
    master.usage = [UsageRow(day="2030-01-01", user="=cmd|x", kind="trial", slot_hours=1.5)]
    master.task_tokens = {"abc": TokenView(id="abc", kind="agent", subject="node1")}
    assert SHOWN in det("audit").stdout
    assert det("audit", "--actor", "bob").stdout == "No actions match.\n"
    assert "1.50" in det("usage").stdout
    assert det("usage", "--csv").stdout == "day,user,kind,slot_hours\n2030-01-01,'=cmd|x,trial,1.50\n"
    assert "node1" in det("token", "list").stdout
    assert det("token", "revoke", "abc").stdout == "Revoked abc\n"
    assert det("token", "revoke", "abc").exit_code == 1


def test_no_cluster_is_told_with_the_next_command(det, monkeypatch) -> None:
    monkeypatch.delenv("DET_URL")
    for words in (("notebook", "start"), ("cmd", "run", "x"), ("task", "list"), ("queue",), ("shell", "open", "x")):
        result = det(*words)
        assert result.exit_code == 1
        assert "no cluster found" in result.stderr
        assert "det up" in result.stderr


def test_errors_as_json(master, det) -> None:
    result = det("task", "describe", "nowhere", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["code"] == "not_found"


def test_problem_type_is_the_wires() -> None:
    assert ProblemView.model_validate(Problem("a", "b").to_dict()).path == "a"
