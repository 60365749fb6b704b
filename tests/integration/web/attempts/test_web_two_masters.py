"""Two masters on one database: one that was stopped for longer than its lease, and the one that took over."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import select
from tornado.websocket import WebSocketClientConnection

from detlab.schemas.wire import TaskExited
from detlab_hub.store.engine import parse_url, sqlite_path
from detlab_hub.store.tables import Base
from testbed import small_search
from testbed.cluster import Cluster
from testbed.master_forks import Masters
from testbed.scripted_node import DIGEST, Node, Service, Task, service_at

pytestmark = pytest.mark.hub

LEASE = 4.0
"""Seconds; the usual 15 in compressed time."""
WHEN = (0, 2, 2)
"""The report, of trial, attempt and step, after which the first master is stopped."""


@contextmanager
def ended_after(*services: Service) -> Iterator[None]:
    """Kill these masters at the end, also one that stands still."""
    try:
        yield
    finally:
        for service in services:
            service.masters.end(service.process)


async def stop_between_writes(service: Service, url: str) -> None:
    """Stop a master that holds no lock of the database; of one that does, see `test_store_takeover.py`."""
    for _ in range(100):
        service.process.send(signal.SIGSTOP)
        if await asyncio.to_thread(may_be_written, url):
            return
        service.process.send(signal.SIGCONT)
        await asyncio.sleep(0.05)
    raise AssertionError("it writes all the time")


def may_be_written(url: str) -> bool:
    """Whether nobody holds the lock that every write needs."""
    parsed = parse_url(url)
    try:
        if (path := sqlite_path(parsed)) is not None:
            with closing(sqlite3.connect(path, timeout=0.5)) as database:
                database.execute("BEGIN IMMEDIATE")
        else:
            with psycopg.connect(url) as server:
                server.execute("SET lock_timeout TO 500")
                server.execute("SELECT * FROM lease FOR UPDATE")
    except (sqlite3.OperationalError, psycopg.errors.LockNotAvailable):
        return False
    return True


def all_rows(url: str) -> dict[str, list[Any]]:
    """Everything that is in a database, but for how long the lease lasts."""
    with small_search.reading(url) as s:
        found = {}
        for table in Base.metadata.sorted_tables:
            columns = [column for column in table.columns if (table.name, column.name) != ("lease", "expires_at")]
            found[table.name] = sorted(map(repr, s.execute(select(*columns))))
        return found


async def at_rest(url: str) -> dict[str, list[Any]]:
    """Everything, once the second master has written what it had to write itself."""
    found, seen = all_rows(url), None
    async with asyncio.timeout(60):
        while seen != found:
            await asyncio.sleep(1.5)
            found, seen = all_rows(url), found
    return found


def orders(node: Node, task: Task) -> list[tuple[str, str, str, Any]]:
    """What the first master is asked while it stands still: each would change the outcome if it were done."""
    token, person = task.launch.task_token, node.person
    record = {"kind": "metrics", "seq": 99, "time": 1.0, "group": "validation", "steps_completed": 99}
    batch = {"stream": "metrics", "records": [record | {"metrics": {"loss": -99.0, "batches": 99}}]}
    files = {"model.pt": {"size": 1, "digest": DIGEST}}
    uuid = small_search.uuid_of(99, task.launch.info.trial_id)
    saved = {"uuid": uuid, "steps_completed": 99, "files": files, "manifest_digest": DIGEST}
    return [
        ("POST", "task/records", token, batch),
        ("POST", "task/checkpoints", token, saved),
        ("PUT", "task/metadata", token, {"written by": "the first master"}),
        ("POST", "task/token", token, None),
        ("POST", "experiments", person, {"config": small_search.CONFIG, "idempotency_key": "another"}),
        ("POST", f"experiments/{node.experiment}/kill", person, None),
    ]


async def order(base: str, method: str, path: str, token: str, body: Any) -> httpx.Response | None:
    """Ask, with the patience of a saint; None if the connection broke."""
    async with httpx.AsyncClient(trust_env=False, timeout=120.0) as http:
        headers = {"Authorization": f"Bearer {token}"}
        try:
            return await http.request(method, f"{base}api/v1/{path}", headers=headers, json=body)
        except httpx.TransportError:
            return None


async def said_by(connection: WebSocketClientConnection) -> list[str]:
    """The kinds of all messages that still come on an agent's connection."""
    kinds = []
    while (data := await connection.read_message()) is not None:
        kinds.append(json.loads(data)["type"])
    connection.close()
    return kinds


async def test_no_write_of_a_master_that_was_stopped_past_its_lease_lands(
    db_url: str, cluster: Cluster, forks: Masters, tmp_path: Path
) -> None:
    first, enrolment = service_at(db_url, cluster, forks, tmp_path / "state")
    second, _ = service_at(db_url, cluster, forks, tmp_path / "state")
    node = Node(first, cluster.token, enrolment)
    taken_over = False

    async def take_over(task: Task, step: int) -> None:
        nonlocal taken_over
        if taken_over or (task.launch.info.trial_index, task.launch.run, step) != WHEN:
            return
        taken_over = True
        # while the first lives, a second one is refused, with the first one's name
        early = forks.start(second.arguments, second.log, lease=LEASE)
        assert await asyncio.to_thread(forks.wait, early) == 1
        assert f":{first.process.pid}'; its lease runs out in" in second.log.read_text(encoding="utf-8")
        await stop_between_writes(first, db_url)
        asked = [asyncio.create_task(order(first.base, *what)) for what in orders(node, task)]
        old, node.connection = node.connection, None
        assert old is not None
        key = task.launch.allocation_id
        await old.write_message(TaskExited(allocation_id=key, run=task.launch.run, exit_code=1).model_dump_json())
        second.start(lease=LEASE)
        await second.ready()
        node.service = second
        await node.connect()
        before = await at_rest(db_url)
        assert before["experiments"]
        # and now the first one goes on
        first.process.send(signal.SIGCONT)
        assert await asyncio.to_thread(forks.wait, first.process) == 1
        replies = await asyncio.gather(*asked)
        assert {reply.status_code for reply in replies if reply is not None} <= {503}
        assert set(await said_by(old)) <= {"heartbeat"}, "no order to an agent"
        assert all_rows(db_url) == before
        log = first.log.read_text(encoding="utf-8")
        assert "lost its lease; the database is now held by '" in log
        assert f":{second.process.pid}'" in log
        assert "Traceback" not in log

    node.then = take_over
    first.start(lease=LEASE)
    second.process = first.process
    with ended_after(first, second):
        await node.search()
        assert taken_over
        assert first.deaths == []
        assert set(second.deaths) <= {1}, "refused while the lease lasted"
        got = small_search.outcome_in(db_url)
    calm, enrolment = service_at(f"sqlite:///{tmp_path}/calm.sqlite", cluster, forks, tmp_path / "calm")
    calm.start()
    with ended_after(calm):
        await Node(calm, cluster.token, enrolment).search()
        assert got == small_search.outcome_in(f"sqlite:///{tmp_path}/calm.sqlite")
