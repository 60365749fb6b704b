"""Pods for which the API server took so long that their task was given up: whenever they are made, they do not stay."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detlab.launch.host.identity import Identity
from detlab.launch.taskdir import TaskDir
from detlab.schemas.wire import ContainerSpec
from detlab.testing.master import MasterDouble
from detlab_agent.runtimes.base import RefusedTask
from detlab_agent.runtimes.kubernetes import cluster as clusters
from detlab_agent.runtimes.kubernetes import runtime as runtimes
from detlab_agent.runtimes.kubernetes.kubeconfig import Access
from detlab_agent.runtimes.kubernetes.options import KubernetesOptions, Rules
from detlab_agent.runtimes.kubernetes.pods import pod_name
from detlab_agent.runtimes.kubernetes.runtime import KubernetesRuntime
from detlab_agent.runtimes.preparation import Order
from testbed.kubernetes.fake.cluster import FakeCluster
from testbed.waiting import soon

LATE = 1.5
"""Seconds after which the server does what it was asked for, for which nobody waits any more."""
GANG = {"image": "python", "gang": "native", "pending_limit": 0.1}


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A cluster of one node that runs nothing."""
    monkeypatch.setattr(clusters, "_LATE_SECONDS", 2 * LATE)
    with FakeCluster(tmp_path) as found:
        found.add_node("idle-1", gpus=2)
        found.serve("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
        yield found


def left(fake: FakeCluster) -> list[str]:
    """Return what of tasks is in the cluster."""
    kinds = {"pods": "", "secrets": "", "podgroups": "scheduling.k8s.io"}
    found = [(kind, one["metadata"]["name"]) for kind in kinds for one in fake.objects(kind, group=kinds[kind])]
    return [f"{kind}/{name}" for kind, name in found if name.startswith("det-")]


def order_for(tmp_path: Path) -> Order:
    """One of the two pods of a task, whose image has a registry with a password."""
    image = ContainerSpec(image="r.example/i:1", registry_auth={"username": "u", "password": "p"})
    launch = MasterDouble().allocate(["true"], runtime="kubernetes", node="idle-1", slots=[], container=image).launch
    launch.info.container_addrs = ["127.0.0.1", "127.0.0.1"]
    task = TaskDir(tmp_path / "tasks" / launch.allocation_id)
    task.root.parent.mkdir()
    return Order(launch, task, task.root.with_suffix(".json"), Identity("alice", 20000, 20000), [], 0)


async def refusal(
    fake: FakeCluster, tmp_path: Path, made: threading.Event | None = None, then: Callable[[str], object] = str
) -> str:
    """Let an agent make a pod; return why it did not, once nothing of it is left, however late it is made.

    Args:
        fake: The cluster.
        tmp_path: The agent's directory.
        made: Is set once the server has made it.
        then: Done with the pod's name once the agent has given it up.
    """
    order = order_for(tmp_path)
    opened = await Access(fake.kubeconfig(), environ={}).open()
    runtime = KubernetesRuntime(opened, Rules(KubernetesOptions.model_validate(GANG), "ours"), tmp_path)
    await runtime.begin(lambda: None)
    try:
        with pytest.raises(RefusedTask) as refused:
            await asyncio.to_thread(runtime.make, order)
        await asyncio.to_thread(then, pod_name(order.record.stem))
        if made is not None:
            assert not made.is_set(), "it was given up before the server had made it"
            await soon(made.is_set, 10)
            assert any(name.startswith("pods/") for name in left(fake))
        await soon(lambda: not left(fake), 10)
        return str(refused.value)
    finally:
        await runtime.close()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("patience", "said"),
    [
        ({"_ANSWER_SECONDS": 0.3, "_AGAIN_SECONDS": 0.1}, r"the Kubernetes API server at .*TimeoutError"),
        ({"_CREATE_SECONDS": 0.3}, "takes too long to make the pod"),
    ],
)
def test_a_pod_that_is_made_after_its_task_was_given_up_is_deleted(
    fake: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: dict[str, float], said: str
) -> None:
    """The server did not answer in time, and the task runs elsewhere by now; with its pod its password goes, too."""
    for name, seconds in patience.items():
        monkeypatch.setattr(runtimes if hasattr(runtimes, name) else clusters, name, seconds)
    made = threading.Event()

    def is_pod(method: str, path: str) -> bool:
        return method == "POST" and path.endswith("/pods")

    def before(method: str, path: str) -> None:
        fake.slow = LATE if is_pod(method, path) else 0.0

    def after(method: str, path: str) -> None:
        if is_pod(method, path):
            made.set()

    fake.before, fake.after = before, after
    assert re.search(said, asyncio.run(refusal(fake, tmp_path, made)))


@pytest.mark.slow
def test_a_pod_that_the_store_makes_after_its_server_gave_up_is_deleted(fake: FakeCluster, tmp_path: Path) -> None:
    """The server says 504, or 500 with `etcdserver: request timed out`; what it asked for may still be done."""

    def before(method: str, path: str) -> None:
        if method == "POST" and path.endswith("/pods"):
            fake.failures.append(504)

    def then(name: str) -> None:
        time.sleep(LATE)  # the agent has deleted what was there by now
        assert not left(fake)
        spec = {"containers": [{"name": "c", "image": "i"}]}
        fake.create("pods", {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Pending"}})

    fake.before = before
    assert "does not take the pod now" in asyncio.run(refusal(fake, tmp_path, then=then))


def test_nothing_is_left_of_a_pod_that_the_cluster_refuses(fake: FakeCluster, tmp_path: Path) -> None:
    """Its secret and its group were made before it."""
    fake.create("resourcequotas", {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    assert "exceeded quota: none" in asyncio.run(refusal(fake, tmp_path))
    asked = [url for method, url in fake.requests if method == "POST" and url.endswith("/podgroups")]
    assert asked, "there was a group"
