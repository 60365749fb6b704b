"""Notebooks, shells and TensorBoards as pods of the fake Kubernetes, behind the proxy of a real Hub."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "e2e"))

from spine_lab import TRIALS, Lab, single

from detlab.schemas.taskwire import TaskKind
from testbed.agents import Agent
from testbed.cluster import Cluster
from testbed.kubernetes.fake.cluster import FakeCluster
from testbed.servers import Kernel, Person, open_terminal, person
from testbed.waiting import until

pytestmark = [
    pytest.mark.hub,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: pods run as other users"),
]
CONFIG = {"runtime": "kubernetes", "resources": {"resource_pool": "pods", "slots": 1}}


@pytest.fixture(scope="module")
def operator(cluster: Cluster, agent: Agent) -> Iterator[Person]:
    found = person(cluster, cluster.user)
    yield found
    found.close()


def up(operator: Person, name: str, **options: Any) -> str:
    reply = operator.start(name, config=CONFIG, **options)
    assert reply.status_code in {201, 202}, reply.text
    return operator.ready(name)


def gone(kube: FakeCluster) -> None:
    until(lambda: not kube.objects("pods"), lambda: str(kube.objects("pods")), 60)


def test_a_notebook_runs_as_a_pod_and_the_next_one_finds_its_files(operator, kube):
    server = up(operator, "first")
    (pod,) = kube.objects("pods")
    assert pod["metadata"]["labels"]["detlab.io/kind"] == "notebook"
    home = Kernel(server, operator.token).run("import os; print(os.environ['HOME'])")
    assert home.strip() == "/home/detlab"
    Kernel(server, operator.token).run("import pathlib; (pathlib.Path.home() / 'kept.txt').write_text('of the first')")
    operator.stop("first", remove=True)
    gone(kube)
    (claim,) = kube.objects("persistentvolumeclaims")
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    server = up(operator, "second")
    said = Kernel(server, operator.token).run("import pathlib; print((pathlib.Path.home() / 'kept.txt').read_text())")
    assert said.strip() == "of the first"
    operator.stop("second", remove=True)
    gone(kube)
    assert not kube.objects("secrets")


def test_a_shell_opens_a_terminal_in_its_pod(operator, kube):
    server = up(operator, "shell", kind="shell")
    (pod,) = kube.objects("pods")
    assert pod["metadata"]["labels"]["detlab.io/kind"] == "shell"
    assert open_terminal(server, operator.token).startswith("ws")
    operator.stop("shell", remove=True)
    gone(kube)


def test_a_tensorboard_shows_trials_that_ran_as_pods(lab: Lab, cluster, kube):
    config = single("toy.py", runtime="kubernetes", resources={"resource_pool": "pods", "slots_per_trial": 1})
    experiment = lab.completed(lab.client.create_experiment(config, TRIALS), 120)
    wanted = {"runtime": "kubernetes", "resources": {"resource_pool": "pods"}}
    task = lab.client.create_task(TaskKind.TENSORBOARD, experiment_ids=[experiment.id], config=wanted)
    try:
        assert task.await_up(90)
        (pod,) = kube.objects("pods")
        assert pod["metadata"]["labels"]["detlab.io/kind"] == "tensorboard"
        with httpx.Client(headers={"Authorization": f"Bearer {cluster.token}"}, trust_env=False, timeout=20) as web:
            run = f"exp{experiment.id}/trial{experiment.list_trials()[0].id}"
            until(lambda: run in web.get(f"{task.url}data/runs").text, lambda: web.get(f"{task.url}data/runs").text, 60)
    finally:
        task.kill()
    gone(kube)
