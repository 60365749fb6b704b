"""An agent in a copied directory (`cp -a`) leaves the containers, pods and jobs of the original alone."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pytest

from detlab.schemas.wire import QueueHello
from detlab_agent import copied
from detlab_agent.endpoints import Endpoints
from detlab_agent.runtimes.docker.container import Allowance
from detlab_agent.runtimes.docker.engine import AGENT_LABEL, PLACE_LABEL
from detlab_agent.runtimes.docker.runtime import DockerRuntime
from detlab_agent.runtimes.kubernetes import lease
from detlab_agent.runtimes.kubernetes.kubeconfig import Access
from detlab_agent.runtimes.kubernetes.options import KubernetesOptions, Rules
from detlab_agent.runtimes.kubernetes.pods import AGENT_LABEL as AGENT
from detlab_agent.runtimes.kubernetes.pods import ALLOCATION_NOTE, NODE_NOTE, RUN_NOTE, SLOTS_NOTE, TASK_LABEL
from detlab_agent.runtimes.kubernetes.preparation import prepare
from detlab_agent.runtimes.kubernetes.runtime import LEASE, KubernetesRuntime
from detlab_agent.runtimes.preparation import TaskMaker
from detlab_agent.runtimes.slurm.answers import SlurmJob
from detlab_agent.runtimes.slurm.client import SlurmClient
from detlab_agent.runtimes.slurm.options import SlurmOptions
from detlab_agent.runtimes.slurm.runtime import SlurmRuntime
from detlab_agent.settings import AgentError, AgentSettings
from testbed.kubernetes.fake.cluster import FakeCluster
from testbed.waiting import soon

NOTHING: Any = None


def settled(directory: Path) -> str:
    lock = directory / "agent.lock"
    if not lock.exists():
        lock.touch()
    return copied.settle(directory, lock)


def original_in(directory: Path, *runtimes: str) -> Path:
    """Make the directory of an agent that has a task in each of these runtimes."""
    (directory / "tasks").mkdir(parents=True)
    assert settled(directory) == ""
    for name in runtimes:
        (directory / "tasks" / f"1.{name}").mkdir()
        (directory / "tasks" / f"1.{name}.json").write_text(json.dumps({"runtime": name, "run": 1, "slots": []}))
    return directory


def copy_of(original: Path) -> Path:
    return Path(shutil.copytree(original, original.with_name("copy")))


def in_place(original: Path) -> Path:
    return original


def renamed(original: Path) -> Path:
    return original.rename(original.with_name("renamed"))


def told(original: Path) -> Path:
    copy = copy_of(original)
    (copy / copied.TAKE_OVER_NOTE).touch()
    return copy


ALL = ("docker", "kubernetes", "process", "slurm")


@pytest.mark.parametrize(
    ("how", "is_copy"),
    [(in_place, False), (renamed, False), (told, False), (copy_of, True)],
    ids=["in place", "renamed", "told", "copied"],
)
def test_a_copy_forgets_what_the_original_runs_elsewhere(
    tmp_path: Path, how: Callable[[Path], Path], is_copy: bool
) -> None:
    here = how(original_in(tmp_path / "original", *ALL))
    mark = settled(here)
    assert bool(mark) == is_copy
    left = sorted(path.stem.removeprefix("1.") for path in (here / "tasks").glob("*.json"))
    assert left == (["process"] if is_copy else list(ALL))
    assert settled(here) == mark, "the same at its next start"
    assert not (here / copied.TAKE_OVER_NOTE).exists()


def test_each_copy_has_its_own_mark_until_it_takes_over(tmp_path: Path) -> None:
    original = original_in(tmp_path / "original", "slurm")
    copy = copy_of(original)
    first = settled(copy)
    second = copy.with_name("second")
    shutil.copytree(copy, second)
    assert settled(second) not in {first, ""}
    (copy / copied.TAKE_OVER_NOTE).touch()
    assert settled(copy) == "", "what the original has left is its own now"
    assert settled(original) == ""
    assert list((original / "tasks").glob("*.json")), "nothing of the original was touched"


@pytest.mark.parametrize("mark", ["", "copy-1"])
def test_what_marks_an_agents_own(mark: str) -> None:
    settings = AgentSettings(cast(Endpoints, NOTHING), Path("/x"), "node-7", mark=mark)
    assert settings.marked_id == ("node-7-copy-1" if mark else "node-7")


# --- Slurm ------------------------------------------------------------------------------------------------


@dataclass
class OneJob:
    """A Slurm that has one job, of the original."""

    ended: list[str] = field(default_factory=list)

    def jobs(self) -> list[SlurmJob]:
        return [SlurmJob("7", "RUNNING", name="detlab-1.slurm", comment="detlab agent node-7", uid=1000)]

    def cancel(self, job_id: str, name: str, *, at_once: bool = False) -> None:
        self.ended.append(job_id)


@pytest.mark.parametrize("mark", ["", "copy-1"])
async def test_the_watch_of_a_copy_ends_no_job_of_the_original(mark: str) -> None:
    slurm = OneJob()
    settings = AgentSettings(cast(Endpoints, NOTHING), Path("/x"), "node-7", mark=mark)
    comment = f"detlab agent {settings.marked_id}"
    queue = QueueHello(name="Slurm", slots_per_node=1, slots=1)
    options = SlurmOptions(interval=0.05)
    runtime = SlurmRuntime(cast(SlurmClient, slurm), options, PurePosixPath("/s"), comment, queue, gpus=False)
    await runtime.begin(lambda: None)
    try:
        await asyncio.wait_for(runtime.watch.next_look(fresh=True), 10)
        assert bool(slurm.ended) == (not mark), "without a record it is a former task's, of this agent"
    finally:
        await runtime.close()


# --- Kubernetes -------------------------------------------------------------------------------------------


@pytest.mark.soak
async def test_a_copy_neither_adopts_pods_nor_takes_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("DURATION", 0.8), ("RENEW", 0.1), ("_LOOK", 0.1)):
        monkeypatch.setattr(lease, name, seconds)
    with FakeCluster(tmp_path) as fake:
        fake.add_node("idle-1", gpus=2)
        original = original_in(tmp_path / "original")
        access, options = Access(fake.kubeconfig(), environ={}), KubernetesOptions.model_validate({"image": "python"})
        ours = Rules(options, "ours")
        opened, _ = await prepare(access, LEASE, ours, original, original / "tasks")
        runtime = KubernetesRuntime(opened, ours, original)
        await runtime.begin(lambda: None)
        try:
            await soon(lambda: fake.objects("leases", group="coordination.k8s.io"), 10)
            copy = copy_of(original)
            theirs = Rules(options, f"ours-{settled(copy)}")
            assert lease.holder_of(copy, theirs.agent) != lease.holder_of(original, ours.agent)
            with pytest.raises(AgentError, match="another agent, ours-"):
                await prepare(access, LEASE, theirs, copy, copy / "tasks")
            assert runtime.available(), "the original has its namespace"
        finally:
            await runtime.close()
        notes = {ALLOCATION_NOTE: "1.a.1", RUN_NOTE: "1", SLOTS_NOTE: "gpu0", NODE_NOTE: "idle-1"}
        labels = {AGENT: ours.agent, TASK_LABEL: "1.a.1"}
        spec = {"containers": [{"name": "task", "image": "python"}], "nodeName": "idle-1"}
        fake.create("pods", {"metadata": {"name": "p", "labels": labels, "annotations": notes}, "spec": spec})
        await prepare(access, LEASE, theirs, copy, copy / "tasks")
        assert not list((copy / "tasks").glob("*.json")), "nor while the original is stopped for a moment"
        await prepare(access, LEASE, ours, original, original / "tasks")
        assert list((original / "tasks").glob("*.json")), "it is the original's"


# --- Docker -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("place", "taken"), [("original", False), ("copy", True), ("renamed away", True)])
def test_a_container_of_another_directory_is_not_recovered(tmp_path: Path, place: str, taken: bool) -> None:
    """Copies of folders from before there were marks: the container's own label tells."""
    original = original_in(tmp_path / "original", "docker")
    here = copy_of(original) / "tasks"
    maker = TaskMaker(here, [], NOTHING, NOTHING, NOTHING)
    runtime = DockerRuntime(maker, "unix:///nowhere", "node-7", Allowance(), here / "package", {})
    labels = {AGENT_LABEL: "node-7", PLACE_LABEL: str(tmp_path / place / "tasks")}
    found = {"State": {"Status": "exited"}, "Config": {"Labels": labels}}
    runtime.engine.inspect = lambda container: found  # type: ignore[method-assign]
    noted = {"run": 1, "slots": [], "uid": 20000, "container": "detlab-1.docker"}
    assert (runtime.recover(here / "1.docker.json", noted) is not None) == taken
