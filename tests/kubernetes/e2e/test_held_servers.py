"""`DetKubeSpawner` of a real Hub on the fake Kubernetes: the agent holds the slots, the Hub makes the pod."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "e2e"))

from testbed.agents import printed_agent
from testbed.cluster import Cluster, running_cluster
from testbed.kubernetes import images
from testbed.kubernetes.fake.cluster import ADMIN, FakeCluster
from testbed.servers import Kernel, Person, person
from testbed.waiting import until

pytestmark = [
    pytest.mark.hub,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: pods run as other users"),
]
CONFIG = f"""
import os
from pathlib import Path

from detlab_hub.embedded.state import StateFolder

c.DetHub.pools = {{"pods": {{}}}}
c.JupyterHub.spawner_class = "detlab_hub.spawners.kube.DetKubeSpawner"
found = StateFolder(Path(os.environ["DETLAB_STATE_DIR"])) if "DETLAB_STATE_DIR" in os.environ else None
if found is not None and found.read_plan() is not None:
    c.DetKubeSpawner.service_url = found.read_plan().master_url
    c.DetKubeSpawner.service_token_file = str(found.secrets / "spawner_token")
    c.DetKubeSpawner.cluster_url = found.read_plan().public_url
c.DetKubeSpawner.pools = ["pods"]
c.DetKubeSpawner.namespace = "default"
c.DetKubeSpawner.image = "{images.PYTHON}"
c.DetKubeSpawner.cmd = ["jupyterhub-singleuser"]
c.DetKubeSpawner.extra_container_config = {{"command": ["env"]}}
c.DetKubeSpawner.port = 8899
c.DetKubeSpawner.uid = 1000
c.DetKubeSpawner.gid = 1000
c.DetKubeSpawner.environment = {{"HOME": "/tmp"}}
c.DetKubeSpawner.delete_grace_period = 1
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="detlab-held-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def kube(place: Path) -> Iterator[FakeCluster]:
    (place / "kube").mkdir(mode=0o755)
    with FakeCluster(place / "kube") as found:
        found.add_node("gpu-1", gpus=1, cpu="8", memory="32Gi", runs=True)
        yield found


@pytest.fixture(scope="module")
def cluster(place: Path, kube: FakeCluster) -> Iterator[Cluster]:
    (place / "hub").mkdir(mode=0o755)
    reached = {"KUBECONFIG": str(kube.kubeconfig(ADMIN))}
    with running_cluster(place / "hub", slots=1, config=CONFIG, extra=reached) as running:
        yield running


@pytest.fixture(scope="module")
def operator(cluster: Cluster) -> Iterator[Person]:
    found = person(cluster, cluster.user)
    yield found
    found.close()


@pytest.mark.soak
def test_a_server_from_before_the_first_node_stayed_pending(cluster, operator, kube, place):
    config = {"resources": {"resource_pool": "pods", "slots": 1}}
    asking = threading.Thread(target=operator.start, args=("early",), kwargs={"config": config})
    asking.start()
    operator.until_task(name="early", allocation_state="PENDING")
    assert not kube.objects("pods")

    printed = cluster.det("agent", "enrol")
    settings = place / "settings.yaml"
    settings.write_text(json.dumps({"image": images.PYTHON}))
    command = printed.stderr.rpartition("→")[2].strip()
    command += f" --kubernetes --kubeconfig {kube.kubeconfig()} --kubernetes-settings {settings} --pool pods"
    (place / "agent").mkdir(mode=0o755)
    with printed_agent(command, printed.stdout.strip(), place / "agent", "kube", cluster.environment) as agent:
        server = operator.ready("early", 90)
        asking.join(30)
        pods = {pod["metadata"]["labels"].get("detlab.io/kind", "server"): pod for pod in kube.objects("pods")}
        assert set(pods) == {"notebook", "server"}
        hold, made = pods["notebook"], pods["server"]
        assert {pod["spec"]["nodeName"] for pod in pods.values()} == {"gpu-1"}
        assert made["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
        assert "nvidia.com/gpu" not in hold["spec"]["containers"][0]["resources"].get("limits", {})
        assert Kernel(server, operator.token).run("print(6 * 7)").strip() == "42"
        (slot,) = next(view for view in agents_of(operator) if view["id"] == "kube/gpu-1")["slots"]
        assert slot["enabled"], "its device is that of the held slot, and not another one"
        operator.stop("early", remove=True)
        until(lambda: not kube.objects("pods"), lambda: f"{kube.objects('pods')}\n{agent.log}", 60)


def agents_of(operator: Person) -> list[dict[str, object]]:
    found: list[dict[str, object]] = operator.get("agents").json()
    return found
