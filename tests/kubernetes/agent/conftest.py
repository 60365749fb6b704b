"""Real agents that speak for a cluster, the fake one or the real one, against the shipped double of the master."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "integration/agent"))

from kubernetes_agents import ClusterAgent, FakeKube, Kube, RealKube

from detlab.testing.master import MasterDouble
from testbed.kubernetes import images
from testbed.kubernetes.api_client import Object
from testbed.kubernetes.fake.cluster import FakeCluster

BOTH = ["fake", pytest.param("real", marks=pytest.mark.kubernetes)]
_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture
def open_tmp() -> Iterator[Path]:
    """A directory that every user may pass."""
    path = Path(tempfile.mkdtemp(prefix="detlab-kube-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def fake(open_tmp: Path) -> Iterator[FakeCluster]:
    """A fake cluster with one node that runs pods; they do not see the agent's directory."""
    (open_tmp / "agent").mkdir()
    labels = {"nvidia.com/gpu.product": "H100", "rack": "r1"}
    with FakeCluster(open_tmp, [open_tmp / "agent"], {images.PYTHON: {}, images.BARE: {"PATH": "/opt/none"}}) as found:
        found.add_node("real-1", runs=True, gpus=2, cpu="8", memory="32Gi", labels=labels)
        yield found


@pytest.fixture(params=BOTH)
def kube(request: pytest.FixtureRequest, open_tmp: Path) -> Iterator[Kube]:
    """A namespace of a cluster."""
    with ExitStack() as stack:
        if request.param == "fake":
            found: Kube = FakeKube(request.getfixturevalue("fake"), open_tmp)
        else:
            request.getfixturevalue("node")
            found = RealKube(request.getfixturevalue("plane"), open_tmp, line=True)
        stack.callback(found.end)
        yield found


@pytest.fixture
def master(kube: Kube) -> Iterator[MasterDouble]:
    """A master that pods reach."""
    with MasterDouble(address=kube.here) as double:
        yield double


@pytest.fixture
def agents(
    master: MasterDouble, kube: Kube, open_tmp: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., ClusterAgent]]:
    """Start agents with options and settings, and wait until they are connected; after the test they are ended."""
    made: list[ClusterAgent] = []

    def start(*options: str, settings: Object | None = None) -> ClusterAgent:
        process = ClusterAgent(master, open_tmp / "agent", kube, *options, settings=settings)
        made.append(process)
        process.start()
        process.connected()
        return process

    try:
        yield start
    finally:
        for process in made:
            process.end()
        if made and request.node.stash.get(_FAILED, False):
            print(made[0].log.read_text())
            print(kube.told())


@pytest.fixture
def agent(agents: Callable[..., ClusterAgent]) -> ClusterAgent:
    """An agent that is connected."""
    return agents()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without root tasks run as the agent's user, who owns the namespaces."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skipif(os.geteuid() != 0, reason="needs root: pods run as other users"))
