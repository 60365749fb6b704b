"""How an agent reaches an API server: kubeconfigs, plugins and tokens that change; real programs, files and TLS."""

from __future__ import annotations

import asyncio
import base64
import datetime
import itertools
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from detlab_agent.runtimes.kubernetes.api import Api, ApiAway, ApiRefused
from detlab_agent.runtimes.kubernetes.credentials import Credential, NoCredential, ShownCredentials
from detlab_agent.runtimes.kubernetes.kubeconfig import Access, Opened
from detlab_agent.settings import AgentError
from testbed.kubernetes.fake.cluster import AGENT, FakeCluster
from testbed.network.tls_peers import Authority

V1 = "client.authentication.k8s.io/v1"
PLUGIN = """
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
with (here / "runs").open("a") as runs:
    print(os.environ["KUBERNETES_EXEC_INFO"], file=runs)
sys.stdout.write((here / "answer.json").read_text())
sys.stderr.write("please log in")
sys.exit(int(os.environ.get("STATUS", 0)))
"""


def kubeconfig(path: Path, user: dict[str, Any], server: str = "http://127.0.0.1:1", **cluster: Any) -> Path:
    context = {"cluster": "one", "user": "me", "namespace": "lab"}
    value = {
        "clusters": [{"name": "one", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "ours", "context": context}],
        "current-context": "ours",
    }
    path.write_text(json.dumps(value))
    return path


class Plugin:
    """A program for `exec`, whose answer a test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "plugin.py").write_text(PLUGIN)

    def user(self, **more: Any) -> dict[str, Any]:
        command = {"command": sys.executable, "args": [str(self.folder / "plugin.py")], "apiVersion": V1}
        return {"exec": {**command, **more}}

    def answers(self, seconds: float | None = None, version: str = V1, **status: Any) -> None:
        if seconds is not None:
            ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
            status["expirationTimestamp"] = ends.strftime("%Y-%m-%dT%H:%M:%SZ")
        value = {"kind": "ExecCredential", "apiVersion": version, "status": status}
        (self.folder / "answer.json").write_text(json.dumps(value))

    def runs(self) -> list[Any]:
        return [json.loads(line) for line in (self.folder / "runs").read_text().splitlines()]


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path) as found:
        yield found


def opened(path: Path | None, environ: dict[str, str] | None = None, **more: Any) -> Opened:
    return asyncio.run(Access(path, environ=environ or {}, **more).open())


# --- kubeconfigs


def test_a_token_a_namespace_and_an_address_are_read(tmp_path):
    found = opened(kubeconfig(tmp_path / "config", {"token": "secret"}, "http://127.0.0.1:7001/"))
    assert (found.server.url, found.namespace, found.first.authorization) == (
        "http://127.0.0.1:7001",
        "lab",
        "Bearer secret",
    )
    assert "secret" not in repr(found)


def test_a_password_is_shown_as_one(tmp_path):
    found = opened(kubeconfig(tmp_path / "config", {"username": "me", "password": "pass"}))
    assert base64.b64decode(found.first.authorization.removeprefix("Basic ")) == b"me:pass"


def test_several_files_are_merged_and_paths_are_relative_to_their_own(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = kubeconfig(tmp_path / "a/config", {"tokenFile": "token"})
    second = kubeconfig(tmp_path / "b/config", {"token": "of the second"})
    other = json.loads(second.read_text())
    other["contexts"].append({"name": "theirs", "context": {"cluster": "two", "user": "she"}})
    other["clusters"].append({"name": "two", "cluster": {"server": "http://two"}})
    other["users"].append({"name": "she", "user": {"tokenFile": "token"}})
    second.write_text(json.dumps(other))
    (tmp_path / "a/token").write_text("of-a\n")
    (tmp_path / "b/token").write_text("of-b\n")
    files = {"KUBECONFIG": f"{first}:{tmp_path / 'none'}:{second}"}
    assert opened(None, files).first.authorization == "Bearer of-a"
    found = opened(None, files, context="theirs")
    assert (found.server.url, found.first.authorization, found.namespace) == ("http://two", "Bearer of-b", "default")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"current-context": ""}, "names no current-context, and its contexts are ours"),
        ({"current-context": "x"}, "has no context 'x'; it has ours"),
        ({"clusters": []}, "names the cluster 'one', which is not there"),
        ({"users": []}, "names the user 'me', who is not there"),
        ({"clusters": [{"name": "one", "cluster": {}}]}, "'server' is missing"),
        ({"clusters": [{"name": "one", "cluster": {"server": "ftp://x"}}]}, "no address of an API server"),
        ({"users": [{"name": "me", "user": {"token": "  "}}]}, "the token is empty"),
        ({"users": [{"name": "me", "user": {"tokenFile": "none"}}]}, "token file"),
        ({"users": [{"name": "me", "user": {"auth-provider": {"name": "gcp"}}}]}, "auth-provider gcp"),
        ({"users": [{"name": "me", "user": {"exec": {"command": "x"}}}]}, "needs a command and an apiVersion"),
        ({"contexts": 7}, "no access to Kubernetes"),
        (
            {"clusters": [{"name": "one", "cluster": {"server": "https://x", "certificate-authority-data": "eA=="}}]},
            "certificate-authority: ",
        ),
        (
            {"clusters": [{"name": "one", "cluster": {"server": "https://x", "certificate-authority": "none"}}]},
            "none'",
        ),
    ],
)
def test_what_is_wrong_with_a_kubeconfig_is_said(tmp_path, change, said):
    path = kubeconfig(tmp_path / "config", {"token": "secret"})
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(AgentError) as error:
        opened(path)
    assert said in str(error.value)
    assert "--kubeconfig FILE" in str(error.value)


def test_no_kubeconfig_at_all_is_said(tmp_path):
    with pytest.raises(AgentError, match="there is no kubeconfig"):
        opened(tmp_path / "none")


def test_the_service_account_of_a_pod_is_used_inside_a_cluster(tmp_path):
    (tmp_path / "token").write_text("of-the-pod")
    (tmp_path / "namespace").write_text("lab\n")
    (tmp_path / "ca.crt").write_text(Authority().certificate)
    inside = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    found = opened(None, inside, account=tmp_path)
    assert (found.server.url, found.namespace) == ("https://[fd00::1]:6443", "lab")
    assert found.first.authorization == "Bearer of-the-pod"
    (tmp_path / "token").write_text("the-next")
    assert asyncio.run(found.read()).authorization == "Bearer the-next"


# --- plugins


def test_a_plugin_gives_the_token_and_is_told_of_the_cluster(tmp_path, plugin):
    plugin.answers(token="of-the-plugin", seconds=600)
    found = opened(kubeconfig(tmp_path / "config", plugin.user(provideClusterInfo=True)))
    assert found.first.authorization == "Bearer of-the-plugin"
    (told,) = plugin.runs()
    assert told["spec"] == {"interactive": False, "cluster": {"server": "http://127.0.0.1:1"}}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"env": [{"name": "STATUS", "value": "3"}]}, "ended with status 3: please log in"),
        ({"command": "no-such-plugin", "installHint": "apt install it"}, "apt install it"),
        ({"interactiveMode": "Always"}, "an agent has no terminal"),
        ({"apiVersion": "client.authentication.k8s.io/v1beta1"}, f"speaks {V1}"),
    ],
)
def test_what_is_wrong_with_a_plugin_is_said_without_its_token(tmp_path, plugin, more, said):
    plugin.answers(token="very-secret")
    with pytest.raises(AgentError) as error:
        opened(kubeconfig(tmp_path / "config", plugin.user(**more)))
    assert said in str(error.value)
    assert "very-secret" not in str(error.value)


def test_a_plugin_that_answers_nonsense_is_refused(tmp_path, plugin):
    for text in ("", "[]", "{", '{"status": {"token": 7, "expirationTimestamp": "soon"}}'):
        (plugin.folder / "answer.json").write_text(text)
        with pytest.raises(AgentError, match=r"writes no ExecCredential|speaks None"):
            opened(kubeconfig(tmp_path / "config", plugin.user()))


# --- new ones for old


class Source:
    """Credentials that a test hands out."""

    def __init__(self, *given: Credential | NoCredential) -> None:
        self.given, self.asked = list(given), 0

    async def read(self) -> Credential:
        self.asked += 1
        found = self.given.pop(0) if len(self.given) > 1 else self.given[0]
        if isinstance(found, NoCredential):
            raise found
        return found


def test_one_that_ends_soon_is_replaced_once_for_many_requests():
    source, now = Source(Credential("new", until=5000.0)), [1000.0]

    async def ask() -> None:
        held = ShownCredentials(source.read, Credential("old", until=1100.0), lambda: now[0])
        assert (await held.current()).authorization == "old"
        now[0] = 1050.0
        found = await asyncio.gather(*(held.current() for _ in range(50)))
        assert {one.authorization for one in found} == {"new"}
        assert source.asked == 1

    asyncio.run(ask())


def test_one_that_is_refused_is_not_asked_for_with_each_request():
    source, now = Source(Credential("same")), [1000.0]

    async def ask() -> None:
        held = ShownCredentials(source.read, Credential("same"), lambda: now[0])
        for _ in range(20):
            await held.current(refused=Credential("same"))
        assert source.asked == 1
        now[0] += 6.0
        await held.current(refused=Credential("same"))
        assert source.asked == 2

    asyncio.run(ask())


def test_the_old_one_is_used_as_long_as_it_is_good_if_there_is_no_new_one():
    source, now = Source(NoCredential("the cloud is away")), [1000.0]

    async def ask() -> None:
        held = ShownCredentials(source.read, Credential("old", until=1030.0), lambda: now[0])
        assert (await held.current()).authorization == "old"
        now[0] = 1040.0
        with pytest.raises(NoCredential, match="the cloud is away"):
            await held.current()

    asyncio.run(ask())


@pytest.mark.slow
def test_a_token_that_is_rotated_in_its_file_is_taken_up_by_the_next_request(tmp_path, cluster):
    """Tokens of service accounts end after an hour; agents run for weeks."""
    file = tmp_path / "token"
    file.write_text(AGENT)

    async def ask() -> None:
        found = await Access(kubeconfig(tmp_path / "config", {"tokenFile": "token"}, cluster.url), environ={}).open()
        api = Api(found)
        try:
            await api.ask("GET", "/api/v1/nodes")
            cluster.users["the-next"] = cluster.users.pop(AGENT)
            with pytest.raises(ApiRefused):
                await api.ask("GET", "/api/v1/nodes")
            file.write_text("the-next")
            await asyncio.sleep(5.1)
            await api.ask("GET", "/api/v1/nodes")
        finally:
            await api.close()

    asyncio.run(ask())


def test_a_plugin_is_run_again_once_its_token_is_refused(tmp_path, cluster, plugin):
    plugin.answers(token=AGENT, seconds=3600)

    async def ask() -> None:
        found = await Access(kubeconfig(tmp_path / "config", plugin.user(), cluster.url), environ={}).open()
        api = Api(found)
        try:
            await asyncio.gather(*(api.ask("GET", "/api/v1/nodes") for _ in range(20)))
            assert len(plugin.runs()) == 1
            cluster.users["the-next"] = cluster.users.pop(AGENT)
            plugin.answers(token="the-next", seconds=3600)
            await asyncio.gather(*(api.ask("GET", "/api/v1/nodes") for _ in range(20)))
            assert len(plugin.runs()) == 2
            cluster.users["the-last"] = cluster.users.pop("the-next")
            plugin.answers(token="the-last", seconds=3600)
            with pytest.raises(ApiRefused) as error:
                await api.signal_first("none", "main", 15)
            assert error.value.code == 404, "there is no such pod, and the new token is accepted"
        finally:
            await api.close()

    asyncio.run(ask())


class Who(RequestHandler):
    """Says whose certificate it was shown."""

    def get(self) -> None:
        shown = self.request.get_ssl_certificate()
        self.write({"name": dict(part[0] for part in shown["subject"])["commonName"]})


@pytest.mark.slow
async def test_certificates_of_clients_are_shown_and_new_ones_taken_up_and_another_server_is_refused(tmp_path, plugin):
    ours, clients = Authority(), Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ours.sign(tmp_path, "api.lab"))
    context.load_verify_locations(cadata=clients.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    server, (listening,) = HTTPServer(Application([("/who", Who)]), ssl_options=context), bind_sockets(0, "127.0.0.1")
    server.add_sockets([listening])
    numbers = itertools.count()
    url = f"https://127.0.0.1:{listening.getsockname()[1]}"

    def encoded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    def answer(name: str) -> None:
        certificate, key = clients.sign(tmp_path, name)
        plugin.answers(seconds=61, clientCertificateData=certificate.read_text(), clientKeyData=key.read_text())

    async def client(user: dict[str, Any], authority: str, **more: Any) -> Api:
        named = {"certificate-authority-data": encoded(authority), "tls-server-name": "api.lab", **more}
        path = kubeconfig(tmp_path / f"config-{next(numbers)}", user, url, **named)
        return Api(await Access(path, environ={}).open())

    _, key = clients.sign(tmp_path, "first")
    files = {"client-certificate": "first.pem", "client-key-data": encoded(key.read_text())}
    answer("second")
    kept = await client(files, ours.certificate)
    turned = await client(plugin.user(), ours.certificate)
    wrong = await client(files, clients.certificate)
    other = await client(files, ours.certificate, **{"tls-server-name": "other.lab"})
    try:
        assert await kept.ask("GET", "/who") == {"name": "first"}
        assert await turned.ask("GET", "/who") == {"name": "second"}
        answer("third")
        async with asyncio.timeout(20):  # the second one ends in a minute, which is soon
            while await turned.ask("GET", "/who") != {"name": "third"}:
                await asyncio.sleep(0.2)
        for one in (wrong, other):
            with pytest.raises(ApiAway, match="CERTIFICATE_VERIFY_FAILED"):
                await one.ask("GET", "/who")
    finally:
        for one in (kept, turned, wrong, other):
            await one.close()
        server.stop()
        await server.close_all_connections()


def test_the_models_of_kubernetes_asyncio_took_half_of_the_agents_memory():
    text = "import sys, detlab_agent.runtimes.kubernetes.runtime; print('kubernetes_asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
