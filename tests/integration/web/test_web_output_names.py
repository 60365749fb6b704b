"""PUT task/outputs/{name} as the bytes of the request have it: no way of writing a name leads out of the outputs.

The master is asked itself: the proxy tidies some targets up, and answers 500 to broken escapes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.cluster import Cluster
from testbed.network import raw_http
from testbed.people.belongings import WAITER
from testbed.people.callers import task_token

pytestmark = pytest.mark.hub

BODY = b"what-a-task-hands-over-under-a-hostile-name"
ROUTE = "/services/detlab/api/v1/task/outputs/"
HOSTILE = {
    "dots": "..",
    "dots encoded": "%2e%2e",
    "up, encoded": "%2e%2e%2fescaped",
    "up, half encoded": "..%2fescaped",
    "up, as it stands": "../../escaped",
    "up, in the middle": "a/../escaped",
    "backslash": "..%5cescaped",
    "backslash as it stands": "..\\escaped",
    "drive": "c:%5cescaped",
    "slash": "%2fetc%2fescaped",
    "zero byte": "escaped%00.txt",
    "zero byte at the end": "escaped.txt%00",
    "line end": "escaped%0d%0aX-Injected:%20yes",
    "file URI": "file:%2f%2f%2fescaped",
    "no UTF-8": "escaped%ff%fe",
    "overlong dot": "%c0%ae%c0%ae%c0%afescaped",
    "right to left": "escaped%e2%80%aetxt.exe",
    "hidden": "%2eescaped",
    "long": "e" * 300,
    "empty": "",
}
"""Ways to write a name."""
TWICE = {"%252e%252e%252fescaped": "%2e%2e%2fescaped", "escaped%2500": "escaped%00", "%": "%"}
"""Encoded twice, or no escape at all: decoded once, they are plain names, which nobody may decode again."""


@pytest.fixture(scope="module")
def task(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """A running command of the operator's, and its token."""
    with cluster.client() as client:
        made = client.post("tasks", json={"kind": "command", "config": WAITER}).raise_for_status().json()
        name = made["task"]["id"]
        yield name, task_token(cluster, name)
        client.post(f"tasks/{name}/kill")


def put(cluster: Cluster, token: str, target: str) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
    return raw_http.ask(int(cluster.plan["master_port"]), "PUT", target, headers, BODY)


def names(cluster: Cluster, task: str) -> set[str]:
    with cluster.client() as client:
        return {item["name"] for item in client.get(f"tasks/{task}/outputs").raise_for_status().json()["items"]}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_no_writing_of_a_name_is_taken(cluster: Cluster, task: tuple[str, str], name: str) -> None:
    before = names(cluster, task[0])
    status, body = put(cluster, task[1], ROUTE + name)
    assert 400 <= status < 500, (status, body)
    assert names(cluster, task[0]) == before


@pytest.mark.parametrize("prefix", ["http://127.0.0.1", "http://evil.example", "file://"])
def test_a_whole_uri_as_the_target_leads_nowhere_else(cluster: Cluster, task: tuple[str, str], prefix: str) -> None:
    before = names(cluster, task[0])
    status, body = put(cluster, task[1], f"{prefix}{ROUTE}%2e%2e%2fescaped")
    assert 400 <= status < 500, (status, body)
    assert names(cluster, task[0]) == before


@pytest.mark.parametrize(("written", "taken"), TWICE.items())
def test_a_name_is_decoded_once(cluster: Cluster, task: tuple[str, str], written: str, taken: str) -> None:
    status, body = put(cluster, task[1], ROUTE + written)
    assert status == 200, body
    assert taken in names(cluster, task[0])


def test_what_came_lies_under_its_digest_alone(cluster: Cluster, task: tuple[str, str]) -> None:
    assert put(cluster, task[1], f"{ROUTE}plain.txt")[0] == 200
    files = [path for path in cluster.root.rglob("*") if path.is_file() and not path.is_symlink()]
    holding = [path for path in files if path.stat().st_size == len(BODY) and path.read_bytes() == BODY]
    assert [path.parent.parent.name for path in holding] == ["outputs"]
    assert not list(cluster.root.rglob("*escaped*"))
