"""A notebook and a shell on another node, reached by TLS: the proxy believes the server at its own address only."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import websocket

from detlab.trust import pinning
from detlab_hub.services.base.server_certificates import ServerAuthority
from testbed import processes
from testbed.cluster import Cluster, running_cluster
from testbed.network.islands import Island, sea, why_not
from testbed.network.tls_peers import make_pair, tls_peer
from testbed.waiting import until

pytestmark = [pytest.mark.hub, pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass
class Place:
    """A cluster with TLS, a node in a network namespace, and somebody who has a browser."""

    cluster: Cluster
    url: str
    node: Island
    log: Path
    browser: httpx.Client

    def tell(self) -> str:
        """What happened, for a failing test's message."""
        return f"{self.cluster.logs()}\n--- node\n{self.log.read_text()[-5000:]}"

    def start(self, name: str, **options: object) -> str:
        """Start a server and wait for it; return its path."""
        asked = self.browser.post(f"hub/api/users/{self.cluster.user}/servers/{name}", json={"user_options": options})
        assert asked.status_code in {201, 202}, asked.text
        return until(lambda: self._path(name), self.tell, 90)

    def stop_all(self) -> None:
        """Stop the servers that tests have left: they would outlive the agent."""
        user = f"hub/api/users/{self.cluster.user}"
        for name in self.browser.get(user).json()["servers"]:
            self.browser.delete(f"{user}/servers/{name}")
        until(lambda: not self.browser.get(user).json()["servers"], self.tell)

    def _path(self, name: str) -> str | None:
        model = self.browser.get(f"hub/api/users/{self.cluster.user}").json()["servers"].get(name) or {}
        return str(model["url"]).lstrip("/") if model.get("ready") else None

    def target(self, path: str) -> str:
        """Where the proxy goes for a server."""
        plan = json.loads((self.cluster.folder / "plan.json").read_text())
        token = (self.cluster.folder / "secrets" / "proxy_token").read_text().strip()
        address = f"http://127.0.0.1:{plan['proxy_api_port']}/api/routes"
        routes = httpx.get(address, headers={"Authorization": f"token {token}"}, trust_env=False).json()
        return str(routes[f"/{path.rstrip('/')}"]["target"])

    @contextmanager
    def socket(self, path: str) -> Iterator[websocket.WebSocket]:
        """A WebSocket through the proxy, as a page has it; `Host` is a name, as where people have one."""
        certificate = str(self.cluster.folder / "certificate.pem")
        trust = {"ca_certs": certificate, "cert_reqs": ssl.CERT_REQUIRED, "check_hostname": False}
        header = [f"Authorization: token {self.cluster.token}"]
        url = f"{self.url.replace('https', 'wss')}/{path}"
        connection = websocket.create_connection(url, header=header, host=HOST, sslopt=trust, timeout=60)
        try:
            yield connection
        finally:
            connection.close()


HOST = "hub.example.org"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("tls-servers")
    with ExitStack() as stack:
        net = stack.enter_context(sea(1))
        cluster = stack.enter_context(running_cluster(root, slots=1, more=["--ip", net.address, "--tls"]))
        url = f"https://{net.address}:{cluster.port}"
        trust = pinning((cluster.folder / "certificate.pem").read_text())
        headers = {"Authorization": f"token {cluster.token}", "Host": HOST}
        browser = stack.enter_context(
            httpx.Client(base_url=url, headers=headers, verify=trust, trust_env=False, timeout=60)
        )
        found = Place(cluster, url, net.islands[0], root / "node.log", browser)
        stack.enter_context(_node(found, root))
        yield found
        found.stop_all()


@contextmanager
def _node(place: Place, root: Path) -> Iterator[None]:
    printed = place.cluster.det("agent", "enrol")
    token = root / "token"
    token.touch(mode=0o600)
    token.write_text(printed.stdout)
    command = [*place.node.prefix, sys.executable, "-m", "detlab_agent", "--master", place.url, "--name", "far"]
    command += ["--slots", "1", "--dir", str(root / "agent"), "--address", place.node.address]
    command += ["--enrolment-token-file", str(token)]
    with place.log.open("wb") as log:
        agent = subprocess.Popen(command, env=place.cluster.environment, stdout=log, stderr=log)
    try:
        until(lambda: "connected to cluster" in place.log.read_text(), place.tell)
        yield
    finally:
        processes.end(agent, 20)


@pytest.fixture(scope="module")
def far(place: Place) -> str:
    """A notebook on the other node: its path."""
    agents = json.loads(place.cluster.det("agent", "list", "--json").stdout)
    own = next(agent["id"] for agent in agents if agent["id"] != "far")
    assert place.cluster.det("agent", "disable", own).returncode == 0
    path = place.start("far", slots=1)
    assert place.cluster.det("agent", "enable", own).returncode == 0
    return path


def test_its_kernel_and_its_terminal_work_through_the_proxy(place: Place, far: str) -> None:
    assert place.target(far).startswith(f"https://{place.node.address}:")
    kernel = place.browser.post(f"{far}api/kernels", json={})
    assert kernel.status_code == 201, kernel.text
    code = "import os; print('ON', os.environ['DET_AGENT_ID'])"
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    header = {"msg_id": "1", "msg_type": "execute_request", "session": "s", "username": "u", "version": "5.3"}
    asked = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    with place.socket(f"{far}api/kernels/{kernel.json()['id']}/channels") as page:
        page.send(json.dumps(asked))
        while "ON far" not in str(page.recv()):
            pass
    terminal = place.browser.post(f"{far}api/terminals")
    with place.socket(f"{far}terminals/websocket/{terminal.json()['name']}") as page:
        page.send(json.dumps(["stdin", "echo $((20 + 22))\r"]))
        said = ""
        while "42" not in said:
            said += str(page.recv())


def test_plain_http_gets_nothing_at_its_port(place: Place, far: str) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{place.target(far).replace('https', 'http')}/{far}api", trust_env=False, timeout=10)


def test_one_on_the_masters_own_node_is_as_before(place: Place) -> None:
    assert place.cluster.det("agent", "disable", "far").returncode == 0
    near = place.start("near", slots=1)
    assert place.cluster.det("agent", "enable", "far").returncode == 0
    assert place.target(near).startswith("http://127.0.0.1:")
    assert place.browser.get(f"{near}api/status").status_code == 200


def test_the_proxy_tells_an_impostor_at_its_port_nothing(place: Place, far: str, tmp_path: Path) -> None:
    """Neither one with a certificate of its own, nor another node's server."""
    folder = place.cluster.folder
    port = int(place.target(far).rpartition(":")[2].rstrip("/"))
    other = tmp_path / "other.pem", tmp_path / "other_key.pem"
    texts = ServerAuthority(folder / "servers.pem", folder / "secrets" / "servers_key.pem").issue("10.255.255.1")
    for path, text in zip(other, texts, strict=True):
        path.write_text(text)
    own = make_pair(tmp_path, "own", place.node.address, HOST)
    before = place.browser.get(f"{far}api/status")
    assert before.status_code == 200, before.text
    with place.node.address_taken():
        for pair in (own, other):
            where = (place.node.address, port)
            with tls_peer(tmp_path, pair=pair, answer=b"HTTP/1.1 200 OK\r\n\r\n", at=where) as peer:

                def met() -> bool:
                    refused = place.browser.get(f"{far}api/status")
                    assert refused.status_code == 503, refused.text
                    return peer.met >= 1

                until(met, place.tell, 20)  # the proxy may still have a connection to the right one, which breaks
                with pytest.raises(websocket.WebSocketException), place.socket(f"{far}terminals/websocket/1"):
                    pass
                assert peer.met >= 2
                assert peer.heard == []
