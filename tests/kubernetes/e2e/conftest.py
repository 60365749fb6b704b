"""A whole cluster of detlab on a fake Kubernetes, for all tests here that need no real one."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "e2e"))

from spine_lab import Lab, lab_of

from testbed.agents import Agent, printed_agent
from testbed.cluster import Cluster, running_cluster
from testbed.kubernetes import images
from testbed.kubernetes.fake.cluster import FakeCluster

POOL = "pods"


@pytest.fixture(scope="package")
def place() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="detlab-pods-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="package")
def kube(place: Path) -> Iterator[FakeCluster]:
    (place / "kube").mkdir(mode=0o755)
    with FakeCluster(place / "kube") as found:
        for name in ("gpu-1", "gpu-2"):
            found.add_node(name, gpus=1, cpu="8", memory="32Gi", runs=True)
        yield found


@pytest.fixture(scope="package")
def cluster(place: Path) -> Iterator[Cluster]:
    (place / "hub").mkdir(mode=0o755)
    config = (
        f"c.DetHub.pools = {{'{POOL}': {{'preemption': True}}}}\nc.DetSpawner.runtimes = ['process', 'kubernetes']\n"
    )
    with running_cluster(place / "hub", slots=1, config=config) as running:
        yield running


@pytest.fixture(scope="package")
def agent(cluster: Cluster, kube: FakeCluster, place: Path) -> Iterator[Agent]:
    printed = cluster.det("agent", "enrol")
    assert printed.returncode == 0, printed.stderr
    settings = place / "settings.yaml"
    settings.write_text(json.dumps({"image": images.PYTHON, "home": {"size": "1Gi"}}))
    command = printed.stderr.rpartition("→")[2].strip()
    command += f" --kubernetes --kubeconfig {kube.kubeconfig()} --kubernetes-settings {settings} --pool {POOL}"
    command += f" --volume {cluster.folder}/checkpoints"
    folder = place / "agent"
    folder.mkdir(mode=0o755)
    with printed_agent(command, printed.stdout.strip(), folder, "kube", cluster.environment) as found:
        found.until_it_says("connected to cluster")
        yield found
        print(found.log)


@pytest.fixture(scope="package")
def lab(cluster: Cluster, agent: Agent) -> Iterator[Lab]:
    with lab_of(cluster) as found:
        yield found
