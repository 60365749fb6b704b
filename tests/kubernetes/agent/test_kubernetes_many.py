"""Many launches at the same time, through one agent: all are made, and the agent stays responsive meanwhile."""

from __future__ import annotations

import time

import pytest
from kubernetes_agents import ClusterAgent, FakeKube, allocate, launch

from detlab.schemas.wire import ContainerSpec
from detlab.testing.master import MasterDouble
from testbed.kubernetes import images
from testbed.waiting import until

NODES, COUNT = 2, 200
IMAGE = ContainerSpec(image=images.PYTHON)


@pytest.fixture
def kube(fake, open_tmp):
    """A cluster with room for all, on nodes that only take them in."""
    for number in range(NODES):
        fake.add_node(f"many-{number}", gpus=COUNT // NODES, cpu="400", memory="4Ti")
    found = FakeKube(fake, open_tmp)
    yield found
    found.end()


def test_many_launches_held_the_loop_up(master: MasterDouble, agent: ClusterAgent, kube: FakeKube) -> None:
    """A thread that makes a pod waits for the loop, and the loop for threads of its own: they must not be the same."""
    tasks = [
        allocate(master, ["true"], node=f"many-{n % NODES}", slots=[f"gpu{n // NODES}"], container=IMAGE)
        for n in range(COUNT)
    ]

    def made() -> int:
        return sum(str(pod["spec"].get("nodeName")).startswith("many") for pod in kube.pods())

    kube.cluster.slow = 0.4
    began = time.monotonic()
    first = launch(master, ["python3", "-c", "import time; time.sleep(60)"])
    for task in tasks:
        master.send(task.launch)
    master.wait_for(lambda: first.started, 60, "the first one starts")
    assert made() < COUNT // 2, "its start was known only when all others had been made"
    until(lambda: made() == COUNT, lambda: f"{made()} pods\n{agent.log.read_text()[-2000:]}", 90)
    seconds = time.monotonic() - began
    assert seconds < 60, f"{COUNT} pods took {seconds:.1f} s: they were made one after the other"
    kube.cluster.slow = 0.0
    for task in [first, *tasks]:
        master.send_kill(task, grace=1.0)
    master.wait_for(lambda: all(task.exits for task in [first, *tasks]), 60, "all end")
    agent.none_left()
