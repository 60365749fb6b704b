"""`DetDockerSpawner` in a real Hub with a real engine: the master holds the slots, the Hub runs the containers."""

import contextlib
import json
import os
import re
import signal
import threading

import pytest

from testbed.cluster import running_cluster
from testbed.containers import docker_images
from testbed.servers import Kernel, kill_part, logged_in, person, until

pytestmark = [pytest.mark.hub, pytest.mark.slow, pytest.mark.timeout(240)]

CONFIG = """
import json
from pathlib import Path

c.EmbeddedCluster.extra_users = ["ada", "ben"]
c.EmbeddedCluster.docker = False
c.EmbeddedCluster.hub_ip = "0.0.0.0"
state = Path({state!r})
if (state / "plan.json").exists():  # det up reads this file before there is a plan
    plan = json.loads((state / "plan.json").read_text())
    c.JupyterHub.hub_connect_url = f"http://{gateway}:{{plan['hub_port']}}"
    c.DetDockerSpawner.service_url = f"http://127.0.0.1:{{plan['master_port']}}/services/detlab/"
c.JupyterHub.spawner_class = "detlab_hub.spawners.docker.DetDockerSpawner"
c.DetDockerSpawner.service_token_file = str(state / "secrets" / "spawner_token")
c.DetDockerSpawner.poll_interval = 1
c.DetDockerSpawner.http_timeout = 120
c.DetDockerSpawner.allowed_images = [{image!r}]
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, docker_engine):
    """A cluster with one slot, whose agent has no engine: the Hub has."""
    root = tmp_path_factory.mktemp("held")
    config = CONFIG.format(
        state=str(root / ".detlab"), gateway=docker_engine.gateway, image=docker_images.EMPTY
    ) + docker_images.spawner_config("DetDockerSpawner", docker_engine)
    with running_cluster(root, slots=1, config=config) as running:
        yield running


@pytest.fixture(scope="module")
def people(cluster):
    found = [person(cluster, name) for name in ("ada", "ben")]
    yield found
    for one in found:
        one.close()


@pytest.fixture
def ada(people):
    yield people[0]
    if people[0].model("box"):
        people[0].stop("box")


@pytest.fixture
def ben(people):
    yield people[1]
    if people[1].model("next"):
        people[1].stop("next")


@pytest.fixture
def notebook(ada):
    """The address of ada's notebook, which holds the only slot."""
    reply = ada.start("box", slots=1)
    assert reply.status_code in {201, 202}, reply.text
    return ada.ready("box")


def test_the_hubs_container_runs_while_the_master_holds_its_slot(ada, ben, notebook, cluster, docker_engine):
    kernel = Kernel(notebook, ada.token)
    said = kernel.run("import os, socket; answer = 41; print(os.getuid(), socket.gethostname())").split()
    assert said[0] == "1000"
    (container,) = docker_engine.containers()
    assert container.startswith(said[1]), "the kernel runs in the container that the Hub started"
    task = ada.task("box")
    assert (task["kind"], task["display_state"], len(task["slots"])) == ("notebook", "RUNNING", 1)
    assert ada.get("cluster").json()["slots_used"] == 1

    waiting = threading.Thread(target=ben.start, args=("next",), kwargs={"slots": 1})
    waiting.start()
    ben.until_task(name="next", allocation_state="PENDING")
    (queued,) = until(lambda: ben.get("queue").json()["items"], cluster.logs)
    assert queued["task_id"] == ben.task("next")["id"]
    assert docker_engine.containers() == [container], "no container before its slots"
    ben.stop("next")
    waiting.join(30)
    assert ben.until_task(name="next", state="CANCELED")["end_reason"] == "canceled"

    kill_part(cluster, "hub")
    ada.ready("box")
    assert "41" in Kernel(notebook, ada.token, kernel.id).run("print(answer)"), "the Hub found it again"
    assert ada.until_task(name="box", id=task["id"])["display_state"] == "RUNNING"

    ada.stop("box")
    assert ada.until_task(name="box", id=task["id"], state="CANCELED")["end_reason"] == "killed"
    assert docker_engine.containers(running=True) == [], "none on slots that somebody else may have"
    until(lambda: docker_engine.containers() == [], cluster.logs)  # the engine itself removes it, in its own time
    assert ada.get("cluster").json()["slots_used"] == 0


def test_a_container_whose_slots_are_lost_is_stopped_by_the_hub(ada, notebook, cluster, docker_engine):
    """Somebody else may have the slots now: here the process that held them has died."""
    assert len(docker_engine.containers()) == 1
    task = ada.task("box")
    launcher = json.loads((cluster.folder / f"agent/tasks/{task['id']}.1/launcher.json").read_text())
    os.kill(launcher["pgid"], signal.SIGKILL)
    until(lambda: not ada.model("box"), cluster.logs)
    until(lambda: docker_engine.containers() == [], cluster.logs)


def test_what_this_hub_cannot_give_is_refused_at_once(ada, docker_engine):
    wrong = ada.start("box", kind="tensorboard", experiment_ids=[1], idle_timeout="1h", runtime="process")
    assert wrong.status_code == 400
    for word in ("TensorBoard", "Idle", "Runtime"):
        assert word in wrong.json()["message"], word
    image = ada.start("box", image="testbed/other:1")
    assert image.status_code == 400
    assert docker_images.EMPTY in image.json()["message"]
    assert ada.task("box").get("display_state") != "RUNNING"
    assert docker_engine.containers() == []


def test_the_form_asks_what_this_hub_can_give(ada, cluster):
    with contextlib.closing(logged_in(cluster, "ada")) as browser:
        page = browser.get("/hub/spawn/ada/box").text
    assert set(re.findall(r'name="(\w+)"', page)) & {"slots", "image", "runtime", "idle_timeout"} == {"slots", "image"}
