"""An agent for Kubernetes on the fake API server: the contract of runtimes, and all that a cluster does to its pods."""

import shutil
import tempfile
from pathlib import Path

import pytest
from agents import PodContract, kubernetes_agent

from detlab.testing.master import MasterDouble
from testbed.kubernetes.fake.cluster import FakeCluster


@pytest.fixture
def master():
    with MasterDouble() as double:
        yield double


@pytest.fixture
def place():
    path = Path(tempfile.mkdtemp(prefix="detlab-pods-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def cluster(place):
    (place / "cluster").mkdir(mode=0o711)
    with FakeCluster(place / "cluster", hidden=[place / "agent"]) as found:
        found.add_node("real-1", gpus=2, runs=True, labels={"nvidia.com/gpu.product": "H100", "rack": "r1"})
        found.add_node("idle-1", gpus=4, resources={"nvidia.com/mig-1g.5gb": "7"})
        yield found


@pytest.fixture
def agents(master, place, cluster):
    started = []

    def start(*options, name="one", wait=True, **more):
        process = kubernetes_agent(master, place / "agent" / name, cluster.kubeconfig(), *options, **more)
        started.append(process)
        process.start()
        if wait:
            master.wait_for(master.connected, what="the agent connects")
        return process

    yield start
    for process in started:
        process.end()
        print(process.log.read_text())


@pytest.fixture
def agent(agents):
    return agents()


class TestPods(PodContract):
    @pytest.fixture(autouse=True)
    def _cluster(self, cluster):
        self.cluster = cluster

    def pods(self, agent):
        return self.cluster.objects("pods", "default")
