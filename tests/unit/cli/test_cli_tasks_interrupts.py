"""Ctrl-C at a command that is followed: it asks once, and never ends the command by itself."""

import contextlib
import signal
import subprocess
import sys

import pytest

from testbed.fake_master.api import FakeMaster
from testbed.front.local_terminal import on_a_terminal

DET = [sys.executable, "-c", "from detlab.cli import main; main()"]


@pytest.fixture
def runs(master: FakeMaster) -> FakeMaster:
    """A command prints a line and goes on for ever."""

    def begin(view) -> None:
        master.bring_up(view.id)
        master.task_log(view.id, "begun")

    master.on_create = begin
    return master


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "status", "killed"), [(b"l\n", 130, False), (b"k\n", 137, True), (b"\x03", 130, False)]
)
def test_ctrl_c_asks_once_leave_or_kill(runs: FakeMaster, key: bytes, status: int, killed: bool) -> None:
    with on_a_terminal([*DET, "cmd", "run", "x"]) as terminal:
        terminal.until(b"begun")
        terminal.type(b"\x03")
        terminal.until(b"(k)ill it")
        terminal.type(key)
        if key == b"\x03":
            # Python's input() can miss a signal that comes just before it waits; people press the key again.
            for _ in range(10):
                with contextlib.suppress(AssertionError):
                    terminal.end(3.0)
                    break
                terminal.type(key)
        assert terminal.end() == status, terminal.seen
    assert runs.tasks["command-0001"].state.terminal is killed
    if not killed:
        assert b"det cmd kill command-0001" in terminal.seen
    assert b"Traceback" not in terminal.seen


def test_ctrl_c_and_go_on_watching(runs: FakeMaster) -> None:
    with on_a_terminal([*DET, "cmd", "run", "x"]) as terminal:
        terminal.until(b"begun")
        terminal.type(b"\x03")
        terminal.until(b"(k)ill it")
        runs.task_log("command-0001", "more")
        terminal.type(b"c\n")
        terminal.until(b"more")
        runs.end_task("command-0001", 0)
        assert terminal.end() == 0
    assert terminal.seen.count(b"begun") == 1


@pytest.mark.slow
@pytest.mark.parametrize("words", [("cmd", "run", "x"), ("notebook", "start"), ("task", "wait", "command-0001")])
def test_ctrl_c_without_a_terminal_leaves_it_running(master: FakeMaster, words: tuple[str, ...]) -> None:
    if words[0] == "task":
        master.add_task("command")
    with subprocess.Popen([*DET, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        followed = "tasks/command-0001/logs/stream" if words[0] == "task" else "stream"
        master.await_request("GET", followed)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "continues" in errors
    assert "Traceback" not in errors
    assert not next(iter(master.tasks.values())).state.terminal


@pytest.mark.slow
def test_the_way_up_is_a_moving_line_on_a_terminal(master: FakeMaster) -> None:
    master.on_create = lambda view: master.update_task(
        view.id, place=2, pending_reason="no free slot", allocation_state="PENDING"
    )
    with on_a_terminal([*DET, "notebook", "start", "--no-open"]) as terminal:
        terminal.until(b"position 2: no free slot")
        master.bring_up("notebook-0001")
        assert terminal.end() == 0
    assert b"/user/alice/notebook-0001/lab" in terminal.seen
