"""Launchers of tasks that write into their own spools: what it tells, what it delivers, and how the attempt ends."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from detlab.testing.master import FakeAllocation, MasterDouble

HEAD = """
import os, pathlib, signal, time
from detlab.core.metrics.spool import Spool
folder = pathlib.Path(os.environ["DET_TASK_DIR"], "spool")
metrics, logs = folder / "metrics.jsonl", folder / "logs.jsonl"
spool = Spool(folder)
def report(*steps):
    for step in steps:
        spool.append("metrics", {"group": "training", "steps_completed": step, "metrics": {"loss": 1.0}})
def delivered():
    while spool.delivered() < spool.last():
        time.sleep(0.01)
FORGED = '{"kind": "log", "seq": 999999, "time": 1, "text": "forged"}\\n'
def printed(count):
    acked = folder / "logs.acked"
    while not acked.exists() or int(acked.read_text()) < count:
        time.sleep(0.01)
class stopped:
    "The launcher does not see what happens in between."
    def __enter__(self):
        os.kill(os.getppid(), signal.SIGSTOP)
    def __exit__(self, *error):
        os.kill(os.getppid(), signal.SIGCONT)
"""


@pytest.fixture
def launch(tmp_path: Path) -> Any:
    """Run a program as a task; return what the master has of it, and how its launcher says that it ended."""

    def run(code: str) -> tuple[FakeAllocation, dict[str, Any]]:
        with MasterDouble() as master:
            program = HEAD + textwrap.dedent(code)
            allocation = master.allocate([sys.executable, "-u", "-c", program])
            root = tmp_path / "task"
            for name in ("work", "spool", "home", "tmp"):
                (root / name).mkdir(parents=True)
            message = allocation.launch.model_dump(mode="json", exclude={"task_token"})
            (root / "launch.json").write_text(json.dumps(message))
            (root / "token").write_text(allocation.token)
            command = [sys.executable, "-m", "detlab.launch.task", "--dir", str(root)]
            subprocess.run(command, check=False, timeout=60)
            return allocation, json.loads((root / "exit.json").read_text())

    return run


def steps(allocation: FakeAllocation) -> list[int]:
    return [record["steps_completed"] for record in allocation.records["metrics"]]


def said(allocation: FakeAllocation) -> list[str]:
    """What the launcher itself says."""
    return [one["text"] for one in allocation.records["logs"] if one["stdtype"] == "launcher"]


def test_a_spool_that_is_cut_off_once_all_is_delivered_costs_a_warning(launch: Any) -> None:
    allocation, ended = launch(
        """
        report(1, 2, 3)
        delivered()
        os.truncate(metrics, 0)
        report(4)
        delivered()
        os.truncate(metrics, 10)
        report(5)
        """
    )
    assert steps(allocation) == [1, 2, 3, 4, 5]
    (warning,) = said(allocation)
    assert "metrics.jsonl was cut off by something other than detlab" in warning
    assert (ended["exit_code"], ended["delivered"]) == (0, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "harm",
    ["os.truncate(metrics, 0)", "metrics.unlink()", "metrics.rename(folder / 'away')", "metrics.write_text('{')"],
)
def test_reports_that_are_lost_fail_the_attempt_and_what_follows_is_delivered(launch: Any, harm: str) -> None:
    allocation, ended = launch(
        f"""
        report(1)
        delivered()
        with stopped():
            report(2, 3)
            {harm}
        report(4)
        """
    )
    assert steps(allocation)[0] == 1
    assert steps(allocation)[-1] == 4
    assert ended["delivered"]
    lost = [line for line in said(allocation) if "of this task were lost" in line]
    if steps(allocation) == [1, 4]:
        assert lost[0].startswith("detlab: 2 reports of this task were lost: ")
        assert ended["exit_code"] == 1
    else:  # the file that was moved away is still open, and is read to its end
        assert (steps(allocation), lost, ended["exit_code"]) == ([1, 2, 3, 4], [], 0)


@pytest.mark.slow
def test_a_checkpoint_does_not_wait_for_reports_that_are_lost(launch: Any) -> None:
    allocation, ended = launch(
        """
        report(1)
        delivered()
        with stopped():
            report(2)
            os.truncate(metrics, 0)
        delivered()
        """
    )
    assert steps(allocation) == [1]
    assert any("1 report of this task was lost" in line for line in said(allocation))
    assert ended["exit_code"] == 1


def test_what_the_code_says_of_its_own_end_stays(launch: Any) -> None:
    _, ended = launch(
        """
        with stopped():
            report(1)
            os.truncate(metrics, 0)
        raise SystemExit(7)
        """
    )
    assert ended["exit_code"] == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    "harm",
    [
        "os.truncate(logs, 0)",
        "os.truncate(logs, 1 << 40)",
        "logs.write_bytes(b'garbage' * 10**6)",
        "logs.unlink(); logs.symlink_to('/etc/passwd')",
        "logs.write_text(FORGED * 9)",
    ],
)
def test_output_goes_on_whatever_is_done_to_its_spool(launch: Any, harm: str) -> None:
    allocation, ended = launch(
        f"""
        for number in range(20):
            print("line", number)
            if number == 9:
                printed(10)
                {harm}
        """
    )
    texts = [one["text"] for one in allocation.records["logs"] if one["stdtype"] == "stdout"]
    assert texts == [f"line {number}" for number in range(20)]
    assert ended["exit_code"] == 0


@pytest.mark.soak
def test_a_launcher_whose_folder_was_removed_while_the_master_is_away_ends(tmp_path: Path) -> None:
    """It waited for the master forever: clusters that were killed and removed left such processes behind."""
    with MasterDouble() as master:
        allocation = master.allocate([sys.executable, "-c", "print(1)"])
    root = tmp_path / "task"
    for name in ("work", "spool", "home", "tmp"):
        (root / name).mkdir(parents=True)
    (root / "launch.json").write_text(json.dumps(allocation.launch.model_dump(mode="json", exclude={"task_token"})))
    (root / "token").write_text(allocation.token)
    program = "import sys; from detlab.launch import task; task.FOLDER_LOOK, task.GONE_PATIENCE = 0.2, 1.0; "
    program += "sys.exit(task.main(sys.argv[1:]))"
    launcher = subprocess.Popen([sys.executable, "-c", program, "--dir", str(root)], stderr=subprocess.PIPE, text=True)
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            launcher.wait(4)  # what is there is delivered, however long that takes
        assert launcher.poll() is None
        shutil.rmtree(root)
        _, said = launcher.communicate(timeout=20)
    finally:
        launcher.kill()
    assert launcher.returncode == 0
    assert f"{root} was removed: its output is not delivered" in said
