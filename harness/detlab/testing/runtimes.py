"""The contract of an agent's runtimes, as a class of tests.

class TestMyRuntime(RuntimeContract):
    runtime = "mine"

    @pytest.fixture
    def master(self):
        with MasterDouble() as double:
            yield double

    @pytest.fixture
    def agent(self, master):
        ...  # starts `det agent run --runtime mine --name agent --slots 2`, and waits until `master.connected()`

    def left_behind(self, agent, task):
        return [...]  # names of the directories, processes or jobs that still exist for the task

It sees what a master sees: messages, output and exits. So it says nothing of how a runtime works.
"""

from __future__ import annotations

import io
import signal
import tarfile
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Protocol

from detlab.testing.master import FakeAllocation, MasterDouble

COUNTS_UNTIL_SIGTERM = """
import signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
step = 0
while not asked:
    print("step", step, flush=True)
    step += 1
    time.sleep(0.05)
print("last", step, flush=True)
sys.exit(3)
"""
IGNORES_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True:
    time.sleep(60)
"""
ENDS_SOON = """
import sys, time
print("up", flush=True)
time.sleep(1)
print("over", flush=True)
sys.exit(4)
"""


class AgentUnderTest(Protocol):
    """An agent in a process of its own."""

    def start(self) -> None:
        """Start it, with the same directory as before."""
        ...

    def kill(self) -> None:
        """SIGKILL it; its tasks run on."""
        ...


class RuntimeContract:
    """Subclass it, name the runtime, give the fixtures `master` and `agent`, and let pytest collect the subclass."""

    runtime: ClassVar[str]
    tasks_are: ClassVar[Literal["here", "elsewhere"]] = "here"
    """As the runtime says of itself: whether its tasks have a directory on the agent's machine."""
    patience: ClassVar[float] = 40.0
    """Seconds that a task may take to start, or to be gone."""

    def launch(self, master: MasterDouble, entrypoint: str | Sequence[str], **options: Any) -> FakeAllocation:
        """Send a Launch; override it to add what the runtime needs, such as `container`.

        Args:
            master: The master.
            entrypoint: The command line.
            options: Further fields of the Launch, as `MasterDouble.allocate` takes them.
        """
        return master.launch(entrypoint, runtime=self.runtime, **options)

    def left_behind(self, agent: Any, task: FakeAllocation) -> Sequence[object]:
        """Return what still exists for a task: its directory, processes, containers or jobs. Override it."""
        raise NotImplementedError

    def wait_for(self, master: MasterDouble, condition: Callable[[], Any]) -> Any:
        """Wait until something is true of the master's state."""
        return master.wait_for(condition, timeout=self.patience)

    def running(self, master: MasterDouble, program: str, **options: Any) -> FakeAllocation:
        """Launch a Python program and wait for its first line."""
        task = self.launch(master, ["python3", "-u", "-c", program], **options)
        self.wait_for(master, lambda: master.texts(task, "stdout"))
        return task

    # --- start and exit -----------------------------------------------------------------------------------

    def test_the_agent_offers_the_runtime(self, master: MasterDouble, agent: AgentUnderTest) -> None:
        """Its Hello names it: the master sends no other agent a task of this runtime."""
        assert self.runtime in master.hellos[-1].runtimes

    def test_code_environment_output_and_exit_code_arrive(self, master: MasterDouble, agent: AgentUnderTest) -> None:
        """The entrypoint runs in the folder of its code; both of its streams and its exit code reach the master."""
        code = b"import os, sys\nprint('out', os.environ['GREETING'])\nprint('err', file=sys.stderr)\nsys.exit(5)\n"
        bundle = master.add_bundle(_bundle({"train.py": code}))
        task = self.launch(master, "python3 train.py", bundle=bundle, environment={"GREETING": "hi"})
        self.wait_for(master, lambda: task.exits)
        assert (task.exits[0].exit_code, task.exits[0].reason) == (5, "")
        assert master.texts(task, "stdout") == ["out hi"]
        assert master.texts(task, "stderr") == ["err"]
        assert task.started

    def test_a_program_that_does_not_exist_is_named(self, master: MasterDouble, agent: AgentUnderTest) -> None:
        """The exit code is the shell's 127, and the output says which program is missing."""
        task = self.launch(master, ["no-such-program-here"])
        self.wait_for(master, lambda: task.exits)
        assert task.exits[0].exit_code == 127
        assert "no-such-program-here" in "\n".join(master.texts(task))

    def test_a_launch_that_comes_twice_starts_one_task(self, master: MasterDouble, agent: AgentUnderTest) -> None:
        """A Launch is idempotent by allocation and run; each is answered by what runs."""
        task = self.running(master, COUNTS_UNTIL_SIGTERM)
        answers = task.started
        master.send(task.launch)
        self.wait_for(master, lambda: task.started > answers)
        master.send_kill(task)
        self.wait_for(master, lambda: task.exits)
        _check_counts(master, task)

    # --- kill -----------------------------------------------------------------------------------------------

    def test_a_kill_gives_the_program_time_to_end(self, master: MasterDouble, agent: AgentUnderTest) -> None:
        """SIGTERM comes first; what the program then says and its exit code arrive."""
        task = self.running(master, COUNTS_UNTIL_SIGTERM)
        master.send_kill(task, grace=self.patience)
        self.wait_for(master, lambda: task.exits)
        assert task.exits[0].exit_code == 3
        _check_counts(master, task)

    def test_a_program_that_ignores_sigterm_is_killed(self, master: MasterDouble, agent: AgentUnderTest) -> None:
        """After the grace, and by the shorter of two, every process of the task is killed."""
        task = self.running(master, IGNORES_SIGTERM)
        began = time.monotonic()
        master.send_kill(task, grace=2.0)
        master.send_kill(task, grace=600.0)
        self.wait_for(master, lambda: task.exits)
        assert time.monotonic() - began >= 2.0
        exit_ = task.exits[0]
        assert (exit_.exit_code, exit_.reason, exit_.message) == (-signal.SIGKILL, "", "")
        assert master.texts(task, "stdout") == ["up"]

    # --- the agent dies ---------------------------------------------------------------------------------------

    def test_a_task_is_adopted_by_the_next_agent(self, master: MasterDouble, agent: AgentUnderTest) -> None:
        """The task runs on and ships its output without an agent; the next one can kill it and reports its exit."""
        task = self.running(master, COUNTS_UNTIL_SIGTERM)
        agent.kill()
        seen = len(master.texts(task))
        self.wait_for(master, lambda: len(master.texts(task)) > seen + 3)
        answers, hellos = task.started, len(master.hellos)
        agent.start()
        self.wait_for(master, lambda: task.started > answers)
        listed = [(running.allocation_id, running.exited) for running in master.hellos[hellos].tasks]
        assert listed == [(task.launch.allocation_id, False)]
        assert task.starts[-1].pid == task.starts[0].pid
        master.send_kill(task, grace=self.patience)
        self.wait_for(master, lambda: task.exits)
        assert task.exits[0].exit_code == 3
        _check_counts(master, task)

    def test_an_exit_without_an_agent_is_reported_by_the_next(
        self, master: MasterDouble, agent: AgentUnderTest
    ) -> None:
        """A task may end while no agent watches it; its exit code is not lost."""
        task = self.running(master, ENDS_SOON)
        task.acknowledge = False
        agent.kill()
        self.wait_for(master, lambda: "over" in master.texts(task))
        self.wait_for(master, lambda: not master.connected())
        task.exits.clear()
        agent.start()
        self.wait_for(master, lambda: task.exits)
        assert (task.exits[0].exit_code, task.exits[0].reason) == (4, "")

    # --- clean and refuse -------------------------------------------------------------------------------------

    def test_a_task_is_forgotten_when_its_exit_is_acknowledged(
        self, master: MasterDouble, agent: AgentUnderTest
    ) -> None:
        """Its exit is repeated, and it stays, until the master acknowledges it; then nothing of it is left."""
        task = self.running(master, ENDS_SOON)
        task.acknowledge = False
        self.wait_for(master, lambda: len(task.exits) >= 2)
        assert self.left_behind(agent, task)
        task.acknowledge = True
        deadline = time.monotonic() + self.patience
        while left := self.left_behind(agent, task):
            assert time.monotonic() < deadline, f"still there: {left}"
            time.sleep(0.05)

    def test_a_slot_that_is_not_here_is_refused(self, master: MasterDouble, agent: AgentUnderTest) -> None:
        """A refusal is told as one, so that the master tries another agent; the next task runs."""
        task = self.launch(master, "true", slots=["cpu9"])
        self.wait_for(master, lambda: task.exits)
        assert task.exits[0].reason == "refused"
        assert "cpu9" in task.exits[0].message
        other = self.launch(master, "true")
        self.wait_for(master, lambda: other.exits)
        assert other.exits[0].exit_code == 0

    def test_code_that_cannot_be_had_is_told(self, master: MasterDouble, agent: AgentUnderTest) -> None:
        """The task ends with the reason `setup`, and nothing of it is left; elsewhere its job has started by then."""
        task = self.launch(master, "true", bundle=f"sha256:{'0' * 64}")
        self.wait_for(master, lambda: task.exits)
        assert task.exits[0].reason == "setup"
        assert "bundle" in task.exits[0].message
        if self.tasks_are == "here":
            assert not task.started
        else:
            self.wait_for(master, lambda: not self.left_behind(agent, task))
        assert not self.left_behind(agent, task)


def _bundle(files: dict[str, bytes]) -> bytes:
    """Pack files into a bundle."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return data.getvalue()


def _check_counts(master: MasterDouble, task: FakeAllocation) -> None:
    """Check that every line of one counting program is there once, in order, the last one included."""
    lines = [text.split() for text in master.texts(task, "stdout")]
    assert lines == [*(["step", str(n)] for n in range(len(lines) - 1)), ["last", str(len(lines) - 1)]]
