"""A search, a trial over two nodes, a notebook and a shell on a real Kubernetes with two nodes: a whole cluster."""

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

import httpx
import pytest
import websocket
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
from testbed.servers import Kernel, Person, open_terminal, person
from testbed.waiting import until

pytestmark = [
    pytest.mark.hub,
    pytest.mark.kubernetes,
    pytest.mark.timeout(560),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: pods run as other users"),
]

EXAMPLE = Path(__file__).parents[3] / "examples/digits_trial"
POOL = "pods"
CONFIG = """
import json
from pathlib import Path

c.DetHub.pools = {{{pool!r}: {{}}}}
c.EmbeddedCluster.extra_users = ["ada"]
c.DetSpawner.runtimes = ["process", "kubernetes"]
c.EmbeddedCluster.hub_ip = "0.0.0.0"
plan = Path({state!r}) / "plan.json"
if plan.exists():  # det up reads this file before there is a plan
    c.JupyterHub.hub_connect_url = f"http://{here}:{{json.loads(plan.read_text())['hub_port']}}"
"""
WHERE = {"pool": POOL, "runtime": "kubernetes"}
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
        with plane.admin as admin:  # tests that come later count nodes
            admin.delete("/api/v1/nodes/real-2")
    except CannotRun as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def cluster(place: Path, kube: RealKube) -> Iterator[Cluster]:
    (place / "hub").mkdir(mode=0o755)
    config = CONFIG.format(pool=POOL, state=str(place / "hub/.detlab"), here=kube.here)
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


@pytest.fixture(scope="module")
def ada(cluster: Cluster, agent: Agent) -> Iterator[Person]:
    one = person(cluster, "ada")
    yield one
    one.close()


def test_a_notebook_is_a_pod_and_its_kernel_answers_through_the_hubs_proxy(ada: Person, kube: RealKube) -> None:
    reply = ada.start("nb", kind="notebook", **WHERE)
    assert reply.status_code in {201, 202}, reply.text
    server = ada.ready("nb", 3 * MINUTE)
    assert str(ada.until_task(name="nb", display_state="RUNNING")["agent_id"]).startswith("kube/real-")
    (pod,) = kube.pods()
    kernel = Kernel(server, ada.token)
    assert "41 in" in kernel.run("import socket; answer = 41; print(answer, 'in', socket.gethostname())")
    assert pod["metadata"]["name"] in kernel.run("print(socket.gethostname())")
    assert "42" in Kernel(server, ada.token, kernel.id).run("print(answer + 1)")
    ada.stop("nb")
    until(lambda: not kube.of("pods") and not kube.of("secrets"), kube.told, 60)


def test_a_shell_is_a_pod_whose_owner_works_in_it(ada: Person, kube: RealKube) -> None:
    ada.start("sh", kind="shell", **WHERE)
    server = ada.ready("sh", 3 * MINUTE)
    url = open_terminal(server, ada.token)
    connection = websocket.create_connection(url, header=[f"Authorization: token {ada.token}"], timeout=30)
    connection.send('["stdin", "echo $((6*7)); echo $((6*8))\\r"]')
    seen = ""
    while "48\\r" not in seen:
        seen += connection.recv()
    assert "42" in seen
    connection.close()
    refused = httpx.get(f"{server}api/status", trust_env=False, timeout=30)
    assert refused.status_code in {302, 403}, "nobody else gets in"
    ada.stop("sh")
    until(lambda: not kube.of("pods") and not kube.of("secrets"), kube.told, 60)
