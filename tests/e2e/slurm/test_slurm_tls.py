"""A notebook on a node of a real Slurm in a cluster with TLS: the proxy believes it at its node's address only."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from slurm_lab import POOLS, SlurmAgent

from detlab.trust import pinning
from testbed.cluster import Cluster, running_cluster
from testbed.network.islands import sea, why_not
from testbed.slurm import SlurmCluster, accounts_for, missing
from testbed.waiting import until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.timeout(300)]
SPAWNER = "c.DetSpawner.runtimes = ['process', 'slurm']\n"


@dataclass
class Place:
    """A cluster with TLS and a Slurm whose nodes are reached over a network."""

    cluster: Cluster
    agent: SlurmAgent
    address: str
    browser: httpx.Client

    def tell(self) -> str:
        """What happened, for a failing test's message."""
        return f"{self.cluster.logs()}\n--- agent\n{self.agent.log[-5000:]}"

    def ready(self, name: str) -> str | None:
        """The path of a server, once it is ready."""
        user = self.browser.get(f"hub/api/users/{self.cluster.user}").json()
        model = user["servers"].get(name) or {}
        return str(model["url"]).lstrip("/") if model.get("ready") else None

    def target(self, path: str) -> str:
        """Where the proxy goes for a server."""
        plan = json.loads((self.cluster.folder / "plan.json").read_text())
        token = (self.cluster.folder / "secrets" / "proxy_token").read_text().strip()
        address = f"http://127.0.0.1:{plan['proxy_api_port']}/api/routes"
        routes = httpx.get(address, headers={"Authorization": f"token {token}"}, trust_env=False).json()
        return str(routes[f"/{path.rstrip('/')}"]["target"])


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    if why := missing():
        pytest.skip(f"no Slurm here: {why}")
    if reason := why_not():
        pytest.skip(reason)
    with ExitStack() as stack:
        net = stack.enter_context(sea(1))
        folder = Path(tempfile.mkdtemp(prefix="detlab-slurm-tls-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        slurm = stack.enter_context(SlurmCluster(folder / "slurm", address=net.address))
        for name in ("cluster", "agent"):
            (folder / name).mkdir()
        accounts = stack.enter_context(accounts_for("root"))
        config = f"{POOLS}{SPAWNER}c.EmbeddedCluster.user_map = {accounts}\n"
        more = ["--ip", net.address, "--tls"]
        cluster = stack.enter_context(running_cluster(folder / "cluster", slots=1, config=config, more=more))
        url = f"https://{net.address}:{cluster.port}"
        agent = SlurmAgent(cluster, slurm, folder / "agent", url=url)
        stack.callback(agent.end)
        agent.start()
        trust = pinning((cluster.folder / "certificate.pem").read_text())
        headers = {"Authorization": f"token {cluster.token}"}
        browser = httpx.Client(base_url=url, headers=headers, verify=trust, trust_env=False, timeout=60)
        yield Place(cluster, agent, net.address, stack.enter_context(browser))


def test_a_notebook_on_a_compute_node_speaks_tls(place: Place) -> None:
    server = f"hub/api/users/{place.cluster.user}/servers/nb"
    options = {"kind": "notebook", "pool": "slurm", "runtime": "slurm"}
    asked = place.browser.post(server, json={"user_options": options})
    assert asked.status_code in {201, 202}, asked.text
    path = until(lambda: place.ready("nb"), place.tell, 120)
    target = place.target(path)
    assert target.startswith(f"https://{place.address}:"), target
    assert place.browser.get(f"{path}api/status").status_code == 200
    kernel = place.browser.post(f"{path}api/kernels", json={})
    assert kernel.status_code == 201, kernel.text
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{target.replace('https', 'http')}/{path}api", trust_env=False, timeout=10)
    place.browser.delete(server)
    until(lambda: not place.agent.slurm.jobs(), place.tell, 60)
