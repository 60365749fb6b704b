"""A Hello of very many nodes goes in parts, none larger than a master takes; an older master is told what it takes."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from tornado.websocket import WebSocketClientConnection

from detlab.schemas.wire import HeldTask, Hello, MoreNodes, NodeHello, SlotView
from detlab.testing.master import MasterDouble
from detlab_agent.connection import Connector, dial
from detlab_agent.endpoints import Endpoints
from detlab_agent.enrolment import KeyRing
from detlab_agent.hellos import FIRST_NODES, in_parts
from detlab_agent.tasks import TaskTable
from detlab_hub.web.routes import AGENT_MESSAGE_LIMIT
from testbed.waiting import soon

GPUS = [SlotView(id=f"gpu{n}", kind="cuda", name="NVIDIA-H100-80GB-HBM3", memory=80 << 30) for n in range(8)]
LABELS = {f"cloud.example/label-of-some-length-{n}": "a-value-of-some-length" for n in range(48)}


def hello(count: int, **more: Any) -> Hello:
    nodes = [NodeHello(name=f"n{number:05}", slots=GPUS, labels=LABELS) for number in range(count)]
    return Hello(agent_id="a", slots=[], nodes=nodes, **more)


@pytest.mark.parametrize("count", [0, 1, 999, 1500, 5000])
def test_every_part_is_small_enough_and_every_node_is_in_one(count: int) -> None:
    """A Hello of 400 such nodes was larger than the master's limit of a message, and one of 1,001 was refused."""
    whole = hello(count)
    first, rest = in_parts(whole)
    parts: list[Hello | MoreNodes] = [first, *rest]
    assert max(len(part.model_dump_json()) for part in parts) < AGENT_MESSAGE_LIMIT
    assert [node.name for part in parts for node in part.nodes] == [node.name for node in whole.nodes]
    assert len(first.nodes) <= FIRST_NODES
    assert first.node_count == count


def test_what_fits_goes_as_ever() -> None:
    whole = Hello(agent_id="a", slots=[], nodes=[NodeHello(name=f"n{n}", slot_count=4) for n in range(1000)])
    first, rest = in_parts(whole)
    assert (first, rest) == (whole.model_copy(update={"node_count": 1000}), [])


def test_nodes_with_tasks_and_those_away_come_first_and_tasks_with_their_node() -> None:
    tasks = [HeldTask(allocation_id="own", run=1), HeldTask(allocation_id="late", run=1, node="n01499")]
    tasks.append(HeldTask(allocation_id="of no node", run=1, node="gone"))
    tasks += [HeldTask(allocation_id=f"t{n}", run=1, node=f"n{n:05}") for n in range(0, 1400, 2)]
    whole = hello(1500, tasks=tasks)
    whole.nodes[700].away = True
    first, rest = in_parts(whole)
    assert [node.name for node in first.nodes][:3] == ["n00700", "n00000", "n00002"]
    assert {task.allocation_id for task in first.tasks} >= {"own", "of no node"}
    for part in (first, *rest):
        names = {node.name for node in part.nodes}
        assert {task.node for task in part.tasks} - {"", "gone"} <= names
    assert sum(len(part.tasks) for part in (first, *rest)) == len(tasks)


@pytest.mark.parametrize("takes_more", [True, False])
def test_an_older_master_hears_of_as_many_nodes_as_it_takes(
    takes_more: bool, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with MasterDouble() as master, caplog.at_level(logging.WARNING):
        master.takes_more = takes_more
        (tmp_path / "invitation").write_text(master.enrolment_token)
        endpoints = Endpoints(master.url)
        keys = KeyRing(tmp_path / "key.json", "a", endpoints, tmp_path / "invitation")
        made: list[WebSocketClientConnection] = []

        async def noted(*arguments: Any) -> WebSocketClientConnection:
            made.append(await dial(*arguments))
            return made[-1]

        table = TaskTable(cast("Any", None), cast("Any", None))
        connector = Connector(endpoints, keys, table, lambda: hello(1500), dial=noted)

        async def connect() -> None:
            running = asyncio.create_task(connector.run())
            first, _ = in_parts(hello(1500))
            wanted = 1500 if takes_more else len(first.nodes)
            try:
                await soon(lambda: bool(master.hellos) and len(master.hellos[-1].nodes) == wanted, 20)
                await soon(lambda: takes_more or "older version" in caplog.text, 20)
            finally:
                running.cancel()
                await asyncio.wait([running])
                for connection in made:  # closed by both sides, before the loop that would do it has ended
                    while await connection.read_message() is not None:
                        pass

        asyncio.run(connect())
    assert len(master.hellos) == 1, "it stays connected"
    assert ("older version" in caplog.text) is not takes_more


def test_heartbeats_do_not_wait_for_an_attestation(tmp_path: Path) -> None:
    """It takes a thread, and all of them may be busy with images and batch systems that do not answer."""
    asked, beats, may_go_on = [0], [0], threading.Event()

    def warm() -> list[str]:
        asked[0] += 1
        if asked[0] > 1:
            may_go_on.wait(30)
        return []

    def queue() -> None:
        beats[0] += 1

    with MasterDouble() as master:
        master.nonce = "ab" * 16
        (tmp_path / "invitation").write_text(master.enrolment_token)
        endpoints = Endpoints(master.url)
        keys = KeyRing(tmp_path / "key.json", "a", endpoints, tmp_path / "invitation")
        made: list[WebSocketClientConnection] = []

        async def noted(*arguments: Any) -> WebSocketClientConnection:
            made.append(await dial(*arguments))
            return made[-1]

        table = TaskTable(cast("Any", None), cast("Any", None))
        connector = Connector(
            endpoints, keys, table, lambda: hello(1), dial=noted, heartbeat=0.05, queue=queue, warm=warm
        )

        async def connect() -> None:
            running = asyncio.create_task(connector.run())
            try:
                await soon(lambda: asked[0] > 1, 20)
                before = beats[0]
                await soon(lambda: beats[0] >= before + 5, 20)
                assert len(master.attestations) == 1
            finally:
                may_go_on.set()
                running.cancel()
                await asyncio.wait([running])
                for connection in made:
                    while await connection.read_message() is not None:
                        pass

        asyncio.run(connect())
