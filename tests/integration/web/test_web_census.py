"""Every route, every verb, every kind of token: what is not allowed is refused, before anything else is looked at."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Iterator

import httpx
import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from detlab_hub.web.routes import API, PAGES
from detlab_hub.web.scopes import Scope, operation_of
from testbed.cluster import Cluster
from testbed.people import callers
from testbed.people.ended_callers import ended_bearers, replaced_bearer

pytestmark = pytest.mark.hub

HOLDS = {
    "anonymous": set(),
    "garbage": set(),
    "malformed": set(),
    "old task": set(),
    "expired task": set(),
    "ended task": set(),
    "replaced attempt": set(),
    "expired enrolment": set(),
    "revoked enrolment": set(),
    "revoked agent": set(),
    "agent sent away": set(),
    "expired Hub": set(),
    "revoked Hub": set(),
    "other scopes": set(),
    "read": {Scope.READ},
    "write": {Scope.READ, Scope.WRITE},
    "admin": {Scope.READ, Scope.WRITE, Scope.ADMIN},
    "agent": {Scope.AGENT},
    "enrolment": {Scope.ENROL},
    "task": {Scope.TASK},
    "spawners": {Scope.HUB},
}
"""Kind of caller -> what it may."""
STALE = {"ended task", "replaced attempt"}
"""They are told that their attempt is over (409), and not to log in: their launchers are to stop."""


@pytest.fixture(scope="module")
def bearers(cluster: Cluster) -> Iterator[dict[str, str]]:
    """One Authorization header per kind of caller."""
    with callers.bearers(cluster) as found, replaced_bearer(cluster) as replaced:
        yield {**found, **ended_bearers(cluster), "replaced attempt": replaced}


PAGE_PATHS = {
    path.replace("{experiment_id}", "999999").replace("{trial_id}", "999999")
    for path, handler in PAGES
    if handler.login_redirect
}


def cases() -> list[tuple[str, str, set[Scope]]]:
    """(verb, path below the service, scopes) of every route; ids that do not exist."""
    found = []
    for prefix, table in (("api/v1/", API), ("", PAGES)):
        for path, handler in table:
            concrete = re.sub(r"\{((experiment|trial|media|object)_id|alert_rule|schedule)\}", "999999", path)
            concrete = (
                concrete.replace("task/preempt", "task/preempt?timeout_seconds=0")
                if path == "task/preempt"
                else concrete
            )
            concrete = concrete.replace("{uuid}", str(uuid.UUID(int=1))).replace("{digest}", "sha256:" + "0" * 64)
            for verb in handler.SUPPORTED_METHODS:
                operation = operation_of(handler, verb)
                if operation is not None:
                    found.append((verb, prefix + concrete, set(operation.scopes)))
    return found


async def test_every_route_refuses_whoever_lacks_its_scope(cluster: Cluster, bearers: dict[str, str]) -> None:
    gate = asyncio.Semaphore(8)
    wrong: list[str] = []
    async with httpx.AsyncClient(base_url=cluster.service, trust_env=False, timeout=20) as client:

        async def check(verb: str, path: str, scopes: set[Scope], kind: str) -> None:
            headers = {"Authorization": bearers[kind]} if kind in bearers else {}
            async with gate:
                reply = await client.request(verb, path, headers=headers)
            allowed = bool(scopes & (HOLDS[kind] | {Scope.PUBLIC}))
            if kind == "anonymous" and path in PAGE_PATHS and reply.status_code == 302:
                return  # the pages send browsers to the Hub
            refused = reply.status_code in ({409} if kind in STALE else {401, 403})
            if refused == allowed:
                wrong.append(f"{kind}: {verb} {path} -> {reply.status_code} {reply.text[:80]}")
            code = "stale_attempt" if kind in STALE else "auth."
            if refused and verb != "HEAD" and not reply.json()["code"].startswith(code):
                wrong.append(f"{kind}: {verb} {path} has no ErrorView: {reply.text[:80]}")

        await asyncio.gather(
            *(
                check(verb, path, scopes, kind)
                for verb, path, scopes in cases()
                for kind in HOLDS
                # draining would end this cluster's usefulness; the streams never end for who may read them
                if not (path.endswith("cluster/drain") and kind == "admin")
                and not (path.endswith("/stream") and scopes & HOLDS[kind] and "999999" not in path)
            )
        )
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", [kind for kind in HOLDS if kind != "agent"])
async def test_the_websocket_is_guarded_before_the_upgrade(
    cluster: Cluster, bearers: dict[str, str], kind: str
) -> None:
    headers = {"Authorization": bearers[kind]} if kind in bearers else {}
    url = cluster.service.replace("http", "ws", 1) + "api/v1/agents/connect"
    with pytest.raises(HTTPClientError) as refused:
        await websocket_connect(HTTPRequest(url, headers=headers))
    assert refused.value.code in ({409} if kind in STALE else {401, 403})


async def test_the_websocket_takes_no_browser(cluster: Cluster, bearers: dict[str, str]) -> None:
    url = cluster.service.replace("http", "ws", 1) + "api/v1/agents/connect"
    headers = {"Authorization": bearers["agent"], "Origin": cluster.url}
    with pytest.raises(HTTPClientError) as refused:
        await websocket_connect(HTTPRequest(url, headers=headers))
    assert refused.value.code == 403


def test_a_token_in_the_url_is_no_token(cluster: Cluster) -> None:
    for name in ("token", "access_token"):
        reply = httpx.get(f"{cluster.service}api/v1/me", params={name: cluster.token}, trust_env=False)
        assert reply.status_code == 401


@pytest.mark.parametrize("path", ["", "api", "api/v1/", "api/v1/experiments/../me", "api/v2/me", "static/../base.py"])
def test_unknown_paths_are_not_found_in_json(cluster: Cluster, path: str) -> None:
    if not path:
        path = "nothing"
    reply = httpx.get(httpx.URL(cluster.service + path), trust_env=False, headers={"Authorization": "Bearer x"})
    assert reply.status_code in {401, 404}
    assert reply.headers["content-type"].startswith("application/json")


def test_a_foreign_verb_is_405(cluster: Cluster) -> None:
    for verb in ("PUT", "PATCH", "DELETE", "OPTIONS"):
        reply = httpx.request(verb, f"{cluster.service}api/v1/me", trust_env=False)
        assert reply.status_code == 405, verb


def test_no_tenant_sees_anothers_experiments(cluster: Cluster, bearers: dict[str, str]) -> None:
    # the operator's role makes everybody's visible; ben has only what users have
    ben = cluster.make_token("custom:detlab:write", user="ben")
    with cluster.client() as operator, cluster.client(ben) as client:
        assert client.get("me").json() == {
            "name": "ben",
            "scopes": ["custom:detlab:read", "custom:detlab:write"],
            "admin": False,
        }
        theirs = [item for item in operator.get("experiments").json()["items"] if item["owner"] != "ben"]
        assert theirs
        assert {item["owner"] for item in client.get("experiments").json()["items"]} <= {"ben"}, "of other tests"
        for suffix in ("", "/trials", "/curves", "/checkpoints", "/stream", "/bundle"):
            assert client.get(f"experiments/{theirs[0]['id']}{suffix}").status_code == 404, suffix
        assert client.post(f"experiments/{theirs[0]['id']}/kill").status_code == 404
        assert client.post("cluster/drain", json={}).status_code == 403


def test_a_hub_service_cannot_pass_for_a_user(cluster: Cluster) -> None:
    token = (cluster.folder / "secrets" / "service_token").read_text().strip()
    with cluster.client(token) as client:
        reply = client.get("me")
    assert reply.status_code == 403
    assert "not a user" in reply.json()["message"]
