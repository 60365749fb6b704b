"""Proxy variables of a site are for the world outside: no part of ours speaks to its master through them."""

from __future__ import annotations

import ast
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from detlab.client.transport.discovery import ClusterAddress
from detlab.launch.delivery.sender import HttpTransport, TransportError
from detlab_agent.endpoints import Endpoints
from detlab_agent.enrolment import KeyRing, MasterAway
from detlab_hub.embedded.parts import ClusterPart

ROOT = Path(__file__).parents[3]
SOURCES = ("harness", "hub_ext", "server_ext", "kernel_magics")
VARIABLES = ("http_proxy", "https_proxy", "ALL_PROXY")


def clients(tree: ast.AST) -> Iterator[ast.Call]:
    """Each making of an HTTP client of httpx."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"httpx.Client", "httpx.AsyncClient"}:
            yield node


@pytest.mark.slow
def test_every_client_says_whether_it_uses_proxies() -> None:
    """By default httpx uses those of the environment: `det up` failed after 90 s without a word about them."""
    silent, found = [], 0
    for path in (file for source in SOURCES for file in (ROOT / source).rglob("*.py")):
        for call in clients(ast.parse(path.read_text(encoding="utf-8"))):
            found += 1
            said = {word.arg: ast.unparse(word.value) for word in call.keywords if word.arg is not None}
            options = any(word.arg is None for word in call.keywords)  # `Driver._options` of the client
            if not options and said.get("trust_env") not in {"False", "address.proxied"}:
                silent.append(f"{path.relative_to(ROOT)}:{call.lineno}")
    assert found >= 8
    assert silent == []


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket of a proxy that all variables name."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        for name in VARIABLES:
            monkeypatch.setenv(name, f"http://127.0.0.1:{listener.getsockname()[1]}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield listener


async def test_an_agent_and_a_launcher_pass_a_proxy_by(proxy: socket.socket, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    ring = KeyRing(tmp_path / "key", "a", Endpoints("http://127.0.0.1:9/services/detlab/"), token)
    with pytest.raises(MasterAway):
        await ring.enrol()
    sender = HttpTransport("http://127.0.0.1:9/services/detlab/api/v1/")
    with pytest.raises(TransportError):
        sender.post("task/logs", b"{}", "t")
    sender.close()
    with pytest.raises(BlockingIOError):
        proxy.accept()


@pytest.mark.parametrize(
    ("url", "told", "used"),
    [
        ("http://hub.example/services/detlab/", None, False),
        ("http://hub.example/services/detlab/", "1", True),
        ("http://127.0.0.2:8000/services/detlab/", "1", False),
        ("http://localhost:8000/services/detlab/", "1", False),
    ],
)
def test_a_client_uses_a_proxy_only_where_it_is_told_to(
    monkeypatch: pytest.MonkeyPatch, url: str, told: str | None, used: bool
) -> None:
    if told is not None:
        monkeypatch.setenv("DET_USE_PROXY", told)
    assert ClusterAddress(url, "t", "a test").proxied is used


def test_an_unreachable_master_names_the_proxy_that_was_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://user:secret@proxy:3128")
    hint = ClusterAddress("https://hub.example/services/detlab/", "t", "a test").unreachable("no route").hint or ""
    assert "https_proxy was not used; DET_USE_PROXY=1 uses it" in hint
    assert "secret" not in hint


@pytest.mark.usefixtures("proxy")
def test_the_parts_of_a_cluster_reach_each_other_without_a_proxy(tmp_path: Path) -> None:
    env = ClusterPart("hub", ("x",), tmp_path / "log", tmp_path).environment()
    assert "127.0.0.1" in env["no_proxy"].split(",")
    assert env["no_proxy"] == env["NO_PROXY"]
