"""A master as far as a spawner sees it: real HTTP on loopback, scripted answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from detlab.schemas.taskwire import SpawnView, TaskEnd
from detlab.schemas.wire import AllocationState, TrialState
from detlab_hub.spawners import SpawnFailed

PREFIX = "/services/detlab/api/v1/spawns"


class Master:
    """What was asked, and what is answered."""

    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []
        self.claimed: list[str] = []
        self.deleted: list[str] = []
        self.refuse: tuple[int, dict[str, Any]] | None = None
        self.closed: dict[str, str] = {}
        """What it says of runtimes that no node has."""
        self.post_gate = asyncio.Event()
        self.post_gate.set()
        self.views: dict[str, SpawnView] = {}
        self.changed = asyncio.Event()
        self.cut = 0
        """Streams that are ended at once."""
        self.port = 0
        self.server: HTTPServer | None = None

    @property
    def url(self) -> str:
        """Base of the service."""
        return f"http://127.0.0.1:{self.port}/services/detlab/"

    def listen(self) -> None:
        """Be there, on the same port as before."""
        (socket,) = bind_sockets(self.port, "127.0.0.1")
        self.port = socket.getsockname()[1]
        routes = [(PREFIX, All), (PREFIX + "/offers", Offers), (PREFIX + r"/([\w-]+)", One)]
        routes.append((PREFIX + r"/([\w-]+)/(stream|claim)", Of))
        self.server = HTTPServer(Application([(path, cls, {"master": self}) for path, cls in routes]))
        self.server.add_sockets([socket])

    async def leave(self) -> None:
        """Be away."""
        assert self.server is not None
        self.server.stop()
        await self.server.close_all_connections()

    def task_of(self, body: dict[str, Any]) -> str:
        """The same key, the same task."""
        keys = list(dict.fromkeys(post["key"] for post in self.posts))
        return f"notebook-{keys.index(body['key'])}"

    def put(self, task_id: str, **more: Any) -> None:
        """Change how a spawn stands."""
        self.views[task_id] = self.views[task_id].model_copy(update=more)
        event, self.changed = self.changed, asyncio.Event()
        event.set()

    def run(self, task_id: str, port: int) -> None:
        """The agent has started it."""
        self.put(task_id, allocation_state=AllocationState.RUNNING, address="127.0.0.1", port=port, agent_id="node-1")

    def end(self, task_id: str, why: TaskEnd, **more: Any) -> None:
        """It is over."""
        self.put(task_id, state=TrialState.ERROR, end_reason=why, **more)


class Base(RequestHandler):
    def initialize(self, master: Master) -> None:
        self.master = master

    def say(self, task_id: str) -> None:
        self.finish(self.master.views[task_id].model_dump_json())


class All(Base):
    async def post(self) -> None:
        master, body = self.master, json.loads(self.request.body)
        if master.refuse is not None:
            self.set_status(master.refuse[0])
            self.finish(master.refuse[1])
            return
        master.posts.append(body)
        task_id = master.task_of(body)
        pending = SpawnView(task_id=task_id, state=TrialState.ACTIVE, allocation_state=AllocationState.PENDING)
        master.views.setdefault(task_id, pending)
        await master.post_gate.wait()
        self.say(task_id)


class Offers(Base):
    def get(self) -> None:
        assert self.get_query_argument("owner") == "ada"
        self.finish({"closed": self.master.closed})


class One(Base):
    def get(self, task_id: str) -> None:
        if task_id not in self.master.views:
            self.set_status(404)
            self.finish({"code": "not_found", "message": "no such spawn"})
            return
        self.say(task_id)

    def delete(self, task_id: str) -> None:
        self.master.deleted.append(task_id)
        if not self.master.views[task_id].state.terminal:
            self.master.put(task_id, state=TrialState.CANCELED, end_reason=TaskEnd.KILLED)
        self.say(task_id)


class Of(Base):
    def post(self, task_id: str, what: str) -> None:
        self.master.claimed.append(task_id)
        self.say(task_id)

    async def get(self, task_id: str, what: str) -> None:
        master = self.master
        if master.cut:
            master.cut -= 1
            self.finish()
            return
        told = None
        while True:
            changed, view = master.changed, master.views[task_id]
            if view != told:
                self.write(view.model_dump_json() + "\n")
                await self.flush()
                told = view
            if view.state.terminal:
                return
            await changed.wait()


@asynccontextmanager
async def listening() -> AsyncIterator[Master]:
    """A master that is there."""
    master = Master()
    master.listen()
    try:
        yield master
    finally:
        await master.leave()


@asynccontextmanager
async def answering() -> AsyncIterator[int]:
    """A server that answers; its port."""

    class Anything(RequestHandler):
        def get(self) -> None:
            self.finish("{}")

    (socket,) = bind_sockets(0, "127.0.0.1")
    server = HTTPServer(Application([(r".*", Anything)]))
    server.add_sockets([socket])
    try:
        yield socket.getsockname()[1]
    finally:
        server.stop()
        await server.close_all_connections()


def user() -> Any:
    """A Hub user, as far as a spawner asks."""
    return SimpleNamespace(name="ada", id=7, url="/user/ada/", escaped_name="ada", groups=[], settings={})


def spawn_view(**more: Any) -> SpawnView:
    """How a spawn stands that waits or runs."""
    return SpawnView(task_id="notebook-5", state=TrialState.ACTIVE, **more)


async def refused(spawner: Any, master: Master) -> SpawnFailed:
    """Insist that a start is refused before the master is asked; return what the page is told."""
    with pytest.raises(SpawnFailed) as failed:
        await spawner.start()
    assert not master.posts
    return failed.value
