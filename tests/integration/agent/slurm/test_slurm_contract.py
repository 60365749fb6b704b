"""The runtime `slurm` keeps the contract of runtimes, on a real Slurm of two nodes: with jobs, and with job arrays."""

import json
import re

import pytest

from detlab.testing.runtimes import COUNTS_UNTIL_SIGTERM, RuntimeContract


class TestSlurm(RuntimeContract):
    runtime = "slurm"
    tasks_are = "elsewhere"

    def launch(self, master, entrypoint, **options):
        options.setdefault("slots", ["any0"])
        return super().launch(master, entrypoint, **options)

    def left_behind(self, agent, task):
        name = task.launch.allocation_id
        places = (agent.directory / "tasks", agent.directory / "slurm")
        files = [path for place in places for path in place.iterdir() if path.name.startswith(name)]
        return [*files, *(job for job in agent.slurm.jobs() if job == f"detlab-{name}")]


class TestSlurmArrays(TestSlurm):
    """The same, of tasks that are one of an array: each has a companion, which never ends by itself."""

    @pytest.fixture
    def agent_options(self):
        return ("--slurm-array-size", "2")

    @pytest.fixture(autouse=True)
    def companions(self, master, agent):
        self.others, self.labels = [], {}
        yield
        for other in self.others:
            assert not other.exits, "the end of one of an array leaves the others"
        assert not self.others or re.search(r"is Slurm job \d+_1", agent.log.read_text()), "none was one of an array"

    def launch(self, master, entrypoint, **options):
        # A companion that asks for the same can be told only by what it runs.
        if options.get("slots", ["any0"]) == ["any0"]:
            self.others.append(master.launch(["sleep", "600"], runtime=self.runtime, slots=["any0"]))
        return super().launch(master, entrypoint, **options)

    def test_a_task_is_adopted_by_the_next_agent(self, master, agent):
        """As without arrays; but its companion is adopted too."""
        task = self.running(master, COUNTS_UNTIL_SIGTERM)
        agent.kill()
        self.wait_for(master, lambda: not master.connected())
        answers, hellos = task.started, len(master.hellos)
        agent.start()
        self.wait_for(master, lambda: task.started > answers)
        listed = {(running.allocation_id, running.exited) for running in master.hellos[hellos].tasks}
        assert listed == {(one.launch.allocation_id, False) for one in (task, *self.others)}
        master.send_kill(task, grace=30.0)
        self.wait_for(master, lambda: task.exits)
        assert task.exits[0].exit_code == 3
        words = [text.split() for text in master.texts(task, "stdout")]
        assert words == [*(["step", str(n)] for n in range(len(words) - 1)), ["last", str(len(words) - 1)]]

    def left_behind(self, agent, task):
        name = task.launch.allocation_id
        record = agent.directory / "tasks" / f"{name}.json"
        if record.exists():
            self.labels[name] = json.loads(record.read_text()).get("label", name)
        label = self.labels.get(name, name)
        left = [path for path in (agent.directory / "slurm").iterdir() if path.name.startswith(f"{label}.")]
        jobs = agent.slurm.ask("squeue", "-h", "--array", "-o", "%j_%K").split()
        return [*([record] if record.exists() else []), *left, *(job for job in jobs if job == f"detlab-{label}")]
