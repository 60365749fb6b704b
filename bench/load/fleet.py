"""Many agents without processes, for benches: the agent's own connection, keys and table of tasks over real sockets.

Only what would start a process is left out: a task of the fleet runs until it is told to end. So what the master sees
of an agent (its Hello with what it runs, the pauses between its attempts, its exits until they are acknowledged) is
said by the code that ships.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from master import Master

from detlab.launch.delivery.sender import SpoolSource
from detlab.schemas import wire
from detlab_agent.connection import Connector
from detlab_agent.endpoints import Endpoints
from detlab_agent.enrolment import KeyRing
from detlab_agent.runtimes.base import RunningTask, Say, TaskExit
from detlab_agent.tasks import TaskTable


@dataclass
class LightTask:
    """A task that does nothing until it ends, and is among the `running` of its runtime until it is told to."""

    running: dict[str, LightTask]
    allocation_id: str
    run: int
    slots: Sequence[str]
    pid: int | None = None
    address: str | None = None
    port: int | None = None
    secure: bool = False
    host: str = ""
    node: str = ""
    waits: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    code: int = 0

    async def begun(self, say: Say) -> None:
        """It runs since it was made."""

    async def finished(self) -> TaskExit:
        """Wait until it was told to end."""
        await self.ended.wait()
        return TaskExit(exit_code=self.code)

    def interrupt(self, grace: float) -> None:
        """End as by SIGTERM."""
        self.code = -signal.SIGTERM
        if self.running.get(self.allocation_id) is self:
            del self.running[self.allocation_id]
        self.ended.set()

    async def kill(self, delivery_grace: float) -> None:
        """End."""
        self.interrupt(0.0)

    def leftovers(self) -> list[SpoolSource]:
        """It leaves nothing."""
        return []

    async def remove(self, *, clean: bool) -> None:
        """There is nothing to remove."""


@dataclass
class LightRuntime:
    """Starts tasks that are no processes.

    Attributes:
        started: Allocations and runs, in the order in which they were started.
        running: What has not been told to end, by allocation.
    """

    started: list[tuple[str, int]] = field(default_factory=list)
    running: dict[str, LightTask] = field(default_factory=dict)

    async def start(self, launch: wire.Launch, say: Say, cancelled: asyncio.Event) -> RunningTask:
        """Start one."""
        task = LightTask(self.running, launch.allocation_id, launch.run, tuple(launch.slots), node=launch.node)
        self.started.append((launch.allocation_id, launch.run))
        self.running[launch.allocation_id] = task
        return task

    def recover(self) -> list[RunningTask]:
        """No earlier life."""
        return []


@dataclass
class LightAgent:
    """One agent of the fleet."""

    name: str
    runtime: LightRuntime
    table: TaskTable
    connector: Connector
    kept: int = 0
    """Tasks with which the master let it go on when it connected last."""
    welcomes: int = 0
    killed: int = 0
    """Tasks that it was told to end, at any time."""


class _Table(TaskTable):
    """The agent's table, which notes what the master said of its tasks."""

    agent: LightAgent

    def welcome(self, message: wire.Welcome) -> None:
        self.agent.kept = len(message.keep)
        self.agent.welcomes += 1
        super().welcome(message)

    def kill(self, allocation_id: str, run: int, grace: float, node: str = "") -> None:
        self.agent.killed += 1
        super().kill(allocation_id, run, grace, node)


class Fleet:
    """So many agents of so many slots, in a thread with an event loop of its own.

    Args:
        master: Where they connect.
        folder: For their keys.
        agents: How many.
        slots: Of each.
        nodes: Nodes that each speaks for; their slots are as many then, and it has none of its own.
    """

    def __init__(self, master: Master, folder: Path, agents: int, slots: int, nodes: int = 0) -> None:
        folder.mkdir(exist_ok=True)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._jobs: list[asyncio.Task[None]] = []
        self.nodes = [wire.NodeHello(name=f"node-{number:04}", slot_count=slots) for number in range(nodes)]
        token = master.folder / "enrolment_token"
        endpoints = Endpoints(f"{master.address}/services/detlab/")
        self.agents = [self._agent(f"fleet-{n:04}", slots, endpoints, folder, token) for n in range(agents)]
        logging.getLogger("detlab_agent").setLevel(logging.ERROR)  # an outage would be told of by each of them

    def _agent(self, name: str, count: int, endpoints: Endpoints, folder: Path, token: Path) -> LightAgent:
        runtime, process = LightRuntime(), secrets.token_hex(8)
        slots = [wire.SlotView(id=f"cpu{number}") for number in range(count)]

        async def nothing_left(task: RunningTask) -> None:
            return None

        table = _Table(runtime, nothing_left)

        def hello() -> wire.Hello:
            about = {"slots": [] if self.nodes else slots, "nodes": self.nodes}
            return wire.Hello(uids={}, agent_id=name, process=process, tasks=table.listing(), **about)

        keys = KeyRing(folder / f"{name}.json", name, endpoints, token)
        agent = table.agent = LightAgent(name, runtime, table, Connector(endpoints, keys, table, hello))
        return agent

    def connect(self, at_once: int = 20) -> None:
        """Enrol them, so many at a time, and let them connect for ever."""

        async def begin() -> None:
            gate = asyncio.Semaphore(at_once)

            async def one(agent: LightAgent) -> None:
                async with gate:
                    await agent.connector.keys.ensure()
                self._jobs.append(asyncio.create_task(agent.connector.run()))

            await asyncio.gather(*(one(agent) for agent in self.agents))

        asyncio.run_coroutine_threadsafe(begin(), self._loop).result()

    def do(self, action: Any, *arguments: Any) -> None:
        """Call something in the fleet's thread."""
        self._loop.call_soon_threadsafe(action, *arguments)

    def end(self, agent: LightAgent, allocation_id: str) -> bool:
        """Let a task of an agent end well; return whether it still ran."""
        task = agent.runtime.running.pop(allocation_id, None)
        if task is not None:
            self.do(task.ended.set)
        return task is not None

    @property
    def started(self) -> int:
        """How many tasks were started in all."""
        return sum(len(agent.runtime.started) for agent in self.agents)

    @property
    def running(self) -> int:
        """How many tasks run."""
        return sum(len(agent.runtime.running) for agent in self.agents)

    @property
    def busy(self) -> int:
        """How many slots are taken by what runs."""
        return sum(len(task.slots) for agent in self.agents for task in list(agent.runtime.running.values()))

    @property
    def kept(self) -> int:
        """With how many tasks the master let the agents go on when they connected last."""
        return sum(agent.kept for agent in self.agents)

    @property
    def killed(self) -> int:
        """How many tasks the master told them to end."""
        return sum(agent.killed for agent in self.agents)

    def forget_welcomes(self) -> None:
        """Count `kept` anew."""
        for agent in self.agents:
            agent.kept = agent.welcomes = 0

    @property
    def welcomed(self) -> int:
        """How many agents were welcomed since `forget_welcomes`."""
        return sum(agent.welcomes > 0 for agent in self.agents)

    def close(self) -> None:
        """Hang up."""

        async def stop() -> None:
            for job in self._jobs:
                job.cancel()
            await asyncio.gather(*self._jobs, return_exceptions=True)
            await asyncio.gather(*(agent.table.close() for agent in self.agents))

        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
