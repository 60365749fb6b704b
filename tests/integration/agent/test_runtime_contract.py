"""The runtimes of detlab keep the contract of runtimes, and so does one whose tasks share nothing with their agent."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from agent_docker import in_container
from agent_helpers import AgentProcess, make_bundle, wait_until

from detlab.schemas.wire import Kill, ServiceSpec
from detlab.testing.runtimes import IGNORES_SIGTERM, RuntimeContract
from testbed.waiting import until

FAR = Path(__file__).with_name("far")


def of_task(agent, task):
    directory = agent.task_dir(task)
    record = directory.with_name(f"{directory.name}.json")
    return [*(path for path in (directory, record) if path.exists()), *agent.processes(task)]


class TestProcess(RuntimeContract):
    runtime = "process"

    def left_behind(self, agent, task):
        return of_task(agent, task)


class TestDocker(RuntimeContract):
    runtime = "docker"

    @pytest.fixture
    def agent(self, docker_agent):
        return docker_agent

    def launch(self, master, entrypoint, **options):
        return in_container(master, entrypoint, **options)

    def left_behind(self, agent, task):
        return [*of_task(agent, task), *agent.engine.containers()]


@contextmanager
def batch_system(folder: Path, hidden: Path):
    """`far/batch.py`, and its address."""
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-P", str(FAR / "batch.py"), str(folder), str(hidden)], cwd="/") as server:
        try:
            wait_until((folder / "port").exists)
            yield f"http://127.0.0.1:{(folder / 'port').read_text()}"
        finally:
            server.send_signal(signal.SIGTERM)


def jobs(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/jobs", timeout=10) as reply:
        found: list[str] = json.load(reply)
    return found


WHERE = """
import os, pathlib
from detlab.info import get_cluster_info
print(os.listdir({directory!r}), os.environ["DET_TASK_DIR"].startswith({directory!r}))
print("DET_PARCEL" in os.environ, get_cluster_info().trial.trial_id, pathlib.Path("data.txt").read_text())
"""


class TestElsewhere(RuntimeContract):
    """A runtime that comes from another distribution, found by its entry point."""

    runtime = "far"
    tasks_are = "elsewhere"

    environ: ClassVar[dict[str, str]] = {}

    @pytest.fixture
    def agent(self, master, open_tmp):
        directory = open_tmp / "agent"
        directory.mkdir()
        options = () if os.geteuid() == 0 else ("--serves-user", "alice")
        with batch_system(open_tmp / "batch", directory) as url:
            process = AgentProcess(master, directory, "--runtime", "far", *options, forked=False)
            path = os.pathsep.join(filter(None, [str(FAR), os.environ.get("PYTHONPATH", "")]))
            process.environ = {"PYTHONPATH": path, "DET_TEST_BATCH": url, **self.environ}
            process.batch = url
            process.start()
            try:
                master.wait_for(master.connected, what="the agent connects")
                yield process
            finally:
                process.end()

    def left_behind(self, agent, task):
        name = task.launch.allocation_id
        files = [path for path in (agent.directory / "tasks").iterdir() if path.name.startswith(name)]
        return [*files, *(job for job in jobs(agent.batch) if job == name)]

    def test_a_task_shares_nothing_with_its_agent_but_the_master(self, master, agent):
        """Its code, its token and what it is told come by its environment and from the master."""
        code = WHERE.format(directory=str(agent.directory))
        bundle = master.add_bundle(make_bundle({"train.py": (code, 0o644), "data.txt": ("42", 0o644)}))
        task = self.launch(master, ["python3", "train.py"], bundle=bundle)
        self.wait_for(master, lambda: task.exits)
        assert (task.exits[0].exit_code, task.exits[0].message) == (0, ""), master.texts(task)
        trial = task.launch.info.trial_id
        hidden = "[] False" if os.geteuid() == 0 else "False"
        assert master.texts(task, "stdout")[0].endswith(hidden)
        assert master.texts(task, "stdout")[1] == f"False {trial} 42"
        assert not agent.task_dir(task).exists()

    def test_a_task_whose_job_is_killed_with_its_launcher_is_told_as_that(self, master, agent):
        """Nobody can say how the entrypoint ended, and what was not delivered by then is lost with the machine."""
        task = self.running(master, IGNORES_SIGTERM)
        body = urllib.request.Request(f"{agent.batch}/jobs/{task.launch.allocation_id}/9", b"{}", method="POST")
        urllib.request.urlopen(body, timeout=10).close()
        self.wait_for(master, lambda: task.exits)
        assert (task.exits[0].exit_code, task.exits[0].reason) == (None, "launcher_lost")
        assert "without a report: 137" in task.exits[0].message
        until(lambda: not self.left_behind(agent, task), lambda: str(self.left_behind(agent, task)), 20)

    @pytest.mark.parametrize("serves", [True, False])
    def test_a_task_that_others_must_reach_is_refused(self, master, agent, serves):
        """The agent knows no address of the machine where it would be."""
        task = master.allocate("true", runtime="far", service=ServiceSpec() if serves else None)
        if not serves:
            task.launch.info.container_addrs = ["10.0.0.1", "10.0.0.2"]
        master.send(task.launch)
        self.wait_for(master, lambda: task.exits)
        assert task.exits[0].reason == "refused"
        assert "--runtime process, docker, kubernetes or slurm" in task.exits[0].message


SERVES = """
import http.server, os
address = os.environ["DET_SERVICE_ADDRESS"], int(os.environ["DET_SERVICE_PORT"])
server = http.server.HTTPServer(address, http.server.SimpleHTTPRequestHandler)
print("serves", flush=True)
server.handle_request()
"""


class TestElsewhereOnNodes(TestElsewhere):
    """The same with an agent that speaks for two nodes, whose tasks others reach."""

    environ: ClassVar[dict[str, str]] = {"DET_TEST_NODES": "far-1 far-2", "DET_TEST_REACHED": "1"}

    def launch(self, master, entrypoint, **options):
        return super().launch(master, entrypoint, **{"node": "far-1", "slots": ["any0"], **options})

    def left_behind(self, agent, task):
        name = task.launch.allocation_id
        files = [path for path in (agent.directory / "tasks").iterdir() if path.name.startswith(name)]
        return [*files, *(job for job in jobs(agent.batch) if job.startswith(name))]

    test_a_task_that_others_must_reach_is_refused = None
    test_a_task_whose_job_is_killed_with_its_launcher_is_told_as_that = None
    test_a_task_shares_nothing_with_its_agent_but_the_master = None

    def test_nodes_and_their_slots_are_told(self, master, agent):
        assert [(node.name, node.slot_count) for node in master.hellos[-1].nodes] == [("far-1", 2), ("far-2", 2)]

    def test_a_node_that_is_not_there_is_refused(self, master, agent):
        task = self.launch(master, "true", node="far-9")
        self.wait_for(master, lambda: task.exits)
        assert (task.exits[0].reason, task.exits[0].node) == ("refused", "far-9")
        assert "no node far-9" in task.exits[0].message

    def test_parts_of_one_allocation_are_tasks_of_their_own(self, master, agent):
        """Same allocation, same names of slots: each node's part starts, ends and is forgotten by itself."""
        task = self.running(master, IGNORES_SIGTERM)
        other = task.launch.model_copy(update={"node": "far-2", "entrypoint": ["sh", "-c", "exit 6"]})
        master.send(other)
        self.wait_for(master, lambda: task.exits)
        assert (task.exits[0].node, task.exits[0].exit_code) == ("far-2", 6)
        assert [running.node for running in task.starts] == ["far-1", "far-2"]
        master.send(Kill(allocation_id=other.allocation_id, run=1, grace=0.0, node="far-1"))
        self.wait_for(master, lambda: [one for one in task.exits if one.node == "far-1"])
        until(lambda: not self.left_behind(agent, task), lambda: str(self.left_behind(agent, task)), 20)

    def test_where_a_service_is_reached_is_told_when_it_runs(self, master, agent):
        task = self.running(master, SERVES, service=ServiceSpec())
        self.wait_for(master, lambda: task.starts and task.starts[-1].port)
        url = f"http://{task.starts[-1].address}:{task.starts[-1].port}/"
        urllib.request.urlopen(url, timeout=10).close()
        self.wait_for(master, lambda: task.exits)
        assert task.exits[0].exit_code == 0, master.texts(task)
        assert "waits for a machine" in [stage.message for stage in task.stages][-1]
