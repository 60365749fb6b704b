"""`det up --behind-tls-proxy` behind a site's nginx, as the how-to has it, with a certificate of the site's authority.

The cluster is one of its sites, chosen by name: whoever comes by an address, or says another name, gets 421.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import websocket

from detlab.testing.ports import free_port
from testbed.agents import Agent, printed_agent
from testbed.cluster import Cluster, running_cluster
from testbed.network import nginx
from testbed.network.tls_peers import Authority
from testbed.waiting import until

pytestmark = [pytest.mark.hub, pytest.mark.slow]
NAME = "localhost"
HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "behind-your-own-tls-server.md"


@dataclass(frozen=True)
class Place:
    """A cluster on loopback, and how people reach it."""

    cluster: Cluster
    url: str
    authority: Path
    access_log: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    reason = nginx.why_not()
    if reason is not None:
        pytest.skip(reason)
    root, port = tmp_path_factory.mktemp("behind"), free_port()
    root.chmod(0o755)
    authority = Authority()
    trusted = root / "authority.pem"
    trusted.write_text(authority.certificate)
    certificate, key = authority.sign(root, NAME)
    url = f"https://{NAME}:{port}"
    config = f"c.EmbeddedCluster.public_url = '{url}'\n"
    with ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(root, slots=1, config=config, more=["--behind-tls-proxy"]))
        site = site_of_the_how_to(cluster.port, port, certificate, key)
        log = stack.enter_context(nginx.running_nginx(root / "nginx", site, port, certificate, key))
        until(lambda: _answers(url, trusted), log.read_text)
        yield Place(cluster, url, trusted, log.with_name("access.log"))


def site_of_the_how_to(cluster: int, port: int, certificate: Path, key: Path) -> str:
    """What the page says for nginx, with other names and ports."""
    found = re.search(r"^```nginx\n(.*?)^```$", HOW_TO.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    text = found[1]
    for said, here in {
        "listen 443": f"listen 127.0.0.1:{port}",
        "127.0.0.1:8642": f"127.0.0.1:{cluster}",
        "/etc/ssl/hub.example.org.pem": str(certificate),
        "/etc/ssl/hub.example.org.key": str(key),
        "hub.example.org": NAME,
    }.items():
        assert said in text
        text = text.replace(said, here)
    return text


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


def test_it_is_found_by_its_name_only(place: Place) -> None:
    with browser(place.url, place.authority) as page:
        assert page.get("/hub/health", headers={"Host": "other.example.org"}).status_code == 421
        assert page.get("/hub/health").status_code == 200


@pytest.fixture(scope="module")
def far(place: Place, node: Agent) -> Iterator[str]:
    """A notebook on the second node: its path."""
    user = f"/hub/api/users/{place.cluster.user}"
    with signed_in(place) as page:
        assert page.post(f"{user}/servers/far", json={"user_options": {"slots": 1}}).status_code in {201, 202}

        def ready() -> str | None:
            server = page.get(user).json()["servers"].get("far") or {}
            return str(server["url"]) if server.get("ready") else None

        yield until(ready, lambda: f"{place.cluster.logs()}\n--- node\n{node.log}", 120)
        page.delete(f"{user}/servers/far")


def signed_in(place: Place) -> httpx.Client:
    page = browser(place.url, place.authority)
    page.headers["Authorization"] = f"token {place.cluster.token}"
    return page


def test_a_kernel_on_another_node_runs_code_and_asks_the_cluster_through_it(place: Place, far: str) -> None:
    """Its WebSocket goes through nginx, and so does what its code asks of the master."""
    with signed_in(place) as page:
        kernel = page.post(f"{far}api/kernels", json={})
        assert kernel.status_code == 201, kernel.text
    code = "import os; from detlab import client; me = client.Client().whoami().name"
    code += "; print('I AM', me, 'ON', os.environ['DET_AGENT_ID'])"
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    head = {"msg_id": "1", "msg_type": "execute_request", "session": "s", "username": "u", "version": "5.3"}
    asked = {"header": head, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    url = f"{place.url.replace('https', 'wss')}{far}api/kernels/{kernel.json()['id']}/channels"
    said = ""
    header = [f"Authorization: token {place.cluster.token}"]
    trust = {"ca_certs": str(place.authority)}
    with closing(websocket.create_connection(url, header=header, sslopt=trust, timeout=60)) as connection:
        connection.send(json.dumps(asked))
        while f"I AM {place.cluster.user} ON second" not in said:
            said += str(connection.recv())
            assert '"status": "error"' not in said, said
    assert '"GET /services/detlab/api/v1/me ' in place.access_log.read_text(), (
        "the client of the kernel's code came by it"
    )
