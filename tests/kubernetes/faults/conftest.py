"""An agent for the fake cluster, and the double of the master."""

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from detlab.testing.master import MasterDouble
from testbed.kubernetes.fake.cluster import FakeCluster

sys.path.insert(0, str(Path(__file__).parent))

from pod_helpers import kubernetes_agent


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
