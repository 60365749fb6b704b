"""A node without processes, at a real master: an agent's WebSocket and its trials' requests, one after the other.

It goes on through the deaths of the master as agents and tasks do: what was not acknowledged is said again.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from pydantic import TypeAdapter
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

from detlab.schemas.wire import (
    AgentMessage,
    ExitAck,
    HeldTask,
    Hello,
    Launch,
    MasterMessage,
    SlotView,
    TaskExited,
    TaskStarted,
)
from detlab.testing.ports import free_port
from testbed import small_search
from testbed.cluster import Cluster
from testbed.master_forks import Masters, Process

NAME = "node"
DIGEST = "sha256:" + hashlib.sha256(b"x").hexdigest()
PATIENCE = 60.0
"""Seconds in which a master answers, or has been started again and answers."""
_AWAY = (OSError, HTTPClientError, StreamClosedError, WebSocketClosedError)
_message: TypeAdapter[MasterMessage] = TypeAdapter(MasterMessage)


@dataclass
class Service:
    """A master at one address, started again when it has died.

    Attributes:
        base: Its address; ends with a slash.
        deaths: How its processes ended.
    """

    masters: Masters
    arguments: list[str]
    base: str
    log: Path
    process: Process = field(init=False)
    deaths: list[int] = field(default_factory=list)

    def start(self, **more: Any) -> None:
        """Start it; `more` as of `Masters.start`."""
        self.process = self.masters.start(self.arguments, self.log, **more)

    async def ready(self) -> None:
        """Return when it answers."""
        async with asyncio.timeout(PATIENCE), httpx.AsyncClient(trust_env=False) as http:
            while True:
                if self.process.code is not None:
                    self.deaths.append(self.process.code)
                    self.start()
                with suppress(httpx.TransportError):
                    if (await http.get(f"{self.base}health")).status_code == 200:
                        return
                await asyncio.sleep(0.01)


def service_at(url: str, hub: Cluster, masters: Masters, folder: Path, *more: str) -> tuple[Service, str]:
    """A master on a database, and the token by which its agents enrol.

    Args:
        url: Of the database.
        hub: The cluster whose Hub knows the people.
        masters: Starts it.
        folder: Its state folder.
        more: Further arguments.
    """
    folder.mkdir(exist_ok=True)
    enrolment = folder / "enrolment_token"
    if not enrolment.exists():
        enrolment.write_text(f"dtenrol_{secrets.token_hex(32)}", encoding="ascii")
    port = free_port()
    arguments = [
        f"--DetHub.state_dir={folder}",
        f"--DetHub.db_url={url}",
        f"--DetHub.port={port}",
        f"--DetHub.hub_api_url=http://127.0.0.1:{hub.plan['hub_port']}/hub/api",
        f"--DetHub.service_token_file={hub.folder / 'secrets' / 'service_token'}",
        f"--DetHub.enrolment_token_file={enrolment}",
        *more,
    ]
    base = f"http://127.0.0.1:{port}/services/detlab/"
    return Service(masters, arguments, base, folder / f"master-{port}.log"), enrolment.read_text(encoding="ascii")


@dataclass
class Task:
    """One attempt of a trial."""

    launch: Launch
    ops: Iterator[tuple[Any, ...]]
    seq: int = 0
    exit_code: int | None = None


@dataclass
class Node:
    """The agent with one slot, its tasks, and the person who submits the search.

    Args:
        service: The master.
        person: Their Hub token.
        enrolment: An enrolment token.
        then: What else happens after each report, of a task at a step, before the trial goes on.
    """

    service: Service
    person: str
    enrolment: str
    then: Callable[[Task, int], Awaitable[None]] | None = None
    key: str = ""
    experiment: int = 0
    tasks: dict[str, Task] = field(default_factory=dict)
    saved: int = 0
    connection: WebSocketClientConnection | None = None
    _http: httpx.AsyncClient = field(init=False)

    async def search(self) -> None:
        """Enrol, submit the small search, and work until it is over."""
        async with httpx.AsyncClient(trust_env=False, timeout=20.0) as self._http:
            try:
                await self.service.ready()
                self.key = (await self.ask("POST", "agents/enrol", self.enrolment, {"agent_id": NAME}))["token"]
                await self.connect()
                wanted = {"config": small_search.CONFIG, "idempotency_key": "one submit"}
                self.experiment = (await self.ask("POST", "experiments", self.person, wanted))["experiment"]["id"]
                while not await self._over():
                    await self._heed(await self._hear())
            finally:
                self._hang_up()

    async def ask(self, method: str, path: str, token: str, body: dict[str, Any] | None = None) -> Any:
        """One request, sent again until it is answered."""
        headers = {"Authorization": f"Bearer {token}"}
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    reply = await self._http.request(
                        method, f"{self.service.base}api/v1/{path}", headers=headers, json=body
                    )
                except httpx.TransportError:
                    await self._again()
                    continue
                if reply.status_code != 503:
                    assert reply.is_success, reply.text
                    return reply.json() if reply.content else None
                await asyncio.sleep(0.01)

    async def connect(self) -> None:
        """Connect as the agent, say what there is, and what has ended."""
        tasks = [
            HeldTask(allocation_id=key, run=task.launch.run, exited=task.exit_code is not None)
            for key, task in self.tasks.items()
        ]
        hello = Hello(uids={}, agent_id=NAME, slots=[SlotView(id="cpu0")], tasks=tasks)
        url = f"{self.service.base.replace('http', 'ws', 1)}api/v1/agents/connect"
        welcome = None
        async with asyncio.timeout(PATIENCE):
            while welcome is None:
                self._hang_up()
                await self.service.ready()
                with suppress(*_AWAY):
                    headers = {"Authorization": f"Bearer {self.key}"}
                    self.connection = await websocket_connect(HTTPRequest(url, headers=headers))
                    await self.connection.write_message(hello.model_dump_json())
                    welcome = await self.connection.read_message()
        for key, task in self.tasks.items():
            if task.exit_code is not None:
                await self._say_exit(key)

    async def _again(self) -> None:
        """The master has gone: wait for the next one, and be its agent."""
        self._hang_up()
        await self.service.ready()
        if self.key:
            await self.connect()

    def _hang_up(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    async def _hear(self) -> MasterMessage:
        async with asyncio.timeout(PATIENCE):
            while True:
                data = None if self.connection is None else await self.connection.read_message()
                if data is not None:
                    return _message.validate_json(data)
                await self._again()

    async def _say(self, message: AgentMessage) -> None:
        """Say it if there is a connection; the next one begins with all that matters."""
        with suppress(*_AWAY):
            if self.connection is not None:
                await self.connection.write_message(message.model_dump_json())

    async def _say_exit(self, key: str) -> None:
        task = self.tasks[key]
        await self._say(TaskExited(allocation_id=key, run=task.launch.run, exit_code=task.exit_code))

    async def _over(self) -> bool:
        """Whether the search is, and nothing is left to be acknowledged."""
        if self.tasks:
            return False
        view = await self.ask("GET", f"experiments/{self.experiment}", self.person)
        return str(view["state"]) == "COMPLETED"

    async def _heed(self, message: MasterMessage) -> None:
        match message:
            case Launch() if message.allocation_id not in self.tasks:
                self.tasks[message.allocation_id] = Task(message, small_search.script(message))
                await self._work(message.allocation_id)
            case ExitAck():
                task = self.tasks.pop(message.allocation_id, None)
                if task is not None and (task.launch.info.trial_index, task.launch.run) == small_search.PAUSED[:2]:
                    await self.ask("POST", f"experiments/{self.experiment}/activate", self.person)

    # --- what a task does

    async def _work(self, key: str) -> None:
        task = self.tasks[key]
        await self._say(TaskStarted(allocation_id=key, run=task.launch.run))
        answer: Any = None
        while task.exit_code is None:
            answer = await self._do(task, task.ops.send(answer))
        await self._say_exit(key)

    async def _do(self, task: Task, op: tuple[Any, ...]) -> Any:
        token = task.launch.task_token
        match op:
            case ("resume",):
                uuid = task.launch.info.latest_checkpoint
                found = uuid and await self.ask("GET", f"task/checkpoints/{uuid}", token)
                return found["steps_completed"] if found else 0
            case ("metrics", group, step, metrics):
                await self._report(task, {"group": group, "steps_completed": step, "metrics": metrics})
                if (task.launch.info.trial_index, task.launch.run, step) == small_search.PAUSED:
                    await self.ask("POST", f"experiments/{self.experiment}/pause", self.person)
                if self.then is not None:
                    await self.then(task, step)
            case ("save", step):
                self.saved += 1
                files = {"model.pt": {"size": 1, "digest": DIGEST}}
                uuid = small_search.uuid_of(self.saved, task.launch.info.trial_id)
                made = {"uuid": uuid, "steps_completed": step, "files": files}
                await self.ask("POST", "task/checkpoints", token, {**made, "manifest_digest": DIGEST})
            case ("poll",):
                leave = (await self.ask("GET", "task/preempt?timeout_seconds=0", token))["preempt"]
                if leave:
                    await self.ask("POST", "task/preempt/ack", token)
                return leave
            case ("exit", code):
                task.exit_code = code
        return None

    async def _report(self, task: Task, record: dict[str, Any]) -> None:
        task.seq += 1
        batch = {"stream": "metrics", "records": [{"kind": "metrics", "seq": task.seq, "time": 1.0, **record}]}
        ack = await self.ask("POST", "task/records", task.launch.task_token, batch)
        assert ack["acked"] == task.seq
        assert not ack["refused"]
