"""The agents' WebSocket: hello first, one's own name, messages of this protocol, and no key without enrolment."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from detlab.schemas.wire import Hello, SlotView
from detlab_hub.web.cluster.agents import Connect
from detlab_hub.web.routes import AGENT_MESSAGE_LIMIT

pytestmark = pytest.mark.hub


async def enrol(master: Any, name: str) -> str:
    async with master.client() as client:
        token = (await client.post("agents/enrolments", json={"ttl": 60})).json()["token"]
    async with master.client(token) as client:
        return str((await client.post("agents/enrol", json={"agent_id": name})).json()["token"])


async def connect(master: Any, key: str) -> WebSocketClientConnection:
    url = master.base.replace("http", "ws", 1) + "api/v1/agents/connect"
    return await websocket_connect(HTTPRequest(url, headers={"Authorization": f"Bearer {key}"}))


def hello(name: str) -> str:
    return Hello(uids={}, agent_id=name, slots=[SlotView(id="cpu0")]).model_dump_json()


async def closed_with(connection: WebSocketClientConnection) -> int | None:
    while await connection.read_message() is not None:
        pass
    code = connection.close_code
    connection.close()
    return code


async def test_hello_is_answered_and_the_slots_appear(master: Any) -> None:
    connection = await connect(master, await enrol(master, "host"))
    await connection.write_message(hello("host"))
    welcome = json.loads(await connection.read_message() or "")
    assert welcome["type"] == "welcome"
    async with master.client() as client:
        (agent,) = (await client.get("agents")).json()
        assert (agent["id"], agent["state"], len(agent["slots"])) == ("host", "connected", 1)
        assert (await client.get("cluster")).json()["slots_total"] == 1
    connection.close()


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ('{"type": "heartbeat"}', 4002),
        ("not json", 4002),
        ('{"type": "launch"}', 4002),
        (hello("somebody else"), 4003),
        (Hello(uids={}, agent_id="host", slots=[], protocol=0).model_dump_json(), 4003),
    ],
)
async def test_what_is_no_hello_of_ones_own_ends_the_connection(master: Any, message: str, code: int) -> None:
    connection = await connect(master, await enrol(master, "host"))
    await connection.write_message(message)
    assert await closed_with(connection) == code


async def test_silence_ends_the_connection(master: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connect, "hello_wait", 0.05)
    connection = await connect(master, await enrol(master, "host"))
    assert await closed_with(connection) == 4008


async def test_a_key_is_void_after_the_agent_has_enrolled_again(master: Any) -> None:
    old = await enrol(master, "host")
    await enrol(master, "host")
    async with master.client(old) as client:
        reply = await client.post("agents/records?allocation_id=1", json={"stream": "logs", "records": []})
    assert reply.status_code == 401


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"slots": [{"id": "cpu0"}, {"id": "cpu0"}]}, ["slots", "'cpu0'"]),
        ({"max_zero_slot_tasks": 10**9}, ["max_zero_slot_tasks", "1000"]),
        ({"uids": None}, ["update detlab on that node"]),
    ],
)
async def test_an_agent_is_told_in_full_why_it_is_refused(master: Any, said: dict[str, Any], words: list[str]) -> None:
    connection = await connect(master, await enrol(master, "host"))
    await connection.write_message(json.dumps({**json.loads(hello("host")), **said}))
    answer = json.loads(await connection.read_message() or "{}")
    assert answer["type"] == "refused"
    assert all(word in answer["message"] for word in words), answer
    assert await closed_with(connection) == 4003
    async with master.client() as client:
        (agent,) = (await client.get("agents")).json()
    assert (agent["state"], agent["refused"]) == ("lost", answer["message"])


async def test_a_field_that_is_wrong_is_named(master: Any) -> None:
    connection = await connect(master, await enrol(master, "host"))
    await connection.write_message(json.dumps({**json.loads(hello("host")), "cpus": -1}))
    assert await closed_with(connection) == 4002
    assert "cpus" in (connection.close_reason or "")


async def test_a_hello_of_megabytes_ends_the_connection(master: Any) -> None:
    connection = await connect(master, await enrol(master, "host"))
    await connection.write_message(json.dumps({**json.loads(hello("host")), "more": "x" * AGENT_MESSAGE_LIMIT}))
    assert await closed_with(connection) is not None
    async with master.client() as client:
        assert [agent["state"] for agent in (await client.get("agents")).json()] == ["lost"]
