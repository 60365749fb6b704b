"""An agent of root for each runtime, with tasks of `ada` and of `mallory`: processes, a real engine, a fake Kubernetes.

The fake Kubernetes runs pods as processes in mounts of their own, under their users' uids. Its API server, and what a
kubelet does of links in a subPath, are compared with real ones in `make test-kubernetes`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "integration/agent"))
sys.path.insert(0, str(Path(__file__).parents[2] / "kubernetes/agent"))

from agent_docker import python, system_mounts
from agent_helpers import AgentProcess
from kubernetes_agents import ClusterAgent, FakeKube

from detlab.schemas import wire
from detlab.testing.master import FakeAllocation, MasterDouble
from testbed.containers import docker_images
from testbed.kubernetes import images
from testbed.kubernetes.fake.cluster import FakeCluster


@dataclass
class Place:
    """A master, and an agent with one runtime.

    Attributes:
        runtime: Its name.
        master: The double.
        allowed: The directory that its operator lets tasks mount.
        agent: The process of the agent.
    """

    runtime: str
    master: MasterDouble
    allowed: Path
    agent: AgentProcess

    def run(
        self, owner: str, program: str, *words: str, mounts: tuple[wire.Mount, ...] = (), **more: Any
    ) -> FakeAllocation:
        """Launch a user's Python program."""
        options: dict[str, Any] = {"owner": owner, "runtime": self.runtime, "slots": []}
        if self.runtime == "docker":
            spec = wire.ContainerSpec(image=docker_images.EMPTY, mounts=[*system_mounts(), *mounts])
            options["container"] = spec
        elif self.runtime == "kubernetes":
            options["container"] = wire.ContainerSpec(image=images.PYTHON, mounts=list(mounts))
            options["node"] = "real-1"
        return self.master.launch([*python(program), *words], **options)

    def ended(self, task: FakeAllocation, seconds: float = 90.0) -> wire.TaskExited:
        """Wait for the end of a task, and return it."""
        self.master.wait_for(lambda: task.exits, seconds, f"the task ends: {task.stages}")
        return task.exits[0]

    def said(self, task: FakeAllocation) -> list[str]:
        """Return what a task has printed."""
        return self.master.texts(task, "stdout")


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder of root's that every user may pass."""
    path = Path(tempfile.mkdtemp(prefix="detlab-runtimes-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def start(open_place: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Place]]:
    """Start an agent with a runtime; all end after the test."""
    if os.geteuid() != 0:
        pytest.skip("only an agent of root serves several users")
    allowed = open_place / "allowed"
    allowed.mkdir(mode=0o755)
    (open_place / "agent").mkdir()
    with ExitStack() as stack:

        def begin(runtime: str) -> Place:
            options = ["--allow-mount", str(allowed)]
            if runtime == "kubernetes":
                fake = stack.enter_context(
                    FakeCluster(open_place, [open_place / "agent", allowed], {images.PYTHON: {}})
                )
                fake.add_node("real-1", runs=True, gpus=2, cpu="8", memory="32Gi")
                kube = FakeKube(fake, open_place)
                stack.callback(kube.end)
                master = stack.enter_context(MasterDouble(address=kube.here))
                agent: AgentProcess = ClusterAgent(master, open_place / "agent", kube, *options)
            elif runtime == "docker":
                engine = request.getfixturevalue("docker_engine")
                stack.callback(engine.remove_containers)
                system = [part for path in docker_images.host_mounts() for part in ("--allow-mount", str(path))]
                master = stack.enter_context(MasterDouble())
                options += ["--runtime", "process,docker", "--docker-host", engine.url, *system]
                agent = AgentProcess(master, open_place / "agent", *options)
            else:
                master = stack.enter_context(MasterDouble())
                agent = AgentProcess(master, open_place / "agent", *options)
            stack.callback(agent.end)
            agent.start()
            master.wait_for(master.connected, 60, "the agent connects")
            return Place(runtime, master, allowed, agent)

        yield begin
