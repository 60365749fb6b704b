"""The digits search, and one trial over two nodes, on a real Kubernetes with two real nodes: a whole cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[2] / "e2e"))
sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))
sys.path.insert(0, str(Path(__file__).parents[2] / "integration/agent"))

from kubernetes_agents import RealKube
from spine_lab import Lab, lab_of

from testbed.agents import Agent, printed_agent
from testbed.cluster import Cluster, running_cluster
from testbed.kubernetes import images
from testbed.kubernetes.control_plane import CannotRun, ControlPlane, program
from testbed.kubernetes.real_node import RealNode, real_node
from testbed.waiting import until

pytestmark = [
    pytest.mark.hub,
    pytest.mark.kubernetes,
    pytest.mark.timeout(560),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: pods run as other users"),
]

EXAMPLE = Path(__file__).parents[3] / "examples/digits_trial"
POOL = "pods"
MINUTE = 60


@contextmanager
def forwarded(address: str, port: int) -> Iterator[None]:
    """Let pods reach a port of this machine's loopback at another address of it, as a proxy before a site does."""
    listen = f"TCP-LISTEN:{port},bind={address},fork,reuseaddr"
    command = [program("socat"), listen, f"TCP:127.0.0.1:{port}"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) as relay:
        try:
            yield
        finally:
            os.killpg(relay.pid, signal.SIGTERM)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="detlab-pods-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def kube(plane: ControlPlane, node: RealNode, place: Path) -> Iterator[RealKube]:
    try:
        with real_node(plane, number=2):
            found = RealKube(plane, place)
            yield found
            found.end()
    except CannotRun as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def cluster(place: Path) -> Iterator[Cluster]:
    (place / "hub").mkdir(mode=0o755)
    config = f"c.DetHub.pools = {{'{POOL}': {{}}}}\n"
    with running_cluster(place / "hub", slots=1, config=config) as running:
        yield running


@pytest.fixture(scope="module")
def agent(cluster: Cluster, kube: RealKube, place: Path) -> Iterator[Agent]:
    printed = cluster.det("agent", "enrol")
    assert printed.returncode == 0, printed.stderr
    settings = place / "settings.yaml"
    settings.write_text(json.dumps({"image": images.PYTHON, "image_pull_policy": "Never"}))
    command = printed.stderr.rpartition("→")[2].strip().replace("127.0.0.1", kube.here)
    command += f" --kubernetes --kubeconfig {kube.kubeconfig} --kubernetes-settings {settings} --pool {POOL}"
    command += f" --insecure-http --volume {cluster.folder}/checkpoints"
    folder = place / "agent"
    folder.mkdir(mode=0o755)
    with (
        forwarded(kube.here, cluster.port),
        printed_agent(command, printed.stdout.strip(), folder, "kube", cluster.environment) as found,
    ):
        found.until_it_says("connected to cluster")
        yield found
        print(found.log)


@pytest.fixture(scope="module")
def lab(cluster: Cluster, agent: Agent) -> Iterator[Lab]:
    with lab_of(cluster) as found:
        yield found


def config_of(name: str, slots: int = 1, **hparams: Any) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((EXAMPLE / f"{name}.yaml").read_text(encoding="utf-8"))
    config["hyperparameters"] |= {"max_epochs": 2, **hparams}
    config["environment"] = {"environment_variables": ["OMP_NUM_THREADS=1"]}
    config |= {"runtime": "kubernetes", "resources": {"resource_pool": POOL, "slots_per_trial": slots}}
    if name == "search":
        config["searcher"] |= {"max_time": 2, "max_trials": 4, "max_concurrent_trials": 2}
    return config


def test_the_digits_search_runs_as_pods(lab: Lab, kube: RealKube) -> None:
    made = lab.client.create_experiment(config_of("search"), EXAMPLE)
    trials = lab.completed(made, 6 * MINUTE).list_trials()
    assert len(trials) == 4
    assert {(one.view.run, one.view.restarts) for one in trials} == {(1, 0)}
    assert {one.view.agent_id for one in trials} <= {"kube/real-1", "kube/real-2"}
    assert max(one.view.best_validation or 0 for one in trials) > 0.5, lab.tell(made)
    until(lambda: not kube.of("pods") and not kube.of("secrets"), kube.told, 60)


def test_a_pytorch_trial_runs_over_two_nodes(lab: Lab, kube: RealKube) -> None:
    """Two pods of two ranks each, which meet at the addresses of their pods."""
    made = lab.client.create_experiment(config_of("distributed", 4), EXAMPLE)
    (trial,) = lab.completed(made, 7 * MINUTE).list_trials()
    assert (trial.view.run, trial.view.restarts) == (1, 0)
    assert (trial.view.best_validation or 0) > 0.5, lab.tell(made)
    until(lambda: not kube.of("pods") and not kube.of("secrets"), kube.told, 60)
