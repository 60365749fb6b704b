"""Machines with agents: the real task table and the real connector over a simulated runtime."""

from __future__ import annotations

import asyncio
import math
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from detlab.backoff import Backoff
from detlab.launch.delivery.sender import Deliverer, Mode, SpoolSource
from detlab.launch.delivery.shipping import RecordRefusal, StreamShipper
from detlab.launch.delivery.spool import SpoolReader, open_regular
from detlab.launch.delivery.tokens import TokenKeeper
from detlab.launch.taskdir import TaskDir
from detlab.schemas.wire import Hello, Launch, SlotView
from detlab_agent.connection import Connector
from detlab_agent.endpoints import Endpoints
from detlab_agent.runtimes.base import CanceledTask, TaskExit
from detlab_agent.tasks import TaskTable
from detlab_hub.core.scheduling import DEFAULT_POOL
from simulation.loop import Process, as_thread, block
from simulation.machines.gang import part_of
from simulation.machines.trial import LOOK, Launcher, PostBridge, written_exit

if TYPE_CHECKING:
    from simulation.world import World

_UNLABELED: Mapping[str, str] = {}


@dataclass(frozen=True)
class AgentPace:
    """Seconds: between heartbeats, of silence that end a connection, and at most between two attempts to connect."""

    heartbeat: float = 2.0
    silence: float = 8.0
    cap: float = 5.0


@dataclass
class Task:
    """A task on a machine, with what is on its disk; it outlives the agent."""

    machine: Node
    launch: Launch
    directory: TaskDir
    launcher: Launcher
    machine_life: int
    address: str | None = None
    port: int | None = None
    secure: bool = False
    host: str = ""

    @property
    def allocation_id(self) -> str:
        """Which allocation."""
        return self.launch.allocation_id

    @property
    def run(self) -> int:
        """Which attempt."""
        return self.launch.run

    @property
    def slots(self) -> Sequence[str]:
        """Its slots."""
        return self.launch.slots

    @property
    def pid(self) -> int | None:
        """Nobody asks."""
        return 1

    @property
    def alive(self) -> bool:
        """Whether any process of it lives."""
        return self.launcher.process.alive or self.launcher.trial.process.alive

    @property
    def node(self) -> str:
        """The agent's own."""
        return ""

    @property
    def waits(self) -> bool:
        """It runs since it was made."""
        return False

    async def begun(self, say: Any) -> None:
        """It runs since it was made."""

    async def finished(self) -> TaskExit:
        """See `RunningTask.finished`."""
        await self._gone()
        self.launcher.trial.end(-9)
        report = written_exit(self.directory)
        if report is not None:
            return TaskExit(exit_code=report["exit_code"], delivered=report["delivered"])
        if self.machine_life != self.machine.life:
            return TaskExit(reason="machine_restarted", message="the machine was started again", delivered=False)
        return TaskExit(reason="launcher_lost", message="the launcher ended without a report", delivered=False)

    async def _gone(self) -> None:
        if self.launcher.process.alive:
            gone, agent = asyncio.Event(), self.machine.keeper.agent
            assert agent is not None
            process = agent.process
            self.launcher.process.at_death.append(lambda: process.call_later(0.001, gone.set))
            await gone.wait()

    def interrupt(self, grace: float) -> None:
        """SIGTERM, passed on to the trial, which has no handler for it."""
        if self.launcher.process.alive:
            self.launcher.process.call_later(0.002, self.launcher.trial.end, -15)

    async def kill(self, delivery_grace: float) -> None:
        """See `RunningTask.kill`."""
        self.launcher.trial.end(-9)
        try:
            await asyncio.wait_for(self._gone(), delivery_grace)
        except TimeoutError:
            self.launcher.process.kill()

    def leftovers(self) -> list[SpoolSource]:
        """What a dead launcher left."""
        reader = SpoolReader(lambda: open_regular(self.directory.stream("metrics")))
        return [SpoolSource(reader, StreamShipper("metrics"))]

    async def remove(self, *, clean: bool) -> None:
        """Forget it."""
        self.machine.tasks.pop(self.allocation_id, None)
        shutil.rmtree(self.directory.root, ignore_errors=True)


class SimRuntime:
    """Starts tasks; see `detlab_agent.runtimes.base.Runtime`."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def start(self, launch: Launch, say: Any, cancelled: asyncio.Event) -> Task:
        """Make ready, which takes a moment, and start."""
        say("starting", "")
        await asyncio.sleep(0.05 + 0.2 * self._node.rng.random())
        if cancelled.is_set():
            raise CanceledTask
        return self._node.begin(launch)

    def recover(self) -> list[Task]:
        """What earlier lives of the agent started."""
        return list(self._node.tasks.values())

    def begin(self, agent: Agent) -> None:
        """What runs beside the tasks: nothing."""


class Keys:
    """The agent's key, which it has."""

    enrolment_token_file = None

    def __init__(self, key: str, agent_id: str) -> None:
        self._key, self.agent_id = key, agent_id

    def token(self) -> str:
        """The key."""
        return self._key

    async def ensure(self) -> str:
        """The key."""
        return self._key


class Marks:
    """Where the agent's delivery notes: only for the promises."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def committed(self, shipper: StreamShipper, reader: SpoolReader) -> None:
        """Acknowledged to the agent counts as to the launcher."""
        self._task.machine.world.promises.acknowledged(part_of(self._task.launch), shipper.acked)

    def damaged(self, shipper: StreamShipper, reader: SpoolReader) -> None:
        """Nobody but its writers touches a spool."""
        raise AssertionError(reader.damage)

    def refused(self, refusals: Sequence[RecordRefusal]) -> None:
        """No record of these trials may be refused."""
        self._task.machine.world.loop.errors.append(f"refused: {refusals}")


class Agent:
    """One life of an agent."""

    def __init__(self, node: Node, number: int) -> None:
        self.node = node
        self.process = Process(node.world.loop, f"{node.name} agent{number}", node.name)
        self.runtime = node.runtime()
        self.table = TaskTable(self.runtime, self._deliver)
        self.connector: Connector | None = None

    def start(self) -> None:
        """Begin."""
        self.process.spawn(self._run())

    async def _run(self) -> None:
        self.runtime.begin(self)
        self.table.recover()
        pace = self.node.world.agent_pace
        self.connector = Connector(
            Endpoints("http://master/services/detlab/"),
            self.node.keys(),  # as much of it as is asked for
            self.table,
            self._hello,
            backoff=Backoff(first=0.5, cap=pace.cap, draw=self.node.rng.random),
            heartbeat=pace.heartbeat,
            silence=pace.silence,
            dial=self._dial,  # a wire without a socket
            clock=self.node.clock,
        )
        await self.connector.run()

    async def _dial(self, url: str, token: str) -> Any:
        return self.node.connection(await self.node.world.network.dial(token))

    def _hello(self) -> Hello:
        slots = [SlotView(id=device, allocation_id=self.table.holder(device)) for device in self.node.devices]
        hello = Hello(
            agent_id=self.node.name,
            process=self.node.name,
            slots=slots,
            tasks=self.table.listing(),
            pool=self.node.pool,
            labels=dict(self.node.labels),
            max_zero_slot_tasks=self.node.zero_slot_tasks,
            cpus=self.node.cpus,
            memory=self.node.memory,
            shares=True,
            uids={},
        )
        return self.node.introduced(hello, self.table)

    async def _deliver(self, task: Any) -> None:
        """`detlab_agent.undelivered`, on the simulated network."""
        if not task.leftovers():
            return  # its spool was on another machine
        deliverer = Deliverer(
            lambda: PostBridge(self.node),
            f"agents/records?{urlencode({'allocation_id': task.allocation_id})}",
            task.leftovers(),
            TokenKeeper(self.node.key, math.inf, 0.0),
            Marks(task),
            clock=self.node.world.loop.time,
            pause=lambda seconds: block(asyncio.sleep(max(seconds, LOOK))),
        )
        job = asyncio.create_task(as_thread(deliverer.run))
        deliverer.ask(Mode.FINISH)
        await job
        self.node.world.promises.delivered(task.launch, deliverer.ending)


class Node:
    """A machine."""

    def __init__(
        self,
        world: World,
        number: int,
        slots: int,
        *,
        pool: str = DEFAULT_POOL,
        labels: Mapping[str, str] = _UNLABELED,
        zero_slot_tasks: int = 100,
        shares: int = 1,
        cpus: float | None = None,
        memory: int | None = None,
        name: str = "",
    ) -> None:
        self.world, self.pool, self.labels, self.zero_slot_tasks = world, pool, labels, zero_slot_tasks
        self.name, self.cpus, self.memory = name or f"node{number}", cpus, memory
        self.devices = [f"{self.name}-{device}" for device in range(slots // shares)]
        self.slots = [
            f"{device}.{share}" if shares > 1 else device for device in self.devices for share in range(shares)
        ]
        """As the master calls them: shares of the devices, where its pool divides those."""
        self.rng = random.Random(f"{world.seed} {self.name}")
        self.directory: Path = world.folder / self.name
        self.directory.mkdir()
        self.tasks: dict[str, Task] = {}
        self.life = 1
        self.disk_full = 0
        """How many more appends to a spool fail."""
        self.key = ""
        self.agent: Agent | None = None
        self._agents = 0

    def keys(self) -> Any:
        """Where its agent has its key from."""
        return Keys(self.key, self.name)

    @property
    def keeper(self) -> Node:
        """The machine whose agent watches the tasks that run here."""
        return self

    def runtime(self) -> Any:
        """What starts the tasks of its agent."""
        return SimRuntime(self)

    def introduced(self, hello: Hello, table: TaskTable) -> Hello:
        """What its agent says first."""
        return hello

    def connection(self, end: Any) -> Any:
        """The agent's end of a connection."""
        return end

    def clock(self) -> float:
        """The wall clock of this machine."""
        return self.world.clock(self.name)

    def start(self) -> None:
        """Start an agent."""
        if self.agent is None or not self.agent.process.alive:
            self._agents += 1
            self.world.note("starts", self.name, self._agents)
            self.agent = Agent(self, self._agents)
            self.agent.start()

    def begin(self, launch: Launch) -> Task:
        """Start a task's launcher."""
        task = self.make(launch)
        task.launcher.start()
        self.world.note("runs", self.name, launch.allocation_id, launch.info.latest_checkpoint is not None)
        return task

    def make(self, launch: Launch) -> Task:
        """Make a task; its launcher is not started yet."""
        self.world.promises.begins(self, launch)
        directory = TaskDir(self.directory / launch.allocation_id)
        directory.root.mkdir()
        directory.spool.mkdir()
        directory.token.write_text(launch.task_token, encoding="ascii")
        task = self.task_of(launch, directory)
        self.tasks[launch.allocation_id] = task
        return task

    def task_of(self, launch: Launch, directory: TaskDir) -> Task:
        """Return the task of a launch."""
        return Task(self, launch, directory, Launcher(self, launch, directory), self.life)

    def processes(self) -> list[Process]:
        """All living processes of this machine."""
        found = [] if self.agent is None else [self.agent.process]
        for task in self.tasks.values():
            found += [task.launcher.process, task.launcher.trial.process]
        return [process for process in found if process.alive]

    def restart(self) -> None:
        """The power fails; the agent comes back with the machine."""
        self.life += 1
        for process in self.processes():
            process.kill()
