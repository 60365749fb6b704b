"""Streams that nobody reads: they cost the master a bounded amount, and others notice nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from bounds import SCOPES, Bystander, api, memory_of, report, say, submit, task_of, times_logged, unread

from testbed.cluster import Cluster, running_cluster
from testbed.waiting import until

pytestmark = pytest.mark.hub

MANY = 200
LIMIT = MANY + 20
REPORTS = 12_000
LINES = 20_000
SLOW_LIMIT = 3.0
TOO_SLOW = "the reader is too slow, dropped"
MIB = 1024 * 1024


@dataclass
class Crowd:
    """A cluster that lets mallory open many streams, and her experiment with much history."""

    cluster: Cluster
    mallory: str
    ada: str
    experiment: int
    trial: int


@pytest.fixture(scope="module")
def crowd(open_folder: Path) -> Iterator[Crowd]:
    root = open_folder / "streams"
    root.mkdir(mode=0o755)
    config = (
        "c.EmbeddedCluster.extra_users = ['ada', 'mallory']\n"
        f"c.UserLimits.open_streams = {LIMIT}\n"
        f"c.DetHub.stream_slow_limit = {SLOW_LIMIT}\n"
    )
    with running_cluster(root, slots=1, config=config) as cluster:
        mallory, ada = (cluster.make_token(*SCOPES, user=name) for name in ("mallory", "ada"))
        with api(cluster, mallory) as client:
            experiment = submit(client)
            trial, token = task_of(cluster, client, experiment)
        with api(cluster, token) as task:
            report(task, REPORTS)
            say(task, LINES)
        yield Crowd(cluster, mallory, ada, experiment, trial)


def events_of(client: httpx.Client, experiment: int, after: int) -> Iterator[dict[str, Any]]:
    with client.stream("GET", f"experiments/{experiment}/stream", params={"after": after}) as reply:
        assert reply.status_code == 200
        for line in reply.iter_lines():
            if line:
                yield json.loads(line)


def drained(connection: socket.socket) -> bytes:
    """What a connection still has, until its end."""
    connection.settimeout(20)
    found = b""
    try:
        while data := connection.recv(65536):
            found += data
    except ConnectionResetError:
        pass
    return found


def cut(crowd: Crowd) -> int:
    return times_logged(crowd.cluster, TOO_SLOW)


@pytest.mark.soak
@pytest.mark.parametrize("what", ["events", "output"])
def test_many_unread_streams_hold_little_memory_and_nobody_waits_for_them(crowd: Crowd, what: str) -> None:
    path = f"experiments/{crowd.experiment}/stream?after=0" if what == "events" else f"trials/{crowd.trial}/logs/stream"
    memory, already = memory_of(crowd.cluster), cut(crowd)
    with api(crowd.cluster, crowd.ada) as client:
        before = memory.reset()
        with Bystander(client).asking() as ada, unread(crowd.cluster, crowd.mallory, path, MANY):
            until(lambda: cut(crowd) - already >= MANY, lambda: f"{cut(crowd) - already} were cut", 90)
    grown = memory.peak() - before
    print(f"{what}: {grown / MIB:.0f} MiB, answers within {ada.p95:.2f} s, {max(ada.took):.2f} s at most")
    assert not ada.failed
    assert max(ada.took) < 2.0, f"somebody else waited {max(ada.took):.1f} s"
    assert ada.p95 < 0.5
    assert grown < 200 * MIB, f"{MANY} unread streams took {grown / MIB:.0f} MiB"


def test_a_reader_who_was_too_slow_is_cut_and_resumes_without_loss(crowd: Crowd) -> None:
    already = cut(crowd)
    with unread(crowd.cluster, crowd.mallory, f"experiments/{crowd.experiment}/stream?after=0", 1) as (stream,):
        until(lambda: cut(crowd) > already, "the stream was not cut", SLOW_LIMIT + 30)
        read = drained(stream)
    assert not read.endswith(b"0\r\n\r\n"), "the end of the stream was said, as if all had been sent"
    # chunks are as long as they say but for the last one, and lines do not cross them
    told = [json.loads(line) for line in read.split(b"\n") if line.startswith(b"{") and line.endswith(b"}")]
    steps = [event["data"]["steps_completed"] for event in told if event["kind"] == "metrics"]
    assert 0 < len(steps) < REPORTS
    with api(crowd.cluster, crowd.mallory) as client:
        for event in events_of(client, crowd.experiment, told[-1]["id"]):
            if event["kind"] == "metrics":
                steps.append(event["data"]["steps_completed"])
                if steps[-1] == REPORTS:
                    break
    assert steps == list(range(1, REPORTS + 1))


def test_one_stream_too_many_is_refused_with_the_limit_and_others_have_theirs(crowd: Crowd) -> None:
    with api(crowd.cluster, crowd.mallory) as client, unread(crowd.cluster, crowd.mallory, "stream", LIMIT) as streams:
        for stream in streams:
            stream.settimeout(20)
            assert stream.recv(12) == b"HTTP/1.1 200"
        reply = client.get("stream")
        assert reply.status_code == 409
        assert reply.json()["code"] == "limit.streams"
        assert f"a user may have {LIMIT}" in reply.json()["message"]
        assert "c.UserLimits.open_streams" in reply.json()["hint"]
        with api(crowd.cluster, crowd.ada) as ada, ada.stream("GET", "stream") as other:
            assert other.status_code == 200
    with api(crowd.cluster, crowd.mallory) as client:

        def again() -> bool:
            with client.stream("GET", "stream") as reply:
                return reply.status_code == 200

        until(again, "streams that were closed still count", 20)
