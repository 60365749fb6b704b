"""Masters: the real services on the real store, with a thin layer in place of the web, and what happens to them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from detlab.errors import AuthError, DetlabError, NotFound
from detlab.schemas.jobwire import JobUpdate, QuotaRequest, QuotaTo
from detlab.schemas.taskwire import CreateTask
from detlab.schemas.wire import (
    AgentMessage,
    Arrival,
    CommitCheckpoint,
    CreateExperiment,
    EnrolRequest,
    Hello,
    Launch,
    RecordBatch,
    SteerSearch,
)
from detlab.schemas.wire.storage import Bookmark, CollectReport, GcRequest
from detlab_hub.services import AgentCaller, Caller, EnrolCaller, Services, Settings, TaskCaller
from detlab_hub.services.admission.quotas import Quotas
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.agents.nodes import Nodes
from detlab_hub.services.base.limits.model import PerUserLimits
from detlab_hub.services.checkpoints.collecting import Collecting
from detlab_hub.services.checkpoints.removals import Removals
from detlab_hub.services.cluster.cluster import Cluster
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.steering import SearchSteering
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.ingest.tokens import Tokens
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.queue.queue import Queue
from detlab_hub.services.usertasks.collection_tasks import CollectionTasks
from detlab_hub.store import InlineExecutor, ProcessIdentity, Store
from detlab_hub.store.errors import LeaseHeld, StoreError
from detlab_hub.store.groups import QueuedWrite
from detlab_hub.store.writer import StoreCall
from detlab_hub.web.base import error_view, status_of
from detlab_hub.web.cluster.nodes import DrainRequest
from simulation.loop import Process
from simulation.machines.network import End, Reply, Request

if TYPE_CHECKING:
    from simulation.world import World

HEALTH_PERIOD = 2.0
LEASE_TTL = 10.0
SLOW_DISK = 3
"""Every fifth seed, from this one on, has writes that wait for each other."""
_AGENT_MESSAGE: TypeAdapter[Any] = TypeAdapter(AgentMessage)
_log = logging.getLogger("simulation")


class MasterDied(BaseException):
    """The process ended inside a database call."""


@dataclass
class Doom:
    """At which commit a master dies, and how."""

    kind: str
    commits: int


class Writer(InlineExecutor):
    """The store's executor: no thread; commits are watched, and may be the last thing that happens.

    In some seeds the disk is slow: writes wait, and those that wait together are committed together.
    """

    def __init__(self, master: Master) -> None:
        self._master = master
        self._last = 0.0
        self._limited = False
        self._slow = master.world.seed % 5 == SLOW_DISK
        self._held: list[tuple[Callable[..., Any], QueuedWrite]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a read or a write."""
        if not self._master.process.alive:
            raise MasterDied
        writes = isinstance(fn, StoreCall) and fn.writes
        # A caller that awaits hears of it a little later, as from a thread; what is written, in its order.
        awaited = isinstance(fn, StoreCall) and fn.awaited
        if writes and awaited and self._slow:
            return self._hold(fn, QueuedWrite(*args))
        future = self._write(fn, *args) if writes else super().submit(fn, *args, **kwargs)
        return self._later(future, in_order=writes) if awaited else future

    def _hold(self, alone: Callable[..., Any], write: QueuedWrite) -> Future[Any]:
        """Let a write wait for the disk, and others with it."""
        told: Future[Any] = Future()
        write.future.add_done_callback(lambda done: _copy(self._later(done, in_order=True), told))
        self._held.append((alone, write))
        if len(self._held) == 1:
            delay = 0.1 * self._master.world.thread_rng.random()
            self._master.process.call_later(delay, self._write_held)
        return told

    def _write_held(self) -> None:
        """Write what waits, several as the store's own writer would."""
        held, self._held = self._held, []
        writes = [write for _, write in held if write.future.set_running_or_notify_cancel()]
        with contextlib.suppress(MasterDied):
            if len(writes) > 1:
                assert self._master.store is not None
                self._master.world.note("writes together", self._master.name, len(writes))
                self._master.world.promises.checks["writes in groups"] += len(writes)
                self._write(self._master.store._write_together, writes[0], iter(writes[1:]))
                self._note_full(*(write.future for write in writes))
            elif writes:
                _copy(self._write(held[0][0], writes[0].fn), writes[0].future)

    def _later(self, done: Future[Any], *, in_order: bool) -> Future[Any]:
        process = self._master.process
        loop = process.loop
        at = loop.time() + 0.003 * self._master.world.thread_rng.random()
        if in_order:
            at = self._last = max(at, self._last + 1e-6)
        future: Future[Any] = Future()

        def hand_over() -> None:
            error = done.exception()
            if error is None:
                future.set_result(done.result())
            else:
                future.set_exception(error)

        process.call_later(at - loop.time(), hand_over)
        return future

    def _write(self, fn: Callable[..., Any], *args: Any) -> Future[Any]:
        doom = self._master.doomed()
        if doom == "master_killed_before_a_commit":
            self._master.die(doom)
            raise MasterDied
        torn = doom == "master_killed_in_a_torn_commit"
        before = self._master.world.wal_size() if torn else 0
        if torn:
            self._leave_journal()
        self._limit_pages()
        future = super().submit(fn, *args)
        committed = future.exception() is None and self._master.store is not None and self._master.store.healthy
        if committed:
            self._master.world.promises.committed(self._master)
        self._note_full(future)
        if torn and self._master.world.wal_size() <= before + 1:
            return future  # it wrote nothing new that could be torn: the next one will
        if doom is not None and committed:
            self._master.die(doom)
            if torn:
                self._master.world.tear(before)
            raise MasterDied
        return future

    def _note_full(self, *futures: Future[Any]) -> None:
        """A full disk is a fault from when a write fails for it."""
        world = self._master.world
        if world.database_full and not world.database_found_full and any(map(_found_no_room, futures)):
            world.database_found_full = True
            world.faults.count("disk_full_database")

    def _limit_pages(self) -> None:
        """While the disk is full SQLite itself finds no room for another page, and says SQLITE_FULL."""
        store, full = self._master.store, self._master.world.database_full
        if store is None or full == self._limited:
            return
        self._limited = full
        pages = self._pragma("page_count") if full else 1 << 30
        self._pragma(f"max_page_count={pages}")

    def _leave_journal(self) -> None:
        """What is written next stays in the journal: SQLite puts into the database only what has reached the disk, and
        of this the end will not."""
        self._pragma("wal_autocheckpoint=0")

    def _pragma(self, text: str) -> Any:
        assert self._master.store is not None
        with self._master.store._connected() as connection:
            return connection.connection.cursor().execute(f"PRAGMA {text}").fetchone()[0]


def _found_no_room(done: Future[Any]) -> bool:
    """Whether a write failed with SQLITE_FULL, whatever that was wrapped in."""
    error = done.exception() if done.done() and not done.cancelled() else None
    seen: list[BaseException] = []  # what several writes failed with may be wrapped in a circle
    while error is not None and error not in seen:
        if isinstance(error, sqlite3.Error) and error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


def _copy(done: Future[Any], to: Future[Any]) -> None:
    """Let one future be what another is, or comes to be."""

    def copy(done: Future[Any]) -> None:
        if to.cancelled():
            return
        if (error := done.exception()) is None:
            to.set_result(done.result())
        else:
            to.set_exception(error)

    done.add_done_callback(copy)


class Master:
    """One life of a master."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"master{number}"
        self.process = Process(world.loop, self.name, "master")
        self.pid = 10_000 + number
        self.doom: Doom | None = None
        self.store: Store | None = None
        self.services: Services | None = None
        world.living_pids.add(self.pid)
        self.process.at_death.append(lambda: world.living_pids.discard(self.pid))

    def start(self) -> None:
        """Begin."""
        self.process.spawn(self._run())

    async def _run(self) -> None:
        """What `detlab_hub.app` does, without Tornado and the Hub."""
        here = ProcessIdentity.current()
        identity = ProcessIdentity(here.boot, here.namespace, self.pid, 1)
        while self.store is None:
            try:
                self.store = Store.open(
                    self.world.db_url,
                    holder=self.name,
                    clock=self.clock,
                    lease_ttl=LEASE_TTL,
                    writer=Writer(self),
                    process=identity,
                )
            except LeaseHeld:
                await asyncio.sleep(1.0)
            except StoreError:
                self.exit("the database cannot be opened")
                return
        self.world.note("serves", self.name, self.store.epoch)
        self.world.large_faults.serves(self)
        self.world.promises.check_all()
        self.services = Services(
            self.store,
            settings=self.world.settings,
            clock=self.clock,
            cpu_clock=self.clock,  # the processor's own would differ from run to run
            draw=random.Random(self.world.seed),
            elastic=self.world.elastic(),
        )
        try:
            await self.services.start()
        except DetlabError as error:
            self.exit(f"cannot start: {error.message[:60]}")
            return
        self.world.network.listen(self.process, self.serve, self.welcome)
        while self.services[Cluster].healthy():
            await asyncio.sleep(HEALTH_PERIOD)
        self.exit("its database is lost")

    def clock(self) -> float:
        """The wall clock of its machine."""
        return self.world.clock("master")

    def exit(self, why: str) -> None:
        """End by itself."""
        self.world.note("exits", self.name, why)
        self.process.kill()

    def close(self) -> None:
        """Let go of the files, as the kernel does for a dead process."""
        store, self.store = self.store, None
        if store is not None:
            if store._connection is not None:
                store._connection.close()
            store._write_engine.dispose()
            store._read_engine.dispose()

    # --- faults

    def doomed(self) -> str | None:
        """Whether this commit is the last."""
        if self.doom is None:
            return None
        self.doom.commits -= 1
        return self.doom.kind if self.doom.commits <= 0 else None

    def die(self, kind: str) -> None:
        """Be killed inside a commit."""
        self.doom = None
        self.world.faults.count(kind)
        self.process.kill()

    # --- the door: what Tornado and the handlers do

    async def serve(self, request: Request) -> Reply:
        """Answer a request as the web layer would: who asks, what is meant, one call, and the table of statuses."""
        assert self.services is not None
        try:
            caller = await self._caller(request)
            result = await self._route(request, caller)
        except Exception as error:  # as the handlers do: the table of statuses judges each
            status, view = status_of(error), error_view(error)
            if status == 500:
                self.world.loop.errors.append(f"{self.name}: {request.path}: {error!r}")
            self.world.note("answers", self.name, request.path, status, view.code)
            return status, view.model_dump_json().encode()
        self.world.promises.answered(self, request, caller, result)
        self.world.note("answers", self.name, request.path, 200)
        return (204, b"") if result is None else (200, as_json(result))

    async def _caller(self, request: Request) -> Any:
        assert self.services is not None
        if request.bearer.startswith("user-"):
            return self.world.person(request.bearer.removeprefix("user-"))
        caller = await self.services[Tokens].resolve(request.bearer)
        if caller is None:
            raise AuthError("this token is unknown or has expired")
        return caller

    async def _route(self, request: Request, caller: Any) -> Any:
        services = self.services
        assert services is not None
        match request.method, request.path.split("/"), caller:
            case "POST", ["experiments"], Caller():
                return await services[Experiments].create(caller, CreateExperiment.model_validate_json(request.body))
            case "GET", ["experiments", number], Caller():
                return await services[Experiments].get(caller, int(number))
            case "POST", ["experiments", number, "search"], Caller():
                return await services[SearchSteering].steer(
                    caller, int(number), SteerSearch.model_validate_json(request.body)
                )
            case _, ["experiments", number, "gc"], Caller():
                return await self._collection(request, caller, int(number))
            case _, ["checkpoints", uuid, *_], Caller():
                return await self._checkpoints(request, caller, uuid)
            case "POST", ["experiments", number, action], Caller():
                steer = {"pause": services[Experiments].pause, "activate": services[Experiments].activate}[action]
                return await steer(caller, int(number))
            case "POST", ["tasks"], Caller():
                return await services.start_task(caller, CreateTask.model_validate_json(request.body))
            case _, ["task", *_], TaskCaller():
                return await self._of_task(request, caller)
            case "POST", ["agents", "enrol"], EnrolCaller():
                return await services[Agents].enrol(caller, EnrolRequest.model_validate_json(request.body))
            case "POST", ["agents", "records"], AgentCaller():
                batch = RecordBatch.model_validate_json(request.body)
                return await services[Agents].records(caller, request.query["allocation_id"], batch)
            case _, [("agents" | "jobs" | "queue" | "quotas") as where, *_], Caller():
                return await (self._nodes if where == "agents" else self._queue)(request, caller)
        raise NotFound(f"no route {request.method} {request.path}")

    async def _of_task(self, request: Request, caller: TaskCaller) -> Any:
        services = self.services
        assert services is not None
        match request.method, request.path.split("/"):
            case "POST", ["task", "records"]:
                return await services[Tasks].records(
                    caller, RecordBatch.model_validate_json(request.body), int(request.query.get("node", "0"))
                )
            case "POST", ["task", "rendezvous"]:
                arrival = Arrival.model_validate_json(request.body)
                return await services[Tasks].rendezvous(caller, arrival, float(request.query["timeout_seconds"]))
            case "GET", ["task", "preempt"]:
                return await services[Tasks].preempt(caller, float(request.query["timeout_seconds"]))
            case "POST", ["task", "preempt", "ack"]:
                return await services[Tasks].ack_preempt(caller)
            case "POST", ["task", "checkpoints"]:
                commit = CommitCheckpoint.model_validate_json(request.body)
                return await services[Tasks].commit_checkpoint(caller, commit)
            case "GET", ["task", "checkpoints", uuid]:
                return await services[Tasks].get_checkpoint(caller, uuid)
            case "GET", ["task", "collection"]:
                return await services[CollectionTasks].list(caller)
            case "POST", ["task", "collection"]:
                report = CollectReport.model_validate_json(request.body)
                return await services[CollectionTasks].report(caller, report)
            case "POST", ["task", "token"]:
                return await services[Tasks].renew_token(caller)
        raise NotFound(f"no route {request.method} {request.path}")

    async def _collection(self, request: Request, caller: Caller, number: int) -> Any:
        services = self.services
        assert services is not None
        if request.method == "GET":
            return await services[Collecting].preview(caller, number)
        return await services[Collecting].apply(caller, number, GcRequest.model_validate_json(request.body))

    async def _checkpoints(self, request: Request, caller: Caller, uuid: str) -> Any:
        services = self.services
        assert services is not None
        match request.method, request.path.split("/")[2:]:
            case "DELETE", []:
                return await services[Removals].delete(caller, uuid, now="now" in request.query)
            case "POST", ["undelete"]:
                return await services[Removals].undelete(caller, uuid)
            case "PUT", ["bookmark"]:
                return await services[Collecting].bookmark(caller, uuid, Bookmark.model_validate_json(request.body))
            case "DELETE", ["bookmark"]:
                return await services[Collecting].unbookmark(caller, uuid)
        raise NotFound(f"no route {request.method} {request.path}")

    async def _queue(self, request: Request, caller: Caller) -> Any:
        services = self.services
        assert services is not None
        match request.method, request.path.split("/"):
            case "GET", ["jobs"]:
                return await services[Jobs].list(caller)
            case "POST", ["jobs", number]:
                return await services[Jobs].update(caller, number, JobUpdate.model_validate_json(request.body))
            case "GET", ["jobs", number, "why"]:
                return await services[Jobs].why(caller, number)
            case "GET", ["queue"]:
                return await services[Queue].view(caller)
            case "GET", ["quotas"]:
                return await services[Quotas].list(caller)
            case "PUT", ["quotas"]:
                return await services[Quotas].put(caller, QuotaRequest.model_validate_json(request.body))
            case "DELETE", ["quotas"]:
                return await services[Quotas].remove(caller, QuotaTo.model_validate(request.query))
        raise NotFound(f"no route {request.method} {request.path}")

    async def _nodes(self, request: Request, caller: Caller) -> Any:
        services = self.services
        assert services is not None
        match request.method, request.path.split("/"):
            case "GET", ["agents"]:
                return await services[Agents].list(caller)
            case "POST", ["agents", name, "enable"]:
                return await services[Nodes].enable(caller, name)
            case "POST", ["agents", name, "disable"]:
                return await services[Nodes].disable(caller, name)
            case "POST", ["agents", name, "drain"]:
                asked = DrainRequest.model_validate_json(request.body)
                return await services[Nodes].drain(caller, name, asked.trials, asked.deadline)
            case "POST", ["agents", name, "slots", slot, ("enable" | "disable") as action]:
                return await services[Nodes].set_slot(caller, name, slot, enabled=action == "enable")
        raise NotFound(f"no route {request.method} {request.path}")

    def welcome(self, end: End, token: str) -> None:
        """An agent has connected: what `web.agents.Connect` does with its messages, one after the other."""
        Door(self, end, token).open()


class Door:
    """One agent's connection at the master."""

    def __init__(self, master: Master, end: End, token: str) -> None:
        self._master, self._end, self._token = master, end, token
        self._session: Any = None
        self._caller: AgentCaller | None = None
        self._inbox: asyncio.Queue[str | None] = asyncio.Queue()

    def open(self) -> None:
        """Listen."""
        self._end.on_message = self._inbox.put_nowait
        self._master.process.spawn(self._serve())

    async def _serve(self) -> None:
        services = self._master.services
        assert services is not None
        try:
            caller = await services[Tokens].resolve(self._token)
            if not isinstance(caller, AgentCaller):
                raise AuthError("no agent has this key")  # its instance was struck off the list
            self._caller = caller
            while (message := await self._inbox.get()) is not None:
                parsed = _AGENT_MESSAGE.validate_json(message)
                self._master.world.note("hears", self._master.name, caller.agent_id, parsed.type)
                if self._session is not None:
                    await self._session.receive(parsed)
                elif isinstance(parsed, Hello):
                    self._session = await services[Agents].connect(caller, parsed, self._say)
                    self._session.on_hang_up(functools.partial(self._end.close, 4004))
        except DetlabError as error:
            self._master.world.note("hangs up", self._master.name, error.code)
            self._end.close(4003, error.message[:120])
        if self._session is not None:
            self._session.closed()

    def _say(self, message: Any) -> None:
        world = self._master.world
        world.note("tells", self._master.name, message.type, getattr(message, "allocation_id", ""))
        if isinstance(message, Launch):
            world.promises.launch_sent(self._master, message)
        self._end.say(message.model_dump_json())


def as_json(result: Any) -> bytes:
    """A model, or a list of models, as it is sent."""
    if isinstance(result, list):
        return b"[" + b",".join(as_json(one) for one in result) + b"]"
    body: str = result.model_dump_json()
    return body.encode()


# --- the database


def make_database(folder: Path, store_of: Callable[[str], Store]) -> Path:
    """Make an empty database once; every seed begins with a copy."""
    path = folder / "template.sqlite"
    store_of(f"sqlite:///{path}").close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def copy_torn(source: Path, target: Path, cut_to: int) -> None:
    """What is on the disk after a power cut in the middle of writing the last transaction."""
    shutil.copyfile(source, target)
    journal = source.with_name(source.name + "-wal")
    copied = target.with_name(target.name + "-wal")
    if journal.exists():
        shutil.copyfile(journal, copied)
        with copied.open("r+b") as file:
            file.truncate(cut_to)


def default_settings(folder: Path) -> Settings:
    """The operator's decisions, with delays that fit a simulated minute."""
    return Settings(
        state_dir=folder,
        bundles_dir=folder / "bundles",
        default_checkpoint_storage={"type": "directory", "container_path": str(folder / "checkpoints")},
        agent_suspect_after=4.0,
        agent_reconnect_wait=8.0,
        heartbeat_period=3.0,
        task_token_ttl=120.0,
        preemption_timeout_default=20.0,
        tick=2.0,
        gc_delay=1e9,
        limits=PerUserLimits(min_priority=1),
    )
