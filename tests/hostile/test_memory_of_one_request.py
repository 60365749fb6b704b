"""One request, whatever is in it, costs the master little memory and little time: every route that takes input.

Bodies and queries are made from the route table, so that a new route is asked, too; what a config can say is listed
by hand. Each request ends in a success or a refusal, within seconds, and the master lives on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from bounds import Memory, api, memory_of
from pydantic import BaseModel

from detlab_hub.web.base import VALUES_LIMIT
from detlab_hub.web.scopes import Scope
from testbed.cluster import Cluster
from testbed.hostile_configs import submissions
from testbed.people import callers
from testbed.people.belongings import Belongings, belongings
from testbed.routes import Asked, verbs

pytestmark = pytest.mark.hub

MIB = 1024**2
MOST_MEMORY = 150 * MIB
MOST_SECONDS = 5.0
SIZE = int(5.8 * MIB)
"""Of a body: just below what is read at all."""
KINDS = {
    Scope.READ: "read",
    Scope.WRITE: "write",
    Scope.ADMIN: "admin",
    Scope.TASK: "task",
    Scope.AGENT: "agent",
    Scope.ENROL: "enrolment",
    Scope.HUB: "spawners",
    Scope.PUBLIC: "anonymous",
}
THOROUGH = {"api/v1/experiments", "api/v1/task/records"}
"""These get each value; what reads the bodies of all others is the same."""
SKIPPED = {("POST", "api/v1/cluster/drain"), ("GET", "api/v1/agents/connect")}
"""One ends the cluster's usefulness, the other is a WebSocket."""


def many(item: str) -> str:
    """A JSON list of as many items as fit into a body."""
    return f"[{','.join([item] * (SIZE // (len(item) + 1)))}]"


READ = ("objects that are read", f"[{','.join(['{}'] * (VALUES_LIMIT // 2 - 10))}]")
VALUES = {
    READ[0]: READ[1],
    "objects": many("{}"),
    "lists": many("[]"),
    "numbers": many("1"),
    "nothing": many("null"),
    "texts": many('"x"'),
    "keys": "{" + ",".join(f'"k{number}":0' for number in range(SIZE // 12)) + "}",
    "text": '"' + "x" * SIZE + '"',
    "escapes": '"' + "\\u0001" * (SIZE // 6) + '"',
    "deep": "[" * (SIZE // 2) + "]" * (SIZE // 2),
    "deep objects": '{"a":' * (SIZE // 6) + "1" + "}" * (SIZE // 6),
    "digits": "9" * SIZE,
    "digits, few": "9" * 4000,
    "exponent": "1e400",
    "not a number": "NaN",
}
QUERIES = {
    "text": "x" * 60_000,
    "commas": "a," * 15_000,
    "digits": "9" * 4000,
    "exponent": "1e400",
    "deep": "[" * 20_000,
    "follow": "[" + ",".join(['{"experiment":1}'] * 1_500) + "]",
    "negative": "-1",
    "most": str(2**63 - 1),
}


@pytest.fixture(scope="module")
def bearers(cluster: Cluster) -> Iterator[dict[str, str]]:
    with callers.bearers(cluster) as found:
        yield {**found, "anonymous": "none"}


@pytest.fixture(scope="module")
def own(cluster: Cluster) -> Iterator[Belongings]:
    with belongings(cluster) as found:
        yield found


def asked(what: str) -> list[Asked]:
    """The verbs that take a body, or a query."""
    return [one for one in verbs() if getattr(one.operation, what) is not None and (one.verb, one.route) not in SKIPPED]


def path_of(one: Asked, ids: dict[str, str]) -> str:
    """The path with ids of what is there, for verbs that change nothing of it by themselves."""
    found = next(other for other in verbs(ids) if (other.verb, other.route) == (one.verb, one.route))
    return found.path.removeprefix("api/v1/").partition("?")[0]


def bodies(model: type[BaseModel], *, thorough: bool) -> Iterator[tuple[str, bytes]]:
    """Values as the whole body, and in its fields: all of them, or those that take most of what is read."""
    values = VALUES if thorough else {name: VALUES[name] for name in ("objects that are read", "digits, few")}
    for name, value in values.items():
        yield name, value.encode()
    fields = [field.alias or key for key, field in model.model_fields.items()]
    for place, key in enumerate(fields):
        for name, value in values.items() if place == 0 else [READ]:
            yield f"{key}: {name}", f'{{"{key}":{value}}}'.encode()


class Meter:
    """Sends requests one by one and judges what each cost."""

    def __init__(self, client: httpx.Client, memory: Memory) -> None:
        self._client, self._memory = client, memory
        self.wrong: list[str] = []

    def send(self, what: str, verb: str, path: str, **more: Any) -> httpx.Response | None:
        """Send one; None: it waits for news, which is no fault where it is a stream or a question that waits."""
        before, began = self._memory.reset(), time.monotonic()
        reply = None
        try:
            with self._client.stream(verb, path, timeout=MOST_SECONDS + 1, **more) as reply:
                if not path.endswith(("stream", "preempt")):
                    reply.read()
        except (httpx.ReadTimeout, httpx.WriteError, httpx.RemoteProtocolError) as error:
            self.wrong.append(f"{verb} {path}, {what}: {error!r}")
        took, grown = time.monotonic() - began, self._memory.peak() - before
        if reply is not None and reply.status_code >= 500:
            self.wrong.append(f"{verb} {path}, {what}: {reply.status_code}")
        if took > MOST_SECONDS:
            self.wrong.append(f"{verb} {path}, {what}: took {took:.1f} s")
        if grown > MOST_MEMORY:
            self.wrong.append(f"{verb} {path}, {what}: took {grown / MIB:.0f} MiB")
        return reply


@pytest.fixture
def meter(cluster: Cluster) -> Iterator[Meter]:
    with api(cluster, "nobody") as client:
        yield Meter(client, memory_of(cluster))
        assert client.get("../../health").status_code == 200


def authorised(one: Asked, bearers: dict[str, str]) -> dict[str, str]:
    scope = min(one.operation.scopes, key=list(KINDS).index)
    return {"Authorization": bearers[KINDS[scope]]}


@pytest.mark.parametrize("one", asked("body"), ids=lambda one: f"{one.verb} {one.route.removeprefix('api/v1/')}")
def test_a_hostile_body_costs_little(one: Asked, meter: Meter, bearers: dict[str, str], own: Belongings) -> None:
    assert one.operation.body is not None
    headers = {**authorised(one, bearers), "Content-Type": "application/json"}
    for what, body in bodies(one.operation.body, thorough=one.route in THOROUGH):
        meter.send(what, one.verb, path_of(one, own.ids), content=body, headers=headers)
    assert not meter.wrong


@pytest.mark.parametrize("one", asked("query"), ids=lambda one: f"{one.verb} {one.route.removeprefix('api/v1/')}")
def test_a_hostile_query_costs_little(one: Asked, meter: Meter, bearers: dict[str, str], own: Belongings) -> None:
    assert one.operation.query is not None
    for key in one.operation.query.model_fields:
        for what, value in QUERIES.items():
            path = path_of(one, own.ids)
            meter.send(f"{key}: {what}", one.verb, path, params={key: value}, headers=authorised(one, bearers))
    assert not meter.wrong


@pytest.mark.parametrize("what", list(submissions()))
def test_a_hostile_config_costs_little(meter: Meter, bearers: dict[str, str], what: str) -> None:
    body = json.dumps({**submissions()[what], "dry_run": True}).encode()
    headers = {"Authorization": bearers["write"], "Content-Type": "application/json"}
    reply = meter.send(what, "POST", "experiments", content=body, headers=headers)
    assert not meter.wrong
    assert reply is not None
    assert reply.status_code in {200, 413, 422}
