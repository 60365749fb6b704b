"""The zygote, its fork, the launcher or the agent dies at each step of a warm start, or a step fails: one run only.

The zygote is the real one but for torch, which the handshake does not need; a file names the step at which whoever
comes to it dies or fails.
"""

import contextlib
import os
import re
import sys
import tempfile
from pathlib import Path

import pytest
from agent_helpers import AgentProcess, wait_until

from detlab.launch.host import procfs
from detlab.testing.master import MasterDouble

READY = re.compile(r"zygote (\d+) is ready")

# In the agent and in the zygote: `step(owner, name, "…")` has the function die or fail when the file names this step.
STEPS = """
import contextlib, os, signal
from pathlib import Path
root = Path({root!r})
def reached(name):
    wanted = (root / "step").read_text()
    if wanted == name:
        with (root / "reached").open("a") as file:
            file.write(name + chr(10))
        with contextlib.suppress(OSError):  # the launcher may be its user already
            (root / "step").write_text("")
    return wanted == name
def step(owner, function, name, fails=None, when=lambda *a: True):
    real = getattr(owner, function)
    def planted(*arguments, **named):
        if when(*arguments) and reached(name):
            if fails is None:
                os.kill(os.getpid(), signal.SIGKILL)
            raise fails
        return real(*arguments, **named)
    setattr(owner, function, planted)
"""
ZYGOTE = (
    STEPS
    + """
import socket
from detlab.warm import child, zygote
zygote.preload = lambda: []
mine, again = os.getpid(), BlockingIOError(11, "no more processes")
def who():
    return "zygote" if os.getpid() == mine else "fork" if os.getsid(0) == mine else "launcher"
step(zygote, "check_single", "the zygote has a message")
for name in ("zygote", "fork", "launcher"):
    step(os, "fork", f"no fork of the {{name}}", again, lambda name=name: who() == name)
step(os, "waitpid", "the zygote has forked", when=lambda *a: who() == "zygote")
step(socket, "recv_fds", "the fork begins")
step(zygote, "set_environment", "the fork knows its task")
step(zygote, "_say", "the fork has forked", when=lambda *a: who() == "fork")
step(os, "setsid", "the launcher is there")
step(os, "setsid", "no session for the launcher", OSError(1, "no session"))
step(os, "read", "the launcher waits")
step(child, "keep_only", "the launcher may go")
step(os, "write", "the launcher is about to begin")
step(child, "Launcher", "the launcher has begun")
step(child.Interpreter, "check", "the launcher may not look", PermissionError(13, "not yours"))
step(os, "setpgid", "no group for the trial", OSError(1, "no group"), when=lambda *a: a[0] == 0)
step(child.Interpreter, "become", "the trial cannot become itself", OSError(2, "no directory"))
step(child.Interpreter, "become", "the trial is there")
from detlab.warm.zygote import main
__zygote__ = True
main()
"""
)
AGENT = (
    STEPS
    + """
import sys
from detlab_agent.runtimes.process import runtime as process
from detlab_agent.runtimes.process import warm_pool
warm_pool.PROGRAM = {zygote!r}
warm_pool.RESTART_PAUSE = 0.0  # faults are planted one at a time: the next zygote can be forked
step(process, "_note", "the agent knows the launcher")
step(warm_pool.HeldLauncher, "go", "the agent has noted the launcher")
step(warm_pool.HeldLauncher, "drop", "the agent has said go")
from detlab_agent.commands import run
del sys.argv[1:5]
run()
"""
)
TRIAL = ["python3", "-c", "import os\nwith open(os.environ['RUNS'], 'a') as file: file.write('x')"]


class Place:
    """The agent, and the files in which steps are named and runs are counted."""

    def __init__(self, master, root):
        self.root = root
        options = () if os.geteuid() == 0 else ("--serves-user", "alice")
        self.agent = AgentProcess(master, root / "agent", *options, "--runtime", "process", "--warm-pool")
        program = AGENT.format(root=str(root), zygote=ZYGOTE.format(root=str(root)))
        self.agent.prefix = [sys.executable, "-P", "-c", program]
        (root / "runs").mkdir()
        (root / "runs").chmod(0o1777)
        for name in ("step", "reached"):
            (root / name).touch()
            (root / name).chmod(0o666 if name == "reached" else 0o644)

    def zygote(self, master):
        """Wait until one is ready; the agent notices the death of one at the next launch."""
        children = procfs.descendants(self.agent.process.pid)
        if not any("detlab.warm" in word for child in children for word in procfs.read_command(child.pid)):
            task = master.launch(TRIAL, environment={"RUNS": os.devnull})
            master.wait_for(lambda: task.exits, timeout=30)

        def living():
            found = READY.findall(self.agent.log.read_text())
            return found and procfs.is_alive(int(found[-1]), None)

        wait_until(living, 60, "a zygote is ready")

    def launch(self, master, step):
        """Start a trial that counts its runs; the named step is where somebody dies or fails."""
        self.zygote(master)
        (self.root / "reached").write_text("")
        (self.root / "step").write_text(step)
        runs = self.root / "runs" / re.sub(r"\W", "_", step or "none")
        return master.launch(TRIAL, environment={"RUNS": str(runs)}), runs

    def was_reached(self):
        (self.root / "step").write_text("")
        return (self.root / "reached").read_text().splitlines()


@pytest.fixture(scope="module")
def master():
    with MasterDouble() as double:
        yield double


@pytest.fixture(scope="module")
def place(master):
    with tempfile.TemporaryDirectory(prefix="detlab-warm-") as name:
        Path(name).chmod(0o711)
        place = Place(master, Path(name))
        place.agent.start()
        try:
            master.wait_for(master.connected, what="the agent connects")
            yield place
        finally:
            place.agent.end()
            print(place.agent.log.read_text())


def count(runs):
    with contextlib.suppress(FileNotFoundError):
        return len(runs.read_text())
    return 0


def test_without_a_fault_the_trial_is_forked(master, place):
    before = place.agent.log.read_text().count("starts cold")
    task, runs = place.launch(master, "")
    master.wait_for(lambda: task.exits, timeout=30)
    assert (task.exits[0].exit_code, count(runs)) == (0, 1)
    assert place.agent.log.read_text().count("starts cold") == before


@pytest.mark.parametrize(
    "step",
    [
        "the zygote has a message",
        "no fork of the zygote",
        "the zygote has forked",
        "the fork begins",
        "the fork knows its task",
        "no fork of the fork",
        "the fork has forked",
        "the launcher is there",
        "no session for the launcher",
        "the launcher waits",
        "the launcher may go",
        "the launcher is about to begin",
        "the launcher may not look",
        "no fork of the launcher",
    ],
)
def test_a_fault_before_the_trial_is_forked_costs_nothing_but_the_warmth(master, place, step):
    task, runs = place.launch(master, step)
    master.wait_for(lambda: task.exits, timeout=30)
    assert place.was_reached() == [step]
    assert (task.exits[0].exit_code, task.exits[0].reason, count(runs)) == (0, "", 1)
    assert len(task.exits) == 1
    assert place.agent.processes(task) == []


@pytest.mark.parametrize(
    ("step", "code", "reason"),
    [
        ("the launcher has begun", None, "launcher_lost"),
        ("no group for the trial", 127, ""),
        ("the trial cannot become itself", 127, ""),
        ("the trial is there", -9, ""),
    ],
)
def test_a_fault_after_the_launcher_has_begun_is_a_clear_failure_without_a_second_run(
    master, place, step, code, reason
):
    task, runs = place.launch(master, step)
    master.wait_for(lambda: task.exits, timeout=30)
    assert place.was_reached() == [step]
    assert (task.exits[0].exit_code, task.exits[0].reason, count(runs)) == (code, reason, 0)
    # On the program's own stderr: the copy of the launcher in the trial's process has not gone on as a second launcher.
    said = [text.partition(" [")[0] for text in master.texts(task, "stderr")]
    assert said == (["detlab: cannot start 'python3':"] if code == 127 else [])
    assert len(task.exits) == 1
    assert place.agent.processes(task) == []


@pytest.mark.parametrize(
    "step", ["the agent knows the launcher", "the agent has noted the launcher", "the agent has said go"]
)
def test_the_agent_dies_during_a_warm_start_and_the_attempt_runs_once(master, place, step):
    task, runs = place.launch(master, step)
    place.agent.process.wait(30)
    assert place.was_reached() == [step]
    hellos = len(master.hellos)
    place.agent.start()
    master.wait_for(lambda: len(master.hellos) > hellos, timeout=30)
    known = [running.allocation_id for running in master.hellos[-1].tasks]
    if step != "the agent has said go":
        assert known == []
    if not known:  # as the master does, which has not heard of a start
        master.wait_for(master.connected)
        master.send(task.launch)
    master.wait_for(lambda: task.exits, timeout=30)
    assert (task.exits[0].exit_code, task.exits[0].reason, count(runs)) == (0, "", 1)
    assert place.agent.processes(task) == []
