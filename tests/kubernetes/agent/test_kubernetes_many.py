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


@pytest.mark.soak
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


def test_an_agent_of_more_than_a_thousand_nodes_was_cut_off(master: MasterDouble, kube: FakeKube, agents) -> None:
    """An autoscaler can bring it about; one that comes then is told of, too, and all go on being used."""
    for number in range(1500):
        kube.cluster.add_node(f"wide-{number}", gpus=8, cpu="64", memory="1Ti", labels={"zone": f"zone-{number % 3}"})
    agent = agents()
    wanted = 1500 + NODES + 1
    master.wait_for(lambda: len(master.hellos[-1].nodes) == wanted, 60, "all nodes are told of")
    assert master.hellos[-1].node_count == wanted
    task = launch(master, ["true"], node="wide-1499", slots=["gpu7"], container=IMAGE)
    until(lambda: any(pod["spec"].get("nodeName") == "wide-1499" for pod in kube.pods()), "no pod", 60)
    kube.cluster.add_node("wide-new", gpus=8)
    master.wait_for(lambda: "wide-new" in {node.name for node in master.hellos[-1].nodes}, 60, "the new one is told of")
    assert master.connected()
    master.send_kill(task, grace=1.0)
    master.wait_for(lambda: task.exits, 60, "it ends")
    agent.none_left()
