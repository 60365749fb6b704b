"""I3: an attempt that was replaced, at every verb that tasks have, while its successor runs: nothing it asks is done.

Whatever it asks for is what its successor may ask for, and gets: each is refused for who asks.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from detlab.schemas.checkpoint_ids import new_checkpoint_id
from detlab.schemas.wire import (
    Heartbeat,
    HeldTask,
    Hello,
    Launch,
    SlotView,
    TaskExited,
    TaskStage,
    TaskStarted,
    Welcome,
)
from detlab_hub.services import AgentCaller
from detlab_hub.services.agents.agents import Agents
from detlab_hub.store.tables import Base
from testbed.routes import Asked, verbs
from testbed.waiting import soon

pytestmark = pytest.mark.hub

CONFIG = {
    "name": "superseded",
    "entrypoint": ["true"],
    "searcher": {"name": "single", "metric": "x", "max_length": 9},
    "max_restarts": 1,
}
DIGEST = "sha256:" + hashlib.sha256(b"x").hexdigest()
FILES = {"model.pt": {"size": 1, "digest": DIGEST}}
MATRIX = {
    "sources": ["a"],
    "parameters": [["w", [1]]],
    "scales": [[1.0]],
    "levels": [["direct"]],
    "default": None,
    "normalize": "global",
}
VERSION = {"files": [{"path": "model.pt", "size": 1, "digest": DIGEST}]}
NOT_FOR_IT = {
    "PUT task/outputs/{name}",
    "POST task/rendezvous",
    "POST task/checkpoints/{uuid}/verification",
    "POST task/ranks",
    "POST task/certificate",
    "GET task/search",
    "POST task/search",
    "GET task/collection",
    "POST task/collection",
    "GET task/checkpoint",
    "GET task/checkpoints/{uuid}/files/{digest}",
    "GET task/storage-check",
    "GET task/storage-check/expected",
}
"""What only user tasks, searches, collections, or trials over several nodes may do, and a file that there is not: no
attempt of this one."""
WRITTEN_ANYWAY = {"lease", "agents", "tokens", "meta", "usage"}
"""Tables that change while nobody does anything."""


@pytest.fixture
def silence() -> float:
    return 2.0


@dataclass
class Agent:
    """One slot, and what the master has said."""

    name: str
    master: Any
    key: str = ""
    tasks: list[HeldTask] = field(default_factory=list)
    heard: list[Any] = field(default_factory=list)
    session: Any = None

    async def connect(self) -> None:
        hello = Hello(uids={}, agent_id=self.name, slots=[SlotView(id=f"{self.name}-0")], tasks=self.tasks)
        caller = AgentCaller(self.name, hashlib.sha256(self.key.encode()).hexdigest())
        self.heard = []
        self.session = await self.master.services[Agents].connect(caller, hello, self.heard.append)

    async def speak(self) -> None:
        """Say for ever that it is there."""
        while True:
            await self.session.receive(Heartbeat())
            await asyncio.sleep(0.2)

    def launches(self) -> list[Launch]:
        return [message for message in self.heard if isinstance(message, Launch)]


@asynccontextmanager
async def speaking(agent: Agent) -> AsyncIterator[None]:
    """Let it be there meanwhile."""
    task = asyncio.create_task(agent.speak())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def enrolled(master: Any, name: str) -> Agent:
    async with master.client() as operator:
        invited = (await operator.post("agents/enrolments", json={"ttl": 600})).json()["token"]
    async with master.client(invited) as holder:
        reply = (await holder.post("agents/enrol", json={"agent_id": name})).raise_for_status()
    agent = Agent(name, master, reply.json()["token"])
    await agent.connect()
    return agent


@cache
def bundle() -> bytes:
    """Code; made once, since a packed file tells when it was made."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("empty.py"), io.BytesIO())
    return out.getvalue()


@dataclass
class Replaced:
    """A trial whose first attempt was replaced, and whose second runs."""

    first: Launch
    second: Launch
    old: httpx.AsyncClient
    new: httpx.AsyncClient
    old_agent: Agent
    new_agent: Agent
    uuid: str
    """Of the checkpoint that the first attempt has committed."""

    def asked(self) -> Iterator[tuple[str, Asked, dict[str, Any]]]:
        """Each verb that tasks have, by its name, with a request that is understood."""
        ids = {
            "uuid": self.uuid,
            "digest": str(self.first.bundle),
            "name": "out.txt",
            "artifact": "data",
            "version": "1",
        }
        bodies = bodies_of(self.first.info.trial_id)
        for one in verbs(ids):
            if "TASK" in {scope.name for scope in one.operation.scopes}:
                name = f"{one.verb} {one.route.removeprefix('api/v1/')}"
                yield name, one, bodies.get(name, {}) if one.verb in {"GET", "DELETE"} else bodies[name]


def bodies_of(trial: int) -> dict[str, dict[str, Any]]:
    """A body for each verb that takes one."""
    record = {"kind": "metrics", "seq": 9, "time": 1.0, "group": "validation", "steps_completed": 9}
    commit = {"uuid": new_checkpoint_id(trial), "steps_completed": 9, "files": FILES, "manifest_digest": DIGEST}
    return {
        "POST task/records": {"json": {"stream": "metrics", "records": [{**record, "metrics": {"x": 0.0}}]}},
        "POST task/rendezvous": {"json": {"node": 0}},
        "POST task/point": {},
        "POST task/ranks": {"json": {"node": 0}},
        "POST task/certificate": {"json": {"address": "10.0.0.7"}},
        "POST task/search": {"json": {"number": 1}},
        "POST task/collection": {"json": {"items": []}},
        "POST task/storage-check": {"json": {"items": []}},
        "POST task/preempt": {},
        "POST task/preempt/ack": {},
        "POST task/checkpoints": {"json": commit},
        "POST task/checkpoints/{uuid}/verification": {"json": {"manifest_digest": DIGEST, "s_hash": DIGEST}},
        "PUT task/governance/matrix": {"json": {"matrix": MATRIX}},
        "PUT task/governance/preflight": {"json": {"code": [DIGEST]}},
        "PUT task/metadata": {"json": {"who": "an attempt"}},
        "POST task/token": {},
        "PUT task/outputs/{name}": octets(b"x"),
        "POST task/activity": {"json": {"last_activity": 1.0, "busy": True}},
        "PUT task/media": {
            "params": {"key": "said", "step": 9, "place": 0, "kind": "text", "media_type": "text/plain"},
            **octets(b"x"),
        },
        "PUT artifacts/{artifact}/files/{digest}": octets(bundle()),
        "POST artifacts/{artifact}/versions": {"json": {**VERSION, "metadata": {"of": "an attempt"}}},
        "POST artifacts/{artifact}/versions/{version}/use": {"json": {}},
        "GET artifacts/{artifact}/versions/{version}/file": {"params": {"path": "model.pt"}},
    }


def octets(content: bytes) -> dict[str, Any]:
    """The body of an upload."""
    return {"content": content, "headers": {"Content-Type": "application/octet-stream"}}


async def report(task: httpx.AsyncClient, step: int) -> None:
    record = {"kind": "metrics", "seq": step, "time": 1.0, "group": "validation", "steps_completed": step}
    batch = {"stream": "metrics", "records": [{**record, "metrics": {"x": 1.0}}]}
    (await task.post("task/records", json=batch)).raise_for_status()


async def works(task: httpx.AsyncClient, trial: int) -> str:
    """Report, store a checkpoint, whose uuid is returned, and log an artifact."""
    uuid = new_checkpoint_id(trial)
    await report(task, 1)
    body = {"uuid": uuid, "steps_completed": 1, "files": FILES, "manifest_digest": DIGEST}
    (await task.post("task/checkpoints", json=body)).raise_for_status()
    (await task.post("artifacts/data/versions", json=VERSION)).raise_for_status()
    (await task.put(f"artifacts/data/files/{DIGEST}", **octets(b"x"))).raise_for_status()
    (await task.post("artifacts/data/versions", json=VERSION)).raise_for_status()
    return uuid


@asynccontextmanager
async def replaced(master: Any, how: str) -> AsyncIterator[Replaced]:
    """A trial whose first attempt was replaced just after it asked something: since its agent is lost, or it failed."""
    async with AsyncExitStack() as stack:
        one = await enrolled(master, "one")
        digest = "sha256:" + hashlib.sha256(bundle()).hexdigest()
        operator = await stack.enter_async_context(master.client())
        (await operator.put(f"bundles/{digest}", content=bundle())).raise_for_status()
        made = await operator.post("experiments", json={"config": CONFIG, "bundle": digest})
        assert made.status_code == 200, made.text
        await soon(lambda: bool(one.launches()))
        (first,) = one.launches()
        running = HeldTask(allocation_id=first.allocation_id, run=1)
        await one.session.receive(TaskStarted(allocation_id=first.allocation_id, run=1))
        two = await enrolled(master, "two")
        await stack.enter_async_context(speaking(two))
        old = await stack.enter_async_context(master.client(first.task_token))
        uuid = await works(old, first.info.trial_id)
        if how == "failed":
            await one.session.receive(TaskExited(allocation_id=first.allocation_id, run=1, exit_code=1))
        one.session.closed()
        one.tasks = [running]
        await soon(lambda: bool(two.launches()), 20)
        (second,) = two.launches()
        assert (second.run, second.info.trial_id) == (2, first.info.trial_id)
        await two.session.receive(TaskStarted(allocation_id=second.allocation_id, run=2))
        new = await stack.enter_async_context(master.client(second.task_token))
        await report(new, 2)
        yield Replaced(first, second, old, new, one, two, uuid)


async def everything(master: Any) -> dict[str, list[Any]]:
    """All rows of all tables that tell of what people have."""
    tables = [table for table in Base.metadata.sorted_tables if table.name not in WRITTEN_ANYWAY]

    def rows(s: Any) -> dict[str, list[Any]]:
        found = {table.name: [tuple(row) for row in s.execute(select(table))] for table in tables}
        # that agents come and go is told to those who look at the cluster
        found["events"] = [row for row in found["events"] if "cluster" not in row]
        return found

    found: dict[str, list[Any]] = await master.services.context.read(rows)
    return found


def changes(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The rows that are new, other or gone, by table."""
    found = {name: [row for row in rows if row not in before[name]] for name, rows in after.items()}
    gone = {f"{name}, gone": [row for row in rows if row not in after[name]] for name, rows in before.items()}
    return {name: rows for name, rows in {**found, **gone}.items() if rows}


@pytest.mark.parametrize("how", ["its agent is lost", "failed"])
async def test_I3_a_replaced_attempt_is_refused_at_every_verb_while_its_successor_runs(master: Any, how: str) -> None:
    async with replaced(master, how) as trial:
        before = await everything(master)
        wrong, names = [], set()
        for name, one, request in trial.asked():
            reply = await trial.old.request(one.verb, f"{master.base}{one.path}", **request)
            names.add(name)
            if reply.status_code != 409 or reply.json()["code"] != "stale_attempt":
                wrong.append(f"{name} -> {reply.status_code} {reply.text[:80]}")
        assert wrong == []
        assert changes(before, await everything(master)) == {}
        assert set(bodies_of(1)) < names
        # the same requests are what the successor may ask for
        taken = {}
        for name, one, request in trial.asked():
            reply = await trial.new.request(one.verb, f"{master.base}{one.path}", **request)
            taken[name] = reply.is_success
            if name in NOT_FOR_IT:
                assert reply.json()["code"] != "stale_attempt"
        assert {name for name, success in taken.items() if not success} == NOT_FOR_IT
        assert len(changes(before, await everything(master))) > 2


async def test_I3_what_the_agent_of_a_replaced_attempt_says_late_changes_nothing(master: Any) -> None:
    async with replaced(master, "its agent is lost") as trial:
        late, first, second = trial.old_agent, trial.first, trial.second
        before = await everything(master)
        await late.connect()
        (welcome,) = (message for message in late.heard if isinstance(message, Welcome))
        assert (welcome.keep, welcome.kill) == ([], [first.allocation_id])
        for allocation, run in ((first.allocation_id, 1), (first.allocation_id, 2), (second.allocation_id, 2)):
            about = {"allocation_id": allocation, "run": run}
            for said in (
                TaskStarted(**about, pid=1, address="127.0.0.9", port=9),
                TaskStage(**about, stage="pulling", message="late"),
                TaskExited(**about, exit_code=0),
                TaskExited(**about, exit_code=1, reason="refused"),
            ):
                await late.session.receive(said)
        record = {"kind": "metrics", "seq": 9, "time": 1.0, "group": "validation", "steps_completed": 9}
        batch = {"stream": "metrics", "records": [{**record, "metrics": {"x": 0.0}}]}
        said = {}
        async with master.client(late.key) as client:
            for launch in (first, second):
                path = f"agents/records?allocation_id={launch.allocation_id}"
                said[launch.run] = (await client.post(path, json=batch)).json()["code"]
        assert said == {1: "stale_attempt", 2: "auth.forbidden"}
        assert changes(before, await everything(master)) == {}
        await report(trial.new, 3)
        (view,) = await _trials(master, trial)
        assert (view["run"], view["restarts"], view["state"], view["agent_id"]) == (2, 0, "ACTIVE", "two")


async def _trials(master: Any, trial: Replaced) -> list[dict[str, Any]]:
    async with master.client() as operator:
        reply = await operator.get(f"experiments/{trial.first.info.experiment_id}/trials")
    items: list[dict[str, Any]] = reply.raise_for_status().json()["items"]
    return items
