"""Every operation of the API, as its OpenAPI document describes it, with inputs made at random: never a 5xx.

Inputs that fit the document and inputs that do not, from a caller who holds the operation's scope: everything behind
the door is reached, and in half of the examples what the path names is there and the caller's own. A reply that is no
success is an ErrorView.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from itertools import count
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import hypothesis
import pytest
import schemathesis
from hypothesis import strategies as st

from detlab_hub.web.openapi import describe
from detlab_hub.web.routes import API
from detlab_hub.web.scopes import Scope, operation_of
from testbed.cluster import Cluster
from testbed.network import raw_http
from testbed.people import callers
from testbed.people.belongings import Belongings, belongings

pytestmark = pytest.mark.hub

CALLERS = {
    Scope.READ: "read",
    Scope.WRITE: "write",
    Scope.ADMIN: "admin",
    Scope.TASK: "task",
    Scope.AGENT: "agent",
    Scope.ENROL: "enrolment",
    Scope.HUB: "spawners",
    Scope.PUBLIC: "anonymous",
}
SKIPPED = {
    "POST cluster/drain": "ends this cluster's usefulness",
    "GET agents/connect": "a WebSocket; what it is told is fuzzed in test_web_agents",
}
WAITS = ("stream", "task/preempt")
"""Ends of paths that answer when there is news: taking the question is enough."""
PATIENCE = 1.0
"""Seconds to wait for those."""
EXAMPLES = int(os.environ.get("DETLAB_FUZZ_EXAMPLES", "6"))
"""Of each operation and each way to make them; `make soak` makes more, and others each time."""
SEED = os.environ.get("DETLAB_FUZZ_SEED", "")
"""From which they are made: the same gives the same again."""


@schemathesis.serializer("application/gzip", "application/octet-stream", "application/x-tar")
def raw(_: Any, value: Any) -> bytes:
    """Bodies of bytes."""
    return value if isinstance(value, bytes) else repr(value).encode()


SCHEMA = schemathesis.openapi.from_dict(describe(API))
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}


@pytest.fixture(scope="module")
def clients(cluster: Cluster) -> Iterator[dict[str, httpx.Client]]:
    """A client for each kind of caller."""
    with callers.bearers(cluster) as found:
        made = {
            kind: httpx.Client(
                base_url=f"{cluster.service}api/v1/",
                headers={"Authorization": found[kind]} if kind in found else {},
                trust_env=False,
                timeout=20,
            )
            for kind in CALLERS.values()
        }
        yield made
        for experiment in made["admin"].get("experiments", params={"limit": 1000}).json()["items"]:
            made["admin"].post(f"experiments/{experiment['id']}/kill")
        for client in made.values():
            client.close()


@pytest.fixture(scope="module")
def own(cluster: Cluster, clients: dict[str, httpx.Client]) -> Iterator[Belongings]:
    """What is really there; who speaks for its task is a caller, too."""
    with belongings(cluster) as found:
        headers = {"Authorization": f"Bearer {found.token}"}
        clients["user task"] = httpx.Client(
            base_url=clients["task"].base_url, headers=headers, trust_env=False, timeout=20
        )
        yield found


def scope_of(label: str) -> Scope:
    """The least that an operation asks for."""
    verb, _, path = label.partition(" ")
    operation = operation_of(dict(API)[path], verb)
    assert operation is not None
    return min(operation.scopes, key=list(CALLERS).index)


HTTPX_BYTES, HEAD_BYTES, TORNADO_FIELDS = 65_000, 15_000, 1000
TOO_LONG = b'"code"'
"""A query of lists of long texts may be longer than what the Hub's proxy reads of a head: no route is asked then."""


def send(client: httpx.Client, case: Any) -> tuple[int, bytes]:
    """Send a case; return its reply's status, and its body unless it is one that waits for news."""
    wanted = case.as_transport_kwargs(base_url="http://x")
    body = {"content": wanted["data"]} if wanted.get("data") is not None else {"json": wanted.get("json")}
    headers = {name: value for name, value in wanted["headers"].items() if name.lower() == "content-type"}
    url = wanted["url"].removeprefix("http://x/")
    params = wanted.get("params")
    query = urlencode(params or {}, doseq=True)
    if len(query) > HTTPX_BYTES or query.count("&") >= TORNADO_FIELDS:
        return 431, TOO_LONG  # httpx sends no such query, or Tornado reads none of so many fields
    request = client.build_request(wanted["method"], url, params=params, headers=headers, **body)
    waits = case.path.endswith(WAITS)
    if waits:
        request.extensions["timeout"]["read"] = PATIENCE
    try:
        reply = client.send(request, stream=True)
    except httpx.ReadTimeout:
        assert waits, f"no answer: {case.as_curl_command()}"
        return 200, b""
    if reply.status_code == 431:
        assert len(str(request.url)) > HEAD_BYTES, f"431 for {request.url}"
        reply.close()
        return 431, TOO_LONG
    try:
        return reply.status_code, b"" if waits and reply.is_success else reply.read()
    finally:
        reply.close()


@pytest.mark.parametrize("fits", [True, False], ids=["fits", "does-not-fit"])
@pytest.mark.parametrize(
    "label", sorted(OPERATIONS.keys() - SKIPPED.keys(), key=lambda name: (name.startswith("DELETE"), name))
)
def test_no_input_is_a_server_error(label: str, fits: bool, clients: dict[str, httpx.Client], own: Belongings) -> None:
    client = clients["user task" if "task/outputs" in label else CALLERS[scope_of(label)]]
    braces = set(re.findall(r"\{(\w+)\}", label))
    turn = count()
    mode = schemathesis.GenerationMode.POSITIVE if fits else schemathesis.GenerationMode.NEGATIVE
    cases = OPERATIONS[label].as_strategy(generation_mode=mode)
    answered = []

    @hypothesis.seed(zlib.crc32(f"{SEED}{label}".encode()))
    @hypothesis.settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=cases)
    def check(case: Any) -> None:
        real = bool(braces & own.ids.keys()) and next(turn) % 2 == 0
        if real:
            case.path_parameters = {**case.path_parameters, **{name: own.ids[name] for name in braces & own.ids.keys()}}
        status, body = send(client, case)
        if (
            real
            and fits
            and not case.query
            and braces <= own.ids.keys()
            and label.startswith("GET")
            and scope_of(label) is Scope.READ
        ):
            assert status != 404, f"{case.as_curl_command()} found nothing: {body[:200]!r}"
        answered.append(status)
        assert status < 500, f"{case.as_curl_command()}\n{status} {body[:500]!r}"
        if status >= 400 and case.method.upper() != "HEAD":
            assert b'"code"' in body, f"{status} without an ErrorView: {body[:200]!r}"

    check()
    assert answered


SEGMENTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.sampled_from(
        ["", ".", "..", "../..", "..\\..", "\x00", "%2e%2e", "%00", "%", "%zz", "%c3%28", "\ud7ff", "9" * 30, "-1"]
    ),
)
"""Of a path, not yet encoded."""
KEPT = st.sampled_from(["", "%", "/", "%/", "\\:*?;=&@%/", "äé\x80"])
"""What is sent as it stands; all else is percent-encoded."""


@hypothesis.settings(
    max_examples=120,
    database=None,
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(route=st.sampled_from([path for path, _ in API if "{" in path]), part=SEGMENTS, kept=KEPT)
def test_no_path_is_a_server_error(route: str, part: str, kept: str, cluster: Cluster) -> None:
    """Each route with an id, with such a text in the id's place, asked as it stands."""
    encoded = "".join(letter if letter in kept else quote(letter, safe="") for letter in part)
    target = "/services/detlab/api/v1/" + re.sub(r"\{\w+\}", lambda _: encoded, route)
    status, body = raw_http.ask(
        int(cluster.plan["master_port"]), "GET", target, {"Authorization": f"Bearer {cluster.token}"}
    )
    assert status < 500, target
    assert status < 400 or b'"code"' in body, f"{target}: {status} {body[:200]!r}"
