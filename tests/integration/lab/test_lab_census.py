"""Every route and verb of the server extension declares its rules, and refuses who does not keep them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from tornado import websocket

from detlab_server.guard import GuardedHandler, reads, writes
from testbed.front.lab import Server, jupyter

OPTIONS = ("--ServerApp.jpserver_extensions={'detlab_server': True, 'lab_router_walk': True}",)
FOREIGN = "https://elsewhere.example"
VERBS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


class Route(NamedTuple):
    """One verb of one route, as the running server has it."""

    pattern: str
    verb: str
    socket: bool
    rule: dict[str, str] | None

    @property
    def path(self) -> str:
        return self.pattern.removesuffix("$").replace("(.*)", "experiments/999999").lstrip("/")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Jupyter server with the extension and without a cluster: what is refused is refused before one is asked."""
    folder = tmp_path_factory.mktemp("census")
    env = {
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parent),
        "DET_URL": "http://127.0.0.1:1/services/detlab/",
        "DET_TOKEN": "secret-of-the-user",
    }
    with jupyter(folder, env, lab=False, options=OPTIONS) as running:
        yield running


@pytest.fixture(scope="module")
def walked(server: Server) -> list[Route]:
    """Every verb of every route of detlab's in the server's router, planted ones too."""
    found = httpx.get(f"{server.url}planted/walk", trust_env=False).raise_for_status().json()
    return [Route(item["pattern"], item["verb"], item["socket"], item["rule"]) for item in found]


@pytest.fixture(scope="module")
def routes(walked: list[Route]) -> list[Route]:
    return [route for route in walked if "planted" not in route.pattern]


@pytest.fixture
def session(server: Server) -> Iterator[httpx.Client]:
    """A browser that is logged in: a cookie, and no XSRF token with its requests."""
    with httpx.Client(base_url=server.url, trust_env=False, timeout=20) as client:
        client.get("login")  # the page that brings the XSRF token
        client.get("login", params={"token": server.token})
        assert client.get("api/me").status_code == 200, "the session counts"
        yield client


def test_every_route_declares_its_scope_and_its_rule_against_other_sites(walked, routes):
    assert {route.path for route in routes} == {
        *("detlab/status", "detlab/version", "detlab/schema", "detlab/code", "detlab/judge", "detlab/submit"),
        "detlab/tutorial",
        "detlab/api/experiments/999999",
    }, "a new route: has it a test of its own, too?"
    assert [route for route in routes if route.rule is None] == []
    kept = {(route.verb, route.rule["scope"], route.rule["cross_site"]) for route in routes if route.rule}
    assert kept == {
        ("GET", "read", "origin"),
        ("POST", "write", "xsrf"),
        ("PUT", "write", "xsrf"),
        ("DELETE", "write", "xsrf"),
    }
    silent = {(route.path, route.socket) for route in walked if route.rule is None}
    assert silent == {("planted/detlab/nothing", False), ("planted/detlab/socket", True)}, (
        "the walk finds what declares nothing, WebSockets included"
    )


def test_a_route_that_declares_nothing_cannot_be_defined():
    async def handle(self: Any) -> None: ...

    for verbs in ({"get": handle}, {"post": handle}, {"get": writes(handle)}, {"delete": reads(handle)}):
        with pytest.raises(TypeError, match=r"declares neither|may not"):
            type("Handler", (GuardedHandler,), verbs)
    with pytest.raises(TypeError, match="declares neither"):
        type("Socket", (GuardedHandler, websocket.WebSocketHandler), {"get": websocket.WebSocketHandler.get})
    type("Handler", (GuardedHandler,), {"get": reads(handle), "post": writes(handle)})


def test_a_verb_that_declares_nothing_cannot_be_inherited_either():
    async def handle(self: Any) -> None: ...

    mixin = type("Mixin", (), {"post": handle})
    guarded = type("Handler", (GuardedHandler,), {"get": reads(handle)})
    for bases in ((mixin, GuardedHandler), (mixin, guarded), (GuardedHandler, websocket.WebSocketHandler)):
        with pytest.raises(TypeError, match="declares neither"):
            type("Mixed", bases, {})
    type("Mixed", (type("Mixin", (), {"post": writes(handle)}), guarded), {})


def ask(client: httpx.Client, route: Route, **headers: str) -> httpx.Response:
    content = b"{}" if route.verb == "POST" else None
    return client.request(route.verb, route.path, headers=headers, content=content)


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "token wrong"}, {"Authorization": "token"}, {"Cookie": "username-x=wrong"}],
    ids=["anonymous", "wrong", "empty", "cookie"],
)
def test_strangers_are_refused_at_every_route(server, routes, headers):
    with httpx.Client(base_url=server.url, trust_env=False, timeout=20) as client:
        for route in routes:
            reply = ask(client, route, **headers)
            assert reply.status_code == 403, (route, reply.text)
            assert "secret" not in reply.text
        for path in {route.path for route in routes}:  # verbs that are not there let nobody learn more
            for verb in VERBS:
                assert client.request(verb, path, headers=headers).status_code in {403, 405}, (verb, path)


def test_a_token_in_the_url_of_another_server_is_none(server, routes):
    with httpx.Client(base_url=server.url, trust_env=False, timeout=20) as client:
        for route in routes:
            reply = client.request(route.verb, route.path, params={"token": "of-another-server"})
            assert reply.status_code == 403, route


def test_a_session_without_the_xsrf_token_changes_nothing(session, routes):
    checked = [route for route in routes if route.rule and route.rule["cross_site"] == "xsrf"]
    assert len(checked) >= 5
    for route in checked:
        for headers in ({}, {"X-XSRFToken": "wrong"}, {"X-XSRFToken": ""}):
            reply = ask(session, route, **headers)
            assert reply.status_code == 403, (route, headers, reply.text)
            assert "xsrf" in reply.text.lower()
        xsrf = session.cookies["_xsrf"]
        assert ask(session, route, **{"X-XSRFToken": xsrf}).status_code in {200, 422, 503}, route


@pytest.mark.parametrize("origin", [FOREIGN, "null", "http://127.0.0.1:1", "http://127.0.0.1.elsewhere.example"])
def test_a_page_of_another_site_is_refused_at_every_route(session, routes, origin):
    xsrf = session.cookies["_xsrf"]  # even with a token that it cannot know
    for route in routes:
        reply = ask(session, route, Origin=origin, **{"X-XSRFToken": xsrf})
        assert reply.status_code in {403, 404}, (route, reply.text)
        assert "access-control-allow-origin" not in reply.headers
        assert set(reply.json()) <= {"message", "reason"}, "Jupyter's own refusal, none of ours"


def test_a_preflight_lets_no_other_site_in(server, routes):
    asked = {"Origin": FOREIGN, "Access-Control-Request-Method": "POST"}
    for path in {route.path for route in routes}:
        headers = {**asked, "Access-Control-Request-Headers": "authorization"}
        reply = httpx.options(server.url + path, headers=headers, trust_env=False)
        assert "access-control-allow-origin" not in reply.headers
        assert reply.content == b""


@pytest.mark.parametrize("name", ["elsewhere.example", "127.0.0.1.nip.io"])
def test_a_name_that_was_bound_to_this_address_is_refused(server, routes, name):
    """DNS rebinding: the browser thinks that the page is of the same site."""
    for route in routes:
        headers = {"Host": name, "Authorization": f"token {server.token}"}
        assert httpx.request(route.verb, server.url + route.path, headers=headers, trust_env=False).status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "..%2f..%2fme",
        "%2e%2e/me",
        "%252e%252e/me",
        "experiments/1/..",
        "experiments/..%5c..%5cme",
        "experiments/1%00",
        "tasks/..",
        "tasks/%2e%2e/kill",
        "tasks/a%2f..%2fb",
        "tasks/x%0d%0aHost:%20y",
        "http://elsewhere.example/",
        "//elsewhere.example/me",
        "me%3fx",
        "me%23",
        "me%0a",
        "checkpoints/../me/archive",
        "checkpoints/%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2f/archive",
        "tasks/x/outputs/sha256:..%2f..%2fetc%2fpasswd",
    ],
)
def test_no_path_is_relayed_that_is_not_a_route_of_people(server, path):
    """The cluster does not exist: a path that were relayed would be answered 503."""
    assert status(server, "GET", "experiments/1") == 503
    for verb in ("GET", "POST"):
        assert status(server, verb, path) in {400, 404}, verb


def status(server: Server, verb: str, path: str) -> int:
    """Ask for a path as it is: cleverer clients tidy it up."""
    with closing(HTTPConnection(httpx.URL(server.url).netloc.decode(), timeout=20)) as connection:
        connection.request(verb, f"/detlab/api/{path}", headers={"Authorization": f"token {server.token}"})
        return connection.getresponse().status


def test_nothing_of_the_users_token_is_told_or_logged(server, routes):
    headers = {"Authorization": f"token {server.token}"}
    with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=20) as client:
        said = [ask(client, route).text for route in routes]
    log = (server.folder / "jupyter.log").read_text()
    assert not [text for text in (*said, log) if "secret-of-the-user" in text]
    assert json.loads(said[0])
    assert not re.search(r"Traceback", log)
