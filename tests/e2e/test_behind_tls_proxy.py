"""`det up --behind-tls-proxy` behind a server that ends TLS, with a certificate of an authority like a site's own."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from detlab_hub.embedded.parts import find_proxy
from testbed import processes
from testbed.agents import Agent, printed_agent
from testbed.cluster import Cluster, free_port, running_cluster
from testbed.tls_peers import Authority
from testbed.waiting import until

pytestmark = [pytest.mark.hub, pytest.mark.slow]


@dataclass(frozen=True)
class Place:
    """A cluster on loopback, and how people reach it."""

    cluster: Cluster
    url: str
    authority: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root, port = tmp_path_factory.mktemp("behind"), free_port()
    root.chmod(0o755)
    authority = Authority()
    trusted = root / "authority.pem"
    trusted.write_text(authority.certificate)
    certificate, key = authority.sign(root, "127.0.0.1")
    url = f"https://127.0.0.1:{port}"
    config = f"c.EmbeddedCluster.public_url = '{url}'\n"
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(root, slots=1, config=config, more=["--behind-tls-proxy"]))
        front = [*find_proxy(), "--ip", "127.0.0.1", "--port", str(port), "--api-port", str(free_port())]
        front += ["--ssl-cert", str(certificate), "--ssl-key", str(key), "--default-target", cluster.url]
        with (root / "front.log").open("wb") as log:
            server = subprocess.Popen(front, env=cluster.environment, stdout=log, stderr=log)
        stack.callback(processes.end, server, 20)
        until(lambda: _answers(url, trusted), (root / "front.log").read_text)
        yield Place(cluster, url, trusted)


def _answers(url: str, authority: Path) -> bool:
    try:
        with browser(url, authority) as page:
            return page.get("/hub/health").status_code == 200
    except httpx.TransportError:
        return False


def browser(url: str, authority: Path) -> httpx.Client:
    """Somebody outside, whose machine trusts the authority."""
    trust = ssl.create_default_context(cafile=str(authority))
    return httpx.Client(base_url=url, verify=trust, trust_env=False, timeout=30)


@pytest.fixture(scope="module")
def node(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """A second agent, by the printed command, on a machine that trusts the authority."""
    cluster = place.cluster
    printed = cluster.det("agent", "enrol")
    command = printed.stderr.rpartition("→")[2].strip()
    assert place.url in command, printed.stderr
    assert "@sha256:" not in printed.stdout, "such certificates are renewed every few weeks"
    own = json.loads(cluster.det("agent", "list", "--json").stdout)[0]["id"]
    assert cluster.det("agent", "disable", own).returncode == 0
    folder = tmp_path_factory.mktemp("node")
    folder.chmod(0o755)
    environment = {**cluster.environment, "SSL_CERT_FILE": str(place.authority)}
    with printed_agent(command, printed.stdout.strip(), folder, "second", environment) as second:
        second.until_it_says("enrolled as second", "connected to cluster")
        yield second


def test_people_log_in_by_https_and_stay_there(place: Place) -> None:
    assert f"{place.url}/hub/login" in place.cluster.up("--behind-tls-proxy").stdout
    with browser(place.url, place.authority) as page:
        form = page.get("/hub/login")
        found = re.search(r'name="_xsrf"\s+value="([^"]+)"', form.text)
        assert found is not None, form.text
        data = {"username": place.cluster.user, "password": place.cluster.password, "_xsrf": found[1]}
        entered = page.post("/hub/login?next=%2Fhub%2Fhome", data=data)
        assert entered.status_code == 302, entered.text
        hub_page = page.get("/services/detlab/plain", follow_redirects=True)
        hub_page.raise_for_status()
        assert str(hub_page.url) == f"{place.url}/services/detlab/plain"
        assert all(str(step.url).startswith(place.url) for step in hub_page.history)


def test_an_agent_and_its_tasks_come_through_it(place: Place, node: Agent) -> None:
    ran = place.cluster.det("cmd", "run", "--", "sh", "-c", "echo ON $DET_AGENT_ID VIA $DET_MASTER")
    assert ran.returncode == 0, (ran.stderr, node.log)
    assert f"ON second VIA {place.url}/services/detlab/" in ran.stdout
