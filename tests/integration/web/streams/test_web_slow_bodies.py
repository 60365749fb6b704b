"""Senders who begin a body and stop: what they hold is bounded, ends in time, and nobody else waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from detlab_hub.services.base.threads import UPLOADS_PER_USER
from detlab_hub.web.bodies import BODIES_PER_USER, BodyLimits
from testbed.cluster import Cluster
from testbed.waiting import soon

pytestmark = pytest.mark.hub

CONNECTIONS, DECLARED, SENT = 40, 5_500_000, 2_000_000
ADMITTED = BODIES_PER_USER // DECLARED
CONFIG = {"entrypoint": ["true"], "searcher": {"name": "single", "metric": "loss"}}
BUNDLE = f"bundles/sha256:{'0' * 64}"


@pytest.fixture(scope="module")
def ben(cluster: Cluster) -> str:
    return cluster.make_token("custom:detlab:read", "custom:detlab:write", user="ben")


@pytest.fixture(scope="module")
def ada(cluster: Cluster) -> str:
    return cluster.make_token("custom:detlab:read", "custom:detlab:write", user="ada")


def limits_of(master: Any) -> BodyLimits:
    found: BodyLimits = master.application.settings["bodies"]
    return found


def tickets_of(master: Any, user: str) -> int:
    """Uploads of a user that are under way."""
    return int(master.services.context.workers.open_uploads.held(user))


def leftovers(master: Any) -> list[str]:
    """Temporary files of uploads."""
    return [path.name for path in master.services.settings.bundles_dir.glob(".upload-*")]


@asynccontextmanager
async def unfinished(
    master: Any, token: str | None, what: str, sent: int, count: int = 1, declared: int = DECLARED
) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Begin requests with a body, send a part of it, and nothing more until the block ends."""
    address = httpx.URL(master.base)
    who = f"Authorization: Bearer {token}\r\n" if token else ""
    verb, path = what.split()
    head = f"{verb} {address.path}{path} HTTP/1.1\r\nHost: x\r\n{who}Content-Length: {declared}\r\n\r\n"
    readers, writers = [], []
    try:
        for _ in range(count):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writers.append(writer)
            readers.append(reader)
            writer.write(head.encode() + b" " * sent)
        async with asyncio.timeout(20):
            await asyncio.gather(*(writer.drain() for writer in writers))
        yield readers
    finally:
        for writer in writers:
            writer.transport.abort()


async def pieces(size: int) -> AsyncIterator[bytes]:
    """A body whose length is not known before."""
    for _ in range(size // 50_000):
        yield b" " * 50_000


async def test_bodies_that_are_begun_and_left_take_bounded_memory(master: Any, ben: str, ada: str) -> None:
    memory = limits_of(master).memory
    async with (
        unfinished(master, ben, "POST api/v1/experiments", SENT, CONNECTIONS),
        master.client(ben) as bens,
        master.client(ada) as adas,
    ):
        await soon(lambda: memory.held("ben") == ADMITTED * DECLARED)
        for body in (b" " * DECLARED, pieces(DECLARED)):
            reply = await bens.post("experiments", content=body)
            assert (reply.status_code, reply.json()["code"]) == (503, "unavailable.busy")
            assert int(reply.headers["Retry-After"]) > 0
        began = time.monotonic()
        reply = await adas.post("experiments", json={"config": CONFIG, "dry_run": True})
        assert reply.status_code == 200, reply.text
        assert time.monotonic() - began < 5
        assert memory.held() == ADMITTED * DECLARED <= BODIES_PER_USER
    await soon(lambda: memory.held() == 0)
    async with master.client(ben) as bens:
        assert (await bens.post("experiments", json={"config": CONFIG, "dry_run": True})).status_code == 200
    await soon(lambda: memory.held() == 0)


@pytest.mark.parametrize("what", ["POST api/v1/experiments", "POST nowhere", "GET health", "PUT api/v1/quotas"])
async def test_the_body_of_somebody_unknown_is_not_kept(master: Any, what: str) -> None:
    kept: list[tuple[int, int]] = []

    def look(handler: Any) -> None:
        kept.append((handler._received, len(handler.body)))

    master.application.settings["log_function"] = look  # called when the answer is written and the body still there
    verb, path = what.split()
    async with httpx.AsyncClient(base_url=master.base, trust_env=False) as client:
        await client.request(verb, path, content=b" " * SENT)
    assert kept == [(SENT, 0)]


async def test_a_body_that_does_not_come_in_time_ends_its_connection(master: Any, ben: str) -> None:
    limits = replace(limits_of(master), seconds=0.5)
    master.application.settings["bodies"] = limits
    async with unfinished(master, ben, "POST api/v1/experiments", SENT) as readers, asyncio.timeout(10):
        assert await readers[0].read() == b""
        await soon(lambda: limits.memory.held() == 0)
    async with unfinished(master, None, "POST api/v1/experiments", SENT) as readers, asyncio.timeout(10):
        assert await readers[0].read() == b""


async def test_uploads_that_stop_are_cut_and_their_tickets_are_free(master: Any, ben: str) -> None:
    master.application.settings["bodies"] = replace(limits_of(master), silence=1.0)
    async with unfinished(master, ben, f"PUT api/v1/{BUNDLE}", 100_000, UPLOADS_PER_USER, 200_000) as readers:
        await soon(lambda: tickets_of(master, "ben") == len(leftovers(master)) == UPLOADS_PER_USER)
        async with asyncio.timeout(10):
            assert [await reader.read() for reader in readers] == [b""] * UPLOADS_PER_USER
        await soon(lambda: tickets_of(master, "ben") == 0 and leftovers(master) == [])
        async with master.client(ben) as bens:
            reply = await bens.put(BUNDLE, content=b"of another digest")
            assert reply.json()["code"] == "bundle.invalid"


async def test_an_upload_that_drips_is_cut(master: Any, ben: str) -> None:
    """Each pause is short, and all of it is too slow."""
    master.application.settings["bodies"] = replace(limits_of(master), window=1.0)
    sent = 0

    async def drops() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(200):
            yield b"x" * 100
            sent += 100
            await asyncio.sleep(0.05)

    async with master.client(ben) as bens:
        with pytest.raises(httpx.TransportError):
            await bens.put(BUNDLE, content=drops())
    assert 0 < sent < 10_000
    await soon(lambda: tickets_of(master, "ben") == 0 and leftovers(master) == [])
