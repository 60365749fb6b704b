"""Streams: lines, keep-alives, resuming, readers that leave, readers that are too slow, a server that stops."""

from __future__ import annotations

import asyncio
import json
import socket
import uuid
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from detlab_hub.services.streams.stream import Stream
from detlab_hub.store.queries import events
from detlab_hub.web.streaming import StreamHandler
from testbed.waiting import soon

pytestmark = pytest.mark.hub

CONFIG = {
    "name": "stream",
    "entrypoint": ["true"],
    "searcher": {"name": "single", "metric": "x", "max_length": 1},
    "resources": {"slots_per_trial": 0},
}


async def create(client: httpx.AsyncClient) -> int:
    reply = await client.post("experiments", json={"config": CONFIG})
    assert reply.status_code == 200, reply.text
    return int(reply.json()["experiment"]["id"])


async def test_events_are_lines_and_can_be_resumed(master: Any) -> None:
    async with master.client() as client:
        made = await create(client)
        async with client.stream("GET", "stream", params={"after": 0}) as reply:
            assert reply.status_code == 200
            assert reply.headers["content-type"] == "application/x-ndjson"
            assert reply.headers["x-accel-buffering"] == "no"
            events = []
            async for line in reply.aiter_lines():
                if line:
                    events.append(json.loads(line))
                if any(event["kind"] == "trial" for event in events):
                    break
        cursors = [event["id"] for event in events]
        assert cursors == sorted(cursors)
        assert {event["experiment_id"] for event in events if event["kind"] != "cluster"} == {made}
        await client.post(f"experiments/{made}/pause")
        async with client.stream("GET", f"experiments/{made}/stream", params={"after": cursors[-1]}) as reply:
            async for line in reply.aiter_lines():
                if line:
                    assert json.loads(line)["id"] > cursors[-1]
                    break
            else:
                pytest.fail("the stream ended before the next event")


async def test_silence_is_broken_by_empty_lines(master: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamHandler, "keep_alive", 0.05)
    async with master.client() as client, client.stream("GET", "stream") as reply:
        lines = []
        async for line in reply.aiter_lines():
            lines.append(line)
            if len(lines) == 5:
                break
    assert lines == [""] * 5


async def test_a_reader_who_leaves_is_forgotten(master: Any) -> None:
    async with master.client() as client, client.stream("GET", "stream") as reply:
        assert reply.status_code == 200
        await soon(lambda: master.open_streams == 1)
    await soon(lambda: master.open_streams == 0)


async def test_a_refusal_comes_as_a_status_not_as_an_empty_stream(master: Any) -> None:
    async with master.client() as client:
        reply = await client.get("experiments/12345/stream")
        assert reply.status_code == 404
        assert reply.json()["code"] == "not_found"
        assert (await client.get("trials/12345/logs/stream")).status_code == 404


async def test_a_stopping_server_cuts_streams_so_that_readers_come_back(master: Any) -> None:
    async with master.client() as client:
        with pytest.raises(httpx.RemoteProtocolError):  # noqa: PT012 - it comes while reading
            async with client.stream("GET", "stream") as reply:
                await soon(lambda: master.open_streams == 1)
                await master.application.settings["streams"].close()
                async for _ in reply.aiter_lines():
                    pass


async def test_a_reader_who_does_not_read_is_dropped(master: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    master.application.settings["streams"].slow_limit = 0.3
    big = {"kind": "experiment", "id": 1, "data": {"text": "x" * 200_000}}

    async def flood(*_: Any, **__: Any):
        from detlab.schemas.wire import Event

        while True:
            yield [Event.model_validate(big)] * 20

    monkeypatch.setattr(master.services[Stream], "events", flood)
    async with master.client() as client:
        with pytest.raises(httpx.RemoteProtocolError):  # noqa: PT012 - it comes while reading
            async with client.stream("GET", "stream") as reply:
                await soon(lambda: master.open_streams == 1)
                await soon(lambda: master.open_streams == 0)
                async for _ in reply.aiter_bytes():
                    pass


async def report(master: Any, experiment: int, step: int, text: str = "") -> None:
    """Append a metrics event as a report does."""
    data = {"group": "training", "steps_completed": step, "run": 1, "metrics": {"loss": 1.0, "note": text}}
    context = master.services.context
    await context.write(lambda unit: events.append(unit.session, "metrics", 1.0, experiment, 1, data))
    context.wakeups.wake("streams")


def ask(master: Any, path: str, version: str, *, buffer: int | None = None) -> socket.socket:
    """Open a stream over a bare connection."""
    parts = urlsplit(master.base)
    connection = socket.socket()
    if buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.connect((parts.hostname, parts.port))
    head = f"GET {parts.path}api/v1/{path} {version}\r\nHost: x\r\nAuthorization: Bearer {master.token}\r\n\r\n"
    connection.sendall(head.encode())
    connection.settimeout(20)
    return connection


async def test_events_are_not_queued_for_a_reader_who_does_not_read_and_it_is_dropped(master: Any) -> None:
    master.application.settings["streams"].slow_limit = 0.3
    async with master.client() as client:
        made = await create(client)
        connection = ask(master, f"experiments/{made}/stream", "HTTP/1.1", buffer=4096)
        await soon(lambda: master.open_streams == 1)
        async with client.stream("GET", f"experiments/{made}/stream") as other:
            lines = other.aiter_lines()
            assert master.open_streams == 2
            for step in range(1, 60):
                await report(master, made, step, "x" * 200_000)
                async for line in lines:  # who reads is told meanwhile
                    if f'"steps_completed":{step},' in line:
                        break
                if master.open_streams == 1:
                    break
            await soon(lambda: master.open_streams == 1)
    connection.close()


async def test_a_reader_of_http_1_0_gets_lines_without_chunks(master: Any) -> None:
    async with master.client() as client:
        made = await create(client)
    connection = ask(master, f"experiments/{made}/stream", "HTTP/1.0")
    await soon(lambda: master.open_streams == 1)
    loop = asyncio.get_running_loop()
    data = b""
    while b"\r\n\r\n" not in data:
        data += await loop.run_in_executor(None, connection.recv, 65536)
    await report(master, made, 1)
    await report(master, made, 2)
    while b'"steps_completed":2,' not in data:
        data += await loop.run_in_executor(None, connection.recv, 65536)
    head, body = data.split(b"\r\n\r\n", 1)
    assert b"chunked" not in head
    steps = [json.loads(line)["data"]["steps_completed"] for line in body.splitlines() if b'"metrics"' in line]
    assert steps == [1, 2]
    connection.close()
    await soon(lambda: master.open_streams == 0)


async def test_i9_a_stream_ends_when_its_readers_groups_change(
    master: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StreamHandler, "recheck", 0.0)
    monkeypatch.setattr(StreamHandler, "keep_alive", 0.05)
    team = f"groups/team-{uuid.uuid4()}"
    token = cluster.make_token("custom:detlab:read", user="ben")
    with cluster.hub() as hub:
        for path, body in ((team, None), (f"{team}/users", {"users": ["ben"]})):
            hub.post(path, json=body).raise_for_status()
        async with master.client(token) as client:
            with pytest.raises(httpx.RemoteProtocolError):  # noqa: PT012 - it comes while reading
                async with client.stream("GET", "stream") as reply:
                    assert reply.status_code == 200
                    hub.request("DELETE", f"{team}/users", json={"users": ["ben"]}).raise_for_status()
                    master.application.settings["identifier"].hub.cache.clear()
                    async for _ in reply.aiter_lines():
                        pass
    await soon(lambda: master.open_streams == 0)


async def test_a_revoked_token_ends_the_stream(master: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamHandler, "recheck", 0.0)
    monkeypatch.setattr(StreamHandler, "keep_alive", 0.05)
    with cluster.hub() as hub:
        made = hub.post(f"users/{cluster.user}/tokens", json={"scopes": ["custom:detlab:read"]}).json()
        async with master.client(made["token"]) as client:
            with pytest.raises(httpx.RemoteProtocolError):  # noqa: PT012 - it comes while reading
                async with client.stream("GET", "stream") as reply:
                    assert reply.status_code == 200
                    hub.delete(f"users/{cluster.user}/tokens/{made['id']}").raise_for_status()
                    master.application.settings["identifier"].hub.cache.clear()
                    async for _ in reply.aiter_lines():
                        pass
    await soon(lambda: master.open_streams == 0)
