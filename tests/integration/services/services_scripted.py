"""A world without processes: the real services on a real database, scripted agents and tasks, a clock by hand.

The agents speak the agent protocol through `connect` and `receive`, the tasks the task API; both may be told to
say everything twice. `Flaw` makes the store fail before or after a chosen commit: the world then goes on with
new services on the same database, as after `kill -9` of the master.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detlab.errors import Conflict, StaleAttempt
from detlab.schemas.checkpoint_ids import checkpoint_id
from detlab.schemas.wire import (
    CheckpointFile,
    CheckpointGoneRecord,
    CommitCheckpoint,
    CreateExperiment,
    EarlyExitRecord,
    ExitAck,
    ExperimentView,
    Heartbeat,
    HeldTask,
    Hello,
    Kill,
    Launch,
    LogRecord,
    MasterMessage,
    MetricsRecord,
    ProgressRecord,
    Record,
    RecordAck,
    RecordBatch,
    SlotView,
    TaskExited,
    TaskStarted,
    Welcome,
)
from detlab.schemas.wire.projects import CreateProject
from detlab.schemas.wire.workspaces import CreateWorkspace, MemberRequest, WorkspaceView
from detlab_hub.services import AgentCaller, Caller, Services, Settings, TaskCaller
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.base.limits.model import PerUserLimits
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.ingest.tokens import Tokens
from detlab_hub.services.projects.members import MembersOfWorkspaces
from detlab_hub.services.projects.projects import Projects
from detlab_hub.services.projects.workspaces import Workspaces
from detlab_hub.store import InlineExecutor, ProcessIdentity, Store

ALICE = Caller("alice")
BOB = Caller("bob")
ROOT = Caller("root", admin=True)
DIGEST = "sha256:" + hashlib.sha256(b"x").hexdigest()


class CrashError(BaseException):
    """The master died here."""


@dataclass
class Flaw:
    """Die at write number `at` (from 1), before it or after its commit."""

    at: int
    after_commit: bool


class FlawedStore:
    """A store whose process dies at one of its writes, and stays dead."""

    def __init__(self, store: Store, flaw: Flaw | None, count: list[int]) -> None:
        self._store = store
        self._flaw = flaw
        self._count = count
        self._dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, fn: Callable[[Any], Any]) -> Any:
        if self._dead:
            raise CrashError
        self._count[0] += 1
        if self._flaw is None or self._count[0] != self._flaw.at:
            return await self._store.write(fn)
        self._dead = True
        if self._flaw.after_commit:
            await self._store.write(fn)
        raise CrashError


# --- what tasks do

Op = tuple[Any, ...]
Script = Callable[[Launch], Iterator[Op]]


def report(step: int, **metrics: Any) -> Op:
    return ("metrics", "validation", step, metrics)


def curve(launch: Launch, step: int) -> float:
    """A seeded learning curve: the same for a trial whatever happens around it."""
    rng = random.Random(launch.info.trial_seed)
    return rng.random() + 1.0 / step


def training(length: int, *, save_every: int = 2, time_metric: str = "batches") -> Script:
    """Report, save and poll at every step, from the checkpoint on."""

    def script(launch: Launch) -> Iterator[Op]:
        start = yield ("resume",)
        for step in range(start + 1, length + 1):
            yield report(step, loss=curve(launch, step), **{time_metric: step})
            if step % save_every == 0:
                yield ("save", step)
            left = yield ("poll",)
            if left:
                yield ("save", step)
                yield ("exit", 0)
        yield ("exit", 0)

    return script


def deaf(length: int) -> Script:
    """Report at every step, never poll, and go on until SIGTERM."""

    def script(launch: Launch) -> Iterator[Op]:
        for step in range(1, length + 1):
            yield report(step, loss=float(launch.info.trial_index), batches=step)
        while True:
            yield ("wait",)

    return script


@dataclass
class ScriptedTask:
    """One task: carries out its script, one operation per turn, and repeats an operation that failed."""

    world: World
    launch: Launch
    ops: Iterator[Op]
    caller: TaskCaller
    seqs: dict[str, int] = field(default_factory=lambda: {"metrics": 0, "logs": 0})
    op: Op | None = None
    prepared: Any = None
    exit_code: int | None = None
    exited: bool = False
    reason: str = ""
    message: str = ""
    acked: bool = False
    killed: Kill | None = None
    heeds_kill: bool = True
    answer: Any = None

    async def turn(self) -> None:
        if self.exited:
            return
        if self.killed is not None and self.heeds_kill:
            self._exit(-15)
            return
        if self.op is None:
            try:
                self.op = self.ops.send(self.answer) if self.answer is not None else next(self.ops)
            except StopIteration:
                self.op = ("exit", 0)
            self.answer = None
            self.prepared = self._prepare(self.op)
        try:
            for _ in range(2 if self.world.twice else 1):
                await self._do(self.op)
        except StaleAttempt:
            self.world.stale += 1
            self._exit(1)
            return
        self.op = None

    def _prepare(self, op: Op) -> Any:
        """What an operation sends; the same when it is repeated."""
        match op:
            case ("metrics", group, step, metrics):
                return MetricsRecord(
                    seq=self._next("metrics"), time=self.world.now, group=group, steps_completed=step, metrics=metrics
                )
            case ("progress", value):
                return ProgressRecord(seq=self._next("metrics"), time=self.world.now, progress=value)
            case ("early_exit", reason):
                return EarlyExitRecord(seq=self._next("metrics"), time=self.world.now, reason=reason)
            case ("gone", gone, instead):
                return CheckpointGoneRecord(seq=self._next("metrics"), time=self.world.now, gone=gone, instead=instead)
            case ("log", rank, text):
                return LogRecord(seq=self._next("logs"), time=self.world.now, rank=rank, text=text)
            case ("save", step):
                return CommitCheckpoint(
                    uuid=self.world.next_uuid(self.caller.trial_id or 0),
                    steps_completed=step,
                    files={"model.pt": CheckpointFile(size=1, digest=DIGEST)},
                    manifest_digest=DIGEST,
                )
            case _:
                return None

    def _next(self, stream: str) -> int:
        self.seqs[stream] += 1
        return self.seqs[stream]

    async def _do(self, op: Op) -> None:
        tasks = self.world.services[Tasks]
        match op:
            case ("resume",):
                uuid = self.launch.info.latest_checkpoint
                self.answer = 0 if uuid is None else (await tasks.get_checkpoint(self.caller, uuid)).steps_completed
            case ("metrics", *_) | ("progress", *_) | ("early_exit", *_) | ("gone", *_):
                await self.send("metrics", self.prepared)
            case ("log", *_):
                await self.send("logs", self.prepared)
            case ("save", _):
                await tasks.commit_checkpoint(self.caller, self.prepared)
            case ("poll",):
                self.answer = await self._poll()
            case ("wait",):
                pass
            case ("exit", code):
                self._exit(code)
            case ("end", reason, message):
                self.reason, self.message = reason, message
                self._exit(None)

    async def send(self, stream: str, *records: Record) -> RecordAck:
        batch = RecordBatch(stream=stream, records=list(records))
        ack = await self.world.services[Tasks].records(self.caller, batch, self.launch.info.container_rank)
        self.world.refused += ack.refused
        return ack

    async def _poll(self) -> bool:
        reply = await self.world.services[Tasks].preempt(self.caller, 0)
        if reply.preempt:
            await self.world.services[Tasks].ack_preempt(self.caller)
            self.acked = True
        return reply.preempt

    def _exit(self, code: int | None) -> None:
        self.exited, self.exit_code = True, code


@dataclass
class ScriptedAgent:
    """An agent with fake slots and fake tasks."""

    world: World
    name: str
    slots: int
    serves_user: str | None = None
    address: str = "127.0.0.1"
    process: str = "one"
    uids: dict[str, int] | None = field(default_factory=dict)
    gpus: dict[str, float] | None = None
    """What it measures of its slots; None: nothing."""
    tasks: dict[tuple[str, int], ScriptedTask] = field(default_factory=dict)
    inbox: deque[MasterMessage] = field(default_factory=deque)
    session: Any = None
    online: bool = True
    launches: list[tuple[str, int]] = field(default_factory=list)
    started: set[tuple[str, int]] = field(default_factory=set)

    def hello(self) -> Hello:
        return Hello(
            agent_id=self.name,
            process=self.process,
            serves_user=self.serves_user,
            address=self.address,
            uids=self.uids,
            slots=[SlotView(id=f"{self.name}-{number}") for number in range(self.slots)],
            tasks=[
                HeldTask(allocation_id=key[0], run=key[1], exited=task.exited, exit_code=task.exit_code)
                for key, task in self.tasks.items()
            ],
        )

    async def connect(self) -> None:
        self.inbox.clear()
        self.session = await self.world.services[Agents].connect(
            AgentCaller(self.name), self.hello(), self.inbox.append
        )
        self.online = True

    def drop(self) -> None:
        """Lose the connection."""
        if self.session is not None:
            self.session.closed()
        self.session, self.online = None, False
        self.inbox.clear()

    async def turn(self) -> None:
        for _key, task in list(self.tasks.items()):
            await task.turn()
        if not self.online:
            return
        if self.session is None:
            await self.connect()
        await self._say(Heartbeat(time=self.world.now, gpus=self.gpus))
        while self.inbox:
            message = self.inbox[0]
            for _ in range(2 if self.world.twice else 1):
                await self._hear(message)
            if self.inbox and self.inbox[0] is message:
                self.inbox.popleft()
        for key in list(self.tasks):
            task = self.tasks[key]
            if key not in self.started:
                await self._say(TaskStarted(allocation_id=key[0], run=key[1]))
                self.started.add(key)
            if task.exited:
                await self._say(
                    TaskExited(
                        allocation_id=key[0],
                        run=key[1],
                        exit_code=task.exit_code,
                        reason=task.reason,
                        message=task.message,
                    )
                )

    async def _say(self, message: Any) -> None:
        for _ in range(2 if self.world.twice else 1):
            if self.session is None:
                return
            try:
                await self.session.receive(message)
            except Conflict:
                self.session = None

    async def _hear(self, message: MasterMessage) -> None:
        match message:
            case Launch():
                await self._launch(message)
            case Kill():
                task = self.tasks.get((message.allocation_id, message.run))
                if task is not None:
                    task.killed = message
            case ExitAck():
                self.tasks.pop((message.allocation_id, message.run), None)
            case Welcome():
                for (allocation_id, _), task in self.tasks.items():
                    if allocation_id in message.kill:
                        task.killed = Kill(allocation_id=allocation_id, run=0)
            case Heartbeat():
                pass

    async def _launch(self, launch: Launch) -> None:
        key = (launch.allocation_id, launch.run)
        if key in self.tasks:
            return
        self.launches.append(key)
        caller = await self.world.services[Tokens].resolve(launch.task_token)
        assert isinstance(caller, TaskCaller)
        ops = self.world.script(launch)
        self.tasks[key] = ScriptedTask(self.world, launch, ops, caller)


def seen_storage(folder: Path) -> dict[str, Any]:
    """Return a default `checkpoint_storage` of which the master sees, and removes, the files itself."""
    root = folder / "checkpoints"
    root.mkdir(exist_ok=True)
    return {"default_checkpoint_storage": {"type": "shared_fs", "host_path": str(root)}}


class World:
    """Services, agents and a clock."""

    def __init__(self, url: str, folder: Path, *, script: Script, flaw: Flaw | None = None, **settings: Any) -> None:
        self.url = url
        self.now = 1_000_000.0
        self.script = script
        self.flaw = flaw
        self.writes = [0]
        self.twice = False
        self.stale = 0
        self.crashes = 0
        self.refused: list[Any] = []
        settings.setdefault("limits", PerUserLimits(min_priority=1))
        directory = {"type": "directory", "container_path": str(folder / "checkpoints")}
        settings.setdefault("default_checkpoint_storage", directory)
        self.settings = Settings(state_dir=folder, bundles_dir=folder / "bundles", **settings)
        self.agents: dict[str, ScriptedAgent] = {}
        self._uuids = 0
        self._boots = 0
        self.services: Services
        self.store: Store

    def clock(self) -> float:
        return self.now

    def next_uuid(self, trial_id: int) -> str:
        """The id of a trial's next checkpoint; later ones sort behind it, and a repeated run makes the same ones."""
        self._uuids += 1
        return checkpoint_id(self._uuids << 80, trial_id)

    async def boot(self) -> None:
        """Start a master on the database; one that is there is taken for dead."""
        self._boots += 1
        here = ProcessIdentity.current()
        dead = ProcessIdentity(here.boot, here.namespace, 2**22 + os.getpid() % 1000, 1)
        self.store = Store.open(
            self.url, holder=f"master {self._boots}", clock=self.clock, writer=InlineExecutor(), process=dead
        )
        flaw, self.flaw = self.flaw, None
        flawed: Any = FlawedStore(self.store, flaw, self.writes)
        self.services = Services(flawed, settings=self.settings, clock=self.clock, draw=random.Random(7))
        self.services.context.started_at = self.now
        try:
            await self.services.recover()
        except CrashError:
            self.crashes += 1
            self.store.close(release=False)
            await self.boot()

    async def reboot(self) -> None:
        """The master was killed: everything in its memory is gone, its connections too."""
        self.crashes += 1
        self.store.close(release=False)
        for agent in self.agents.values():
            agent.session = None
            agent.inbox.clear()
        await self.boot()

    def close(self) -> None:
        self.store.close()

    async def add_agent(
        self,
        name: str = "node",
        slots: int = 1,
        serves_user: str | None = None,
        *,
        address: str = "127.0.0.1",
        process: str = "one",
    ) -> ScriptedAgent:
        agent = ScriptedAgent(self, name, slots, serves_user, address, process)
        self.agents[name] = agent
        await agent.connect()
        return agent

    async def submit(self, config: dict[str, Any], caller: Caller = ALICE, **more: Any) -> ExperimentView:
        reply = await self.services[Experiments].create(caller, CreateExperiment(config=config, **more))
        assert reply.experiment is not None
        return reply.experiment

    async def workspace(self, name: str, *projects: str, caller: Caller = ALICE, **roles: Any) -> WorkspaceView:
        """Make a workspace with projects; `bob="editor"` makes a user a member, `at_vision="viewer"` a group."""
        made = await self.services[Workspaces].create(caller, CreateWorkspace(name=name))
        for project in projects:
            await self.services[Projects].create(caller, str(made.id), CreateProject(name=project))
        for who, role in roles.items():
            kind = "group" if who.startswith("at_") else "user"
            request = MemberRequest(kind=kind, name=who.removeprefix("at_"), role=role)
            await self.services[MembersOfWorkspaces].put(caller, str(made.id), request)
        return made

    async def step(self, seconds: float = 0.5) -> None:
        """One round of everything; a crash is followed by a restart."""
        try:
            await self.services.schedule()
            for agent in self.agents.values():
                await agent.turn()
            self.now += seconds
            await self.services.tick()
        except CrashError:
            await self.reboot()

    async def steps(self, count: int, seconds: float = 0.5) -> None:
        for _ in range(count):
            await self.step(seconds)

    async def until(self, done: Callable[[], Any], limit: int = 2000) -> None:
        """Go on until an async condition holds."""
        for _ in range(limit):
            try:
                if await done():
                    return
            except CrashError:
                await self.reboot()
            await self.step()
        raise AssertionError("the world did not get there")

    async def finish(self, experiment_id: int, limit: int = 2000) -> ExperimentView:
        async def ended() -> bool:
            return (await self.view(experiment_id)).state.terminal

        await self.until(ended, limit)
        return await self.view(experiment_id)

    async def view(self, experiment_id: int) -> ExperimentView:
        return await self.services[Experiments].get(ROOT, experiment_id)

    async def trials(self, experiment_id: int) -> Any:
        items, _ = await self.services[Experiments].trials(ROOT, experiment_id, limit=2000)
        return items


def config(searcher: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A small config."""
    return {
        "name": "test",
        "entrypoint": "true",
        "hyperparameters": {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}},
        "searcher": searcher or {"name": "single", "metric": "loss"},
        "reproducibility": {"experiment_seed": 11},
        "resources": {"slots_per_trial": 1},
        **more,
    }


def asha(trials: int = 8, max_time: int = 9, concurrent: int = 2, **more: Any) -> dict[str, Any]:
    """A small search that stops trials."""
    return {
        "name": "async_halving",
        "metric": "loss",
        "time_metric": "batches",
        "max_time": max_time,
        "num_rungs": 3,
        "divisor": 3,
        "max_trials": trials,
        "max_concurrent_trials": concurrent,
        **more,
    }
