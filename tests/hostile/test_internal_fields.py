"""A user says in a request what the master alone decides: whose task it is, how it runs, what it may read."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from detlab_hub.store.tables import TaskNote
from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

TASK = {"kind": "command", "config": {"entrypoint": ["true"], "resources": {"slots": 0}}}
EXPERIMENT = {"config": {"name": "x", "entrypoint": "true", "searcher": {"name": "single", "metric": "loss"}}}
VALUES = {"hold": True, "uid": 0, "owner": "ada", "gc": 1, "by_run": "", "runtime": "", "groups": ["admin"]}
AT_THE_TOP = ("hold", "owner", "uid", "groups", "runtime", "run", "state", "base_url", "server_name", "task_token")


@pytest.fixture(scope="module")
def mallory(cluster: Cluster) -> Iterator[httpx.Client]:
    token = cluster.make_token("custom:detlab:read", "custom:detlab:write", user="mallory")
    with cluster.client(token) as client:
        yield client


@pytest.mark.parametrize("note", list(TaskNote))
def test_a_task_says_nothing_that_the_master_notes_of_it(mallory: httpx.Client, note: TaskNote) -> None:
    """`hold` made a plain process of a container's task, on a node that was to give everybody a container."""
    asked = {**TASK, "source": {"client": "curl", note.value: VALUES.get(note.value, 1)}}
    answer = mallory.post("tasks", json=asked)
    assert (answer.status_code, answer.json()["problems"][0]["path"]) == (422, f"source.{note.value}")
    assert mallory.get("tasks").json()["items"] == []


@pytest.mark.parametrize("name", AT_THE_TOP)
@pytest.mark.parametrize(("route", "body"), [("tasks", TASK), ("experiments", EXPERIMENT)])
def test_a_request_says_nothing_of_whose_it_is_and_how_it_runs(
    mallory: httpx.Client, route: str, body: dict[str, object], name: str
) -> None:
    answer = mallory.post(route, json={**body, name: VALUES.get(name, "x")})
    assert (answer.status_code, answer.json()["problems"][0]["path"]) == (422, name)


def test_a_config_names_no_runtime_that_is_any(mallory: httpx.Client) -> None:
    answer = mallory.post("tasks", json={**TASK, "config": {**TASK["config"], "runtime": ""}})
    assert answer.status_code == 422
    assert mallory.get("tasks").json()["items"] == []
