"""Users ask and submit as fast as they can: they are refused and told what to do, and another user works on."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from testbed.cluster import Cluster, running_cluster
from testbed.waiting import until

pytestmark = pytest.mark.hub

CONFIG = """
c.EmbeddedCluster.extra_users = ['ada', 'eve', 'mallory']
c.UserLimits.requests_per_second = 20
c.UserLimits.requests_burst = 400
c.UserLimits.submissions_per_minute = 60
c.UserLimits.queued_jobs = 40
"""
REQUESTS, SUBMISSIONS, THREADS = 1600, 240, 4
PATIENCE = 10.0
"""Seconds within which ada gets an answer, on a machine that does other things, too."""
SLEEPS = {"entrypoint": ["sleep", "600"], "resources": {"slots": 1}}


@pytest.fixture(scope="module")
def limited(open_folder: Path) -> Iterator[Cluster]:
    """A cluster with small limits, set as an operator sets them."""
    if os.geteuid() != 0:
        pytest.skip("only a cluster that root started serves several users")
    root = open_folder / "limited"
    root.mkdir(mode=0o755)
    with running_cluster(root, slots=1, config=CONFIG) as running:
        yield running


@pytest.fixture(scope="module")
def mallory(limited: Cluster) -> str:
    return limited.make_token("custom:detlab:write", user="mallory")


@pytest.fixture(scope="module")
def eve(limited: Cluster) -> str:
    return limited.make_token("custom:detlab:write", user="eve")


@pytest.fixture(scope="module")
def ada(limited: Cluster) -> Iterator[httpx.Client]:
    with limited.client(limited.make_token("custom:detlab:write", user="ada")) as client:
        yield client


def hammered(limited: Cluster, token: str, count: int, verb: str, path: str, **more: Any) -> list[httpx.Response]:
    """What so many requests are answered, sent by a few threads as fast as they can."""

    def some(_: int) -> list[httpx.Response]:
        with limited.client(token) as client:
            return [client.request(verb, path, **more) for _ in range(count // THREADS)]

    with ThreadPoolExecutor(THREADS) as threads:
        return [reply for replies in threads.map(some, range(THREADS)) for reply in replies]


def slowest_answer(ada: httpx.Client, over: Event) -> float:
    """The longest that ada waited for an answer until it was over."""
    slowest = 0.0
    while not over.is_set():
        began = time.monotonic()
        ada.get("overview").raise_for_status()
        slowest = max(slowest, time.monotonic() - began)
        over.wait(0.2)
    return slowest


def test_who_asks_too_often_is_refused_and_others_are_answered(
    limited: Cluster, mallory: str, ada: httpx.Client
) -> None:
    over = Event()
    with ThreadPoolExecutor(1) as watcher:
        watching = watcher.submit(slowest_answer, ada, over)
        replies = hammered(limited, mallory, REQUESTS, "GET", "experiments")
        over.set()
    statuses = Counter(reply.status_code for reply in replies)
    assert set(statuses) == {200, 429}
    assert statuses[429] > REQUESTS / 2
    assert watching.result() < PATIENCE
    told = next(reply for reply in replies if reply.status_code == 429)
    assert 1 <= int(told.headers["Retry-After"]) <= 60
    body = told.json()
    assert body["code"] == "limit.requests"
    assert "mallory sends more than 20 requests a second" in body["message"]
    assert "Try again in" in body["hint"]
    assert "c.UserLimits.requests_per_second" in body["hint"]


def test_who_submits_too_much_is_refused_and_others_submit(limited: Cluster, eve: str, ada: httpx.Client) -> None:
    replies = hammered(limited, eve, SUBMISSIONS, "POST", "tasks", json={"kind": "command", "config": SLEEPS})
    told = {reply.json()["code"]: reply.json() for reply in replies if reply.status_code >= 400}
    made = [reply for reply in replies if reply.status_code == 201]
    assert len(made) == 40
    assert set(told) == {"limit.submissions", "limit.queued_jobs"}
    assert "eve has submitted 60 experiments and tasks within a minute" in told["limit.submissions"]["message"]
    assert "eve has 40 experiments and tasks that have not ended" in told["limit.queued_jobs"]["message"]
    assert "End some" in told["limit.queued_jobs"]["hint"]
    mine = ada.post("tasks", json={"kind": "command", "config": SLEEPS})
    assert mine.status_code == 201, mine.text
    ada.post(f"tasks/{mine.json()['task']['id']}/kill").raise_for_status()


def test_nobody_takes_the_front_of_the_queue(limited: Cluster, ada: httpx.Client) -> None:
    made = ada.post("tasks", json={"kind": "command", "config": SLEEPS}).raise_for_status().json()["task"]["id"]
    first = {**SLEEPS, "resources": {"slots": 1, "priority": 1}}
    for reply in (
        ada.post("tasks", json={"kind": "command", "config": first}),
        ada.post(f"jobs/{made}", json={"priority": 1}),
    ):
        assert (reply.status_code, reply.json()["code"]) == (403, "limit.priority")
        assert "may give 10 to 99" in reply.json()["message"]
    ada.post(f"tasks/{made}/kill").raise_for_status()


def test_administrators_see_who_it_was(limited: Cluster, ada: httpx.Client) -> None:
    shown = json.loads(limited.det("limits", "--json", check=True).stdout)
    requests = next(item for item in shown["items"] if item["name"] == "requests")
    (who,) = [one for one in requests["users"] if one["user"] == "mallory"]
    assert who["hits"] > REQUESTS / 2
    assert "mallory" in limited.det("limits", check=True).stdout

    def noted() -> list[str]:
        with limited.client() as operator:
            items = operator.get("audit", params={"action": "limit.reached"}).json()["items"]
        return [item["subject"] for item in items if item["actor"] == "mallory"]

    assert until(lambda: "limit requests" in noted(), limited.logs)
    assert noted().count("limit requests") == 1, "once an hour"
    theirs = ada.get("limits").raise_for_status()
    assert "mallory" not in theirs.text
