"""One seed: a cluster, a search on it, and everything that can go wrong."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import importlib
import logging
import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from detlab.client.calls import Backoff
from detlab.client.discovery import ClusterAddress
from detlab.client.operations import Submission, submit
from detlab.client.session import Session
from detlab.schemas.wire import Launch
from detlab_hub.core.scheduling import Decision, Snapshot
from detlab_hub.services import Caller, Settings, placement
from detlab_hub.services import master as services
from detlab_hub.store import InlineExecutor, Store, lease, migrate, store
from detlab_hub.store.queries import tokens
from simulation import faults as kinds
from simulation.faults import Faults
from simulation.gang import Ring
from simulation.loop import EPOCH, Process, SimLoop, Stuck, as_thread, block
from simulation.master import Doom, Master, copy_torn, default_settings, make_database
from simulation.network import Network
from simulation.node import AgentPace, Node
from simulation.promises import BrokenPromise, Promises
from simulation.trial import LENGTH, Course, HttpBridge

SLOTS = (2, 1, 1)
TRIALS = 8
FAULTS_END = 16.0
"""Virtual seconds after which nothing new goes wrong."""
PATIENCE = 600.0
"""Virtual seconds in which everything must have ended."""


@dataclass
class Outcome:
    """What became of a seed."""

    seed: int
    problem: str | None
    faults: dict[str, int]
    checks: dict[str, int]
    digest: str
    steps: int
    trials: int
    virtual: float
    trace: list[str] = field(repr=False, default_factory=list)


class World:
    """The cluster of one seed.

    Attributes:
        slots: Of each machine.
        course: How its trials train.
        agent_pace: How its agents keep in touch.
        turns: Callbacks after which it must have ended.
    """

    slots: tuple[int, ...] = SLOTS
    course = Course()
    agent_pace = AgentPace()
    turns = 400_000

    def __init__(self, seed: int, folder: Path, template: Path, *, calm: bool = False) -> None:
        self.seed, self.folder = seed, folder
        self.rng = random.Random(f"world {seed}")
        self.thread_rng = random.Random(f"threads {seed}")
        self.trace: list[str] = []
        self.loop = SimLoop(random.Random(f"turns {seed}"), self.note)
        self.faults = Faults(random.Random(f"faults {seed}"), wanted=self.rng.randrange(18, 30), calm=calm)
        self.network = Network(self.loop, random.Random(f"network {seed}"), self.faults)
        self.calm = calm
        self.living_pids: set[int] = set()
        self.database_full = False
        self.db_path = folder / "db0.sqlite"
        self._databases = 1
        shutil.copyfile(template, self.db_path)
        self.checkpoints = folder / "checkpoints"
        self.settings = self._settings()
        self.promises = self._make_promises()
        self.skew: dict[str, float] = {}
        self.masters: list[Master] = []
        self.nodes = self._make_nodes()
        self.experiment_ids: list[int] = []
        self._rings: dict[str, Ring] = {}

    def _settings(self) -> Settings:
        return default_settings(self.folder)

    def _make_promises(self) -> Promises:
        return Promises(self)

    def _make_nodes(self) -> list[Node]:
        return [Node(self, number, slots) for number, slots in enumerate(self.slots)]

    def ring_of(self, launch: Launch) -> Ring | None:
        """How the ranks of an attempt reach each other; None: it has one node."""
        nodes = len(launch.info.container_addrs)
        if nodes < 2:
            return None
        hangs = random.Random(f"{self.seed} {launch.allocation_id} hangs").random() < 0.5
        return self._rings.setdefault(launch.allocation_id, Ring(nodes, hangs=hangs))

    def person(self, name: str) -> Caller:
        """Who asks, by the name in a person's token."""
        return Caller(name)

    @property
    def db_url(self) -> str:
        """Of the database as it is now."""
        return f"sqlite:///{self.db_path}"

    def note(self, *what: Any) -> None:
        """One line of the trace."""
        self.trace.append(f"{self.loop.time() if hasattr(self, 'loop') else 0:.4f} {' '.join(map(str, what))}")

    def clock(self, machine: str) -> float:
        """The wall clock of a machine."""
        return EPOCH + self.loop.time() + self.skew.get(machine, 0.0)

    # --- the database

    def wal_size(self) -> int:
        """Bytes of the database's journal."""
        path = self.db_path.with_name(self.db_path.name + "-wal")
        return path.stat().st_size if path.exists() else 0

    def tear(self, before: int) -> None:
        """The power fails while the last transaction is written: the next master finds what reached the disk."""
        for other in self.living():
            other.process.kill()  # it has the same power
        after = self.wal_size()
        source, self.db_path = self.db_path, self.folder / f"db{self._databases}.sqlite"
        self._databases += 1
        copy_torn(source, self.db_path, self.rng.randrange(before, after) if after > before else after)
        self.promises.database_moved()

    # --- masters

    def living(self) -> list[Master]:
        """Masters that have not died."""
        return [master for master in self.masters if master.process.alive]

    def start_master(self) -> Master:
        """Start one more."""
        master = Master(self, len(self.masters) + 1)
        self.masters.append(master)
        master.start()
        return master

    async def _supervise(self) -> None:
        """Start a master again when there is none, as the supervisor does."""
        while True:
            for master in self.masters:
                if not master.process.alive:
                    master.close()
            if not self.living():
                await asyncio.sleep(self.rng.choice((0.1, 0.3, 1.0, 4.0)))
                self.start_master()
            await asyncio.sleep(0.5)

    # --- the client

    def _submit(self, key: str, pause: float) -> None:
        """What `det experiment create` does, in a process of its own that never gives up."""
        session = Session(
            ClusterAddress("http://master/services/detlab/", "user-alice", "the simulation"),
            backoff=Backoff(attempts=400, refused=400),
            transport=HttpBridge(self.nodes[0]),
            sleep=lambda seconds: block(asyncio.sleep(seconds)),
        )
        block(asyncio.sleep(pause))
        reply = session.run(submit(Submission(self._config(key), key=key)))
        assert reply.experiment is not None
        known = self.promises.submitted.setdefault(key, reply.experiment.id)
        if known != reply.experiment.id:
            raise BrokenPromise(f"I1: submit {key} made {known} and {reply.experiment.id}")

    def _config(self, key: str) -> dict[str, Any]:
        return _config(self.seed, key)

    def _start_clients(self) -> list[asyncio.Task[Any]]:
        jobs = []
        for name, key, pause in (("a", "search", 0.5), ("b", "small", 3.0), ("c", "small", 3.0)):
            process = Process(self.loop, f"client {name}", "client")
            jobs.append(process.spawn(as_thread(lambda key=key, pause=pause: self._submit(key, pause))))
        return jobs

    # --- the course of things

    async def _conduct(self) -> None:
        self._enrol()
        self.start_master()
        self.loop.world.spawn(self._supervise())
        for node in self.nodes:
            node.start()
        clients = self._start_clients()
        if not self.calm:
            self.loop.world.spawn(self._wreck())
        await self._go_on(clients)
        self.loop.stop()

    async def _go_on(self, clients: list[asyncio.Task[Any]]) -> None:
        """From the first submit to the last look."""
        await asyncio.gather(*clients)
        while self.loop.time() < 1000.0 + PATIENCE and not self._over():
            await asyncio.sleep(1.0)
        self.promises.check_end()

    def _over(self) -> bool:
        waiting = "SELECT count(*) FROM {} WHERE state NOT IN ('COMPLETED','CANCELED','ERROR','TERMINATED')"
        left = sum(self.promises._one(waiting.format(table))[0] for table in ("experiments", "allocations"))
        return left == 0 and not any(node.tasks for node in self.nodes)

    def _enrol(self) -> None:
        setup = Store.open(self.db_url, holder="setup", clock=lambda: EPOCH, lease_ttl=1.0, writer=InlineExecutor())
        for node in self.nodes:
            node.key = setup.write_sync(lambda s, name=node.name: tokens.issue(s, "agent", name, None, EPOCH))
        setup.close()

    # --- what goes wrong

    async def _wreck(self) -> None:
        """Great faults, one after the other and sometimes two at once; small ones are the network's."""
        wanted = self.rng.randrange(5, 9)
        for _ in range(wanted):
            await asyncio.sleep(self.rng.uniform(0.3, 2 * FAULTS_END / wanted))
            await self._great_fault(self.rng.choice(kinds.MASTER if self.rng.random() < 0.45 else kinds.NODE))
        # Enough for every seed, also where little was said.
        while self.faults.total < kinds.LEAST:
            await asyncio.sleep(0.3)
            node = self.rng.choice(self.nodes)
            self.faults.count("partition")
            self.note("partition", node.name, "short")
            self.network.partition(node.name, 0.5)

    async def _great_fault(self, kind: str) -> None:
        if kind in kinds.MASTER:
            await self._master_fault(kind)
        else:
            await self._node_fault(kind, self.rng.choice(self.nodes))

    async def _master_fault(self, kind: str) -> None:
        living = [master for master in self.living() if master.services is not None and not master.process.paused]
        if len(living) != 1 or len(self.living()) != 1:
            return
        master = living[0]
        self.note("fault", kind, master.name)
        match kind:
            case "master_killed_at_an_await":
                self.faults.count(kind)
                master.process.fuse = self.rng.randrange(1, 60)
            case "master_paused_past_its_lease":
                self.faults.count(kind)
                self.loop.world.spawn(self._pause_master(master))
            case "disk_full_database":
                self.faults.count(kind)
                self.loop.world.spawn(self._fill_disk())
            case _:
                master.doom = Doom(kind, self.rng.randrange(1, 8))

    async def _pause_master(self, master: Master) -> None:
        master.process.pause()
        await asyncio.sleep(self.rng.uniform(0.0, 5.0))
        self.start_master()
        await asyncio.sleep(self.rng.uniform(11.0, 15.0))
        self.note("continues", master.name)
        master.process.resume()

    async def _fill_disk(self) -> None:
        self.database_full = True
        await asyncio.sleep(self.rng.uniform(1.0, 6.0))
        self.database_full = False

    async def _node_fault(self, kind: str, node: Node) -> None:
        tasks = [
            task for task in node.tasks.values() if task.launcher.process.alive and task.launcher.trial.process.alive
        ]
        task = self.rng.choice(tasks) if tasks else None
        self.note("fault", kind, node.name)
        match kind:
            case "partition":
                self.network.partition(node.name, self.rng.choice((1.0, 4.0, 9.0, 14.0)))
            case "agent_killed" if node.agent is not None:
                node.agent.process.kill()
                self.loop.world.spawn(self._back(node))
            case "launcher_killed" if task is not None:
                task.launcher.process.kill()
            case "trial_killed" if task is not None:
                task.launcher.trial.end(-9)
            case "trial_killed_torn_spool" if task is not None:
                task.launcher.trial.end(-9)
                with task.directory.stream("metrics").open("ab") as file:
                    file.write(b'{"kind":"metrics","seq":')
            case "trial_killed_torn_checkpoint" if task is not None:
                task.launcher.trial.dies_saving = self.rng.choice(("files", "manifest", "commit"))
                return
            case "machine_restarted":
                node.restart()
                self.loop.world.spawn(self._back(node))
            case "machine_paused_past_reconnect":
                self.loop.world.spawn(self._freeze(node))
            case "disk_full_spool":
                node.disk_full = 1
                return
            case "clock_jump_forward" | "clock_jump_back":
                machine = self.rng.choice(("master", node.name))
                jump = self.rng.choice((0.5, 5.0, 40.0, 200.0))
                self.skew[machine] = self.skew.get(machine, 0.0) + (jump if kind.endswith("forward") else -jump)
            case _:
                return
        self.faults.count(kind)

    async def _back(self, node: Node) -> None:
        await asyncio.sleep(self.rng.choice((0.1, 1.0, 5.0, 10.0)))
        node.start()

    async def _freeze(self, node: Node) -> None:
        frozen = node.processes()
        for process in frozen:
            process.pause()
        await asyncio.sleep(self.rng.choice((3.0, 9.0, 14.0)))
        for process in frozen:
            process.resume()

    # --- running

    def run(self, look: Callable[[Any], None] | None = None) -> Outcome:
        """Run the seed to its end; `look` sees the world then."""
        problem = None
        main = self.loop.world.spawn(self._conduct())

        def ended(task: asyncio.Task[Any]) -> None:
            self.loop.stop()

        main.add_done_callback(ended)
        self.loop.after_step = self._look
        try:
            self.loop.run_forever(self.turns)
            if main.done():
                main.result()
        except (BrokenPromise, Stuck) as error:
            problem = str(error)
        except Exception as error:  # a fault of the simulation itself fails its seed, by name
            problem = f"{type(error).__name__}: {error}"
        if self.loop.errors:
            problem = self.loop.errors[0]
        trials = len(self.promises._all("SELECT id FROM trials"))
        if problem is None and not self.calm and self.faults.total < kinds.LEAST:
            problem = f"only {self.faults.total} faults"
        outcome = Outcome(
            self.seed,
            problem,
            dict(self.faults.counts),
            dict(self.promises.checks),
            hashlib.sha256("\n".join(self.trace).encode()).hexdigest(),
            self.loop.steps,
            trials,
            self.loop.time() - 1000.0,
            self.trace,
        )
        if look is not None and problem is None:
            look(self)
        self._dispose()
        return outcome

    def _look(self) -> None:
        if self.loop.errors:
            self.loop.stop()

    def _dispose(self) -> None:
        self.loop.after_step = lambda: None
        self.promises.close()
        self.loop.dispose()
        for master in self.masters:
            master.close()


def _config(seed: int, key: str) -> dict[str, Any]:
    small = key == "small"
    searcher = (
        {"name": "random", "metric": "loss", "max_trials": 1}
        if small
        else {
            "name": "async_halving",
            "metric": "loss",
            "time_metric": "batches",
            "max_time": LENGTH,
            "num_rungs": 3,
            "divisor": 2,
            "max_trials": TRIALS,
            "max_concurrent_trials": 4,
        }
    )
    return {
        "name": key,
        "entrypoint": "true",
        "hyperparameters": {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}},
        "searcher": searcher,
        "reproducibility": {"experiment_seed": seed},
        "resources": {"slots_per_trial": 1},
        "max_restarts": 20,
    }


# --- determinism


@contextmanager
def determined(seed: int, living: World | None = None) -> Iterator[None]:
    """All randomness of the process comes from the seed, and no garbage is collected in the middle."""
    rng = random.Random(f"entropy {seed}")
    random.seed(seed)
    kept = os.urandom, random._urandom
    os.urandom = random._urandom = rng.randbytes  # the seam of `random` and `uuid`
    gc.disable()
    try:
        yield
    finally:
        os.urandom, random._urandom = kept
        gc.enable()


class Bench:
    """What many seeds share: a template database, and the seams of the process."""

    def __init__(self) -> None:
        root = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="detlab-sim-", dir=root if root.is_dir() else None))
        self.template = make_database(self.folder, lambda url: Store.open(url, holder="template"))
        self.world: World | None = None
        self._warm = False
        importlib.import_module("numpy.random")  # draws randomness when it is first imported: not inside a seed
        # The template has the newest schema: alembic would only read its scripts again at each start.
        migrate.upgrade = lambda connection: None
        migrate.check_schema = lambda connection, where: "head"
        migrate._quick_check = lambda path, url: None  # a fresh copy is sound
        lease._start_time = self._start_time  # of the simulated process
        _share_compiled_statements()
        asyncio.Event.__hash__ = _serial_hash  # see there
        # No user tasks and no servers of the Hub are simulated: what looks for them need not.
        services.GUARD_PERIOD = services.RECONCILE_PERIOD = 3600.0
        placement.schedule = self._judged(placement.schedule)
        logging.getLogger().addHandler(_Errors(self))
        logging.getLogger().setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", "coroutine .* was never awaited")  # of the dead

    def _judged(self, schedule: Callable[[Snapshot], Decision]) -> Callable[[Snapshot], Decision]:
        """The scheduler, whose decisions the promises judge before they become rows."""

        def judged(snapshot: Snapshot) -> Decision:
            decision = schedule(snapshot)
            if self.world is not None:
                self.world.promises.decided(snapshot, decision)
            return decision

        return judged

    def _start_time(self, pid: int) -> int | None:
        """Which simulated masters live; of real processes only our own is ever asked for."""
        if self.world is not None and pid >= 10_000 and pid in self.world.living_pids:
            return 1
        return 0 if pid == os.getpid() else None

    def run(
        self, seed: int, *, calm: bool = False, kind: type[World] = World, look: Callable[[Any], None] | None = None
    ) -> Outcome:
        """Run one seed in a world of a kind; `look` sees that at its end, before it is put away."""
        folder = self.folder / f"seed{seed}"
        folder.mkdir()
        _serials.clear()
        try:
            with determined(seed):
                self.world = kind(seed, folder, self.template, calm=calm)
                outcome = self.world.run(look)
                self.world = None
            if not self._warm:
                # What is loaded by now stays: the collector need not look at it again and again.
                self._warm = True
                gc.collect()
                gc.freeze()
            gc.collect()
            return outcome
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _share_compiled_statements() -> None:
    """Every life of a master makes engines of its own and would compile every statement again."""

    def sharing(make: Callable[..., Engine]) -> Callable[..., Engine]:
        first: list[Engine] = []

        def made(*args: Any) -> Engine:
            engine = make(*args)
            if not first:
                first.append(engine)
            other = first[0]
            if other is engine:
                engine.connect().close()
            engine.dialect, engine._compiled_cache = other.dialect, other._compiled_cache
            return engine

        return made

    store.writer_engine = sharing(store.writer_engine)
    store.reader_engine = sharing(store.reader_engine)


class _Errors(logging.Handler):
    """An exception that product code logs as a failure of its own is one."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(logging.ERROR)
        self._bench = bench

    def emit(self, record: logging.LogRecord) -> None:
        """Note it."""
        world = self._bench.world
        if world is not None and record.exc_info and record.levelno == logging.ERROR and world.loop.process().alive:
            world.loop.errors.append(f"logged: {record.getMessage()}: {record.exc_info[1]!r}")


_serials: list[int] = []


def _serial_hash(event: asyncio.Event) -> int:
    """Events lie in sets: by their address the order would differ from run to run."""
    try:
        return event._serial
    except AttributeError:
        event._serial = len(_serials)
        _serials.append(0)
        return event._serial
