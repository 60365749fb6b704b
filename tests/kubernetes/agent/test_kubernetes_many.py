"""Many launches at the same time, through one agent: all are made, and the agent stays responsive meanwhile."""

from __future__ import annotations

import time

import pytest
from kubernetes_agents import ClusterAgent, FakeKube, allocate, launch

from detlab.schemas.wire import ContainerSpec
from detlab.testing.master import MasterDouble
from testbed.kubernetes import images
from testbed.waiting import until

COUNT = 100
IMAGE = ContainerSpec(image=images.PYTHON)


@pytest.fixture
def kube(fake, open_tmp):
    """A cluster that is reached by a name, which is looked up by the loop's threads, and answers slowly."""
    fake.add_node("many", gpus=COUNT, cpu="400", memory="4Ti")
    found = FakeKube(fake, open_tmp)
    text = found.kubeconfig.read_text()
    found.kubeconfig.write_text(text.replace("127.0.0.1", "localhost"))
    yield found
    found.end()


def test_many_launches_held_the_loop_up(master: MasterDouble, agent: ClusterAgent, kube: FakeKube) -> None:
    """Each thread that makes a pod waits for the loop, and the loop waits for threads: they must not be the same."""
    kube.cluster.slow = 0.1
    tasks = [
        allocate(master, ["true"], node="many", slots=[f"gpu{number}"], container=IMAGE) for number in range(COUNT)
    ]
    began = time.monotonic()
    for task in tasks:
        master.send(task.launch)
    runs = launch(master, ["python3", "-c", "print('up')"])
    master.wait_for(lambda: runs.exits, 60, "a task beside them ends")
    assert runs.exits[0].exit_code == 0, runs.exits[0]

    def made() -> int:
        return sum(pod["spec"].get("nodeName") == "many" for pod in kube.pods())

    until(lambda: made() == COUNT, lambda: f"{made()} pods\n{agent.log.read_text()[-2000:]}", 60)
    seconds = time.monotonic() - began
    assert seconds < 30, f"{COUNT} pods took {seconds:.1f} s: they were made one after the other"
    leases = [url for method, url in kube.cluster.requests if method == "PUT" and "/leases/" in url]
    assert len(leases) >= seconds / 5 - 2, "the lease was not renewed meanwhile"
    for task in tasks:
        master.send_kill(task, grace=1.0)
    kube.cluster.slow = 0.0
    master.wait_for(lambda: all(task.exits for task in tasks), 60, "all end")
    agent.none_left()
