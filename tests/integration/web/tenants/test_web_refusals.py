"""Whoever is refused is in the audit log: users, tasks and agents, with what they asked for; and no token is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from testbed.cluster import Cluster, running_cluster
from testbed.front.browsing import log_in
from testbed.people.callers import task_token
from testbed.waiting import until

pytestmark = pytest.mark.hub

SLEEPS = {"entrypoint": ["sleep", "600"], "resources": {"slots": 0}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of its own: rows are rationed per actor, and other tests use up those of unknown tokens."""
    config = "c.EmbeddedCluster.extra_users = ['ben', 'ada']\n"
    with running_cluster(tmp_path_factory.mktemp("refusals"), slots=1, config=config) as running:
        yield running


@pytest.fixture(scope="module")
def ada(cluster: Cluster) -> Iterator[httpx.Client]:
    with cluster.client(cluster.make_token("custom:detlab:write", user="ada")) as client:
        yield client


@pytest.fixture(scope="module")
def adas_task(ada: httpx.Client) -> Iterator[str]:
    made = ada.post("tasks", json={"kind": "command", "config": SLEEPS, "name": "adas"})
    task = str(made.raise_for_status().json()["task"]["id"])
    yield task
    ada.post(f"tasks/{task}/kill")


@pytest.fixture(scope="module")
def bens_token(cluster: Cluster) -> str:
    return cluster.make_token("custom:detlab:write", user="ben")


def refused(cluster: Cluster, actor: str, subject: str) -> list[dict[str, Any]]:
    with cluster.client() as operator:
        page = operator.get("audit", params={"action": "access.refused", "limit": 1000}).raise_for_status().json()
    return [item for item in page["items"] if item["actor"] == actor and item["subject"] == subject]


def test_what_another_owns_is_not_there_for_the_caller_and_noted_for_administrators(
    cluster: Cluster, adas_task: str, bens_token: str
) -> None:
    with cluster.client(bens_token) as ben:
        for _ in range(5):
            reply = ben.get(f"tasks/{adas_task}", params={"secret": "in-a-query"})
            assert (reply.status_code, reply.json()["code"]) == (404, "not_found")
        assert ben.post(f"tasks/{adas_task}/kill").status_code == 404
        assert ben.get("tasks/command-000000000000").status_code == 404
    (row, *_) = until(lambda: refused(cluster, "ben", f"GET tasks/{adas_task}"), cluster.logs)
    assert "not theirs, told not_found; route tasks/{task_id}; from 127.0.0.1" in row["detail"]
    assert until(lambda: refused(cluster, "ben", f"POST tasks/{adas_task}/kill"), cluster.logs)
    assert refused(cluster, "ben", "GET tasks/command-000000000000") == [], "there is none: nobody's was asked for"
    with cluster.client() as operator:
        text = operator.get("audit", params={"limit": 1000}).text
    assert bens_token not in text
    assert "in-a-query" not in text


def test_a_verb_of_administrators_is_noted(cluster: Cluster, bens_token: str) -> None:
    with cluster.client(bens_token) as ben:
        assert ben.get("audit").status_code == 403
    (row, *_) = until(lambda: refused(cluster, "ben", "GET audit"), cluster.logs)
    assert "auth.forbidden" in row["detail"]


def test_a_task_and_unknown_tokens_are_noted_by_what_they_are(cluster: Cluster, adas_task: str) -> None:
    tokens = {
        "an unknown token of a task": "dttask_" + "x" * 43,
        "an unknown token of an agent": "dtagent_" + "x" * 43,
        "an unknown token of the Hub": "0123456789abcdef",
        None: task_token(cluster, adas_task),
    }
    for token in tokens.values():
        with cluster.client(token) as client:
            assert client.get("tasks").status_code in {401, 403}
    for actor in tokens:
        if actor is not None:
            assert until(lambda actor=actor: refused(cluster, actor, "GET tasks"), cluster.logs)
    with cluster.client() as operator:

        def of_tasks() -> list[dict[str, Any]]:
            items = operator.get("audit", params={"action": "access.refused", "limit": 1000}).json()["items"]
            return [item for item in items if item["actor"].startswith(f"task {adas_task}")]

        assert until(of_tasks, cluster.logs)
        text = operator.get("audit", params={"limit": 1000}).text
    assert [token for token in tokens.values() if token in text] == []


def test_a_session_without_its_pages_token_is_noted_under_its_users_name(cluster: Cluster) -> None:
    password = (cluster.folder / "secrets" / "password-ben").read_text().strip()
    with log_in(cluster, "ben", password) as browser:
        assert browser.get(cluster.service, headers={"Sec-Fetch-Mode": "navigate"}).status_code == 200
        assert browser.get(f"{cluster.service}api/v1/jobs").status_code == 401
    assert until(lambda: refused(cluster, "ben", "GET jobs"), cluster.logs)


def test_nobody_without_a_token_is_noted(cluster: Cluster) -> None:
    """Anybody can ask without one; that is no access of anybody's, and would only be noise."""
    with httpx.Client(trust_env=False) as nobody:
        assert nobody.get(f"{cluster.service}api/v1/quotas").status_code == 401
    with cluster.client(cluster.make_token("custom:detlab:read", user="ada")) as marker:
        assert marker.get("service").status_code == 403
    assert until(lambda: refused(cluster, "ada", "GET service"), cluster.logs)
    with cluster.client() as operator:
        items = operator.get("audit", params={"action": "access.refused", "limit": 1000}).json()["items"]
    assert [item for item in items if item["subject"] == "GET quotas"] == []
