"""One seed: a cluster, a search on it, and everything that can go wrong."""

from __future__ import annotations

import asyncio
import hashlib
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from detlab.client.operations.experiments import Submission, submit
from detlab.client.transport.calls import Retries
from detlab.client.transport.discovery import ClusterAddress
from detlab.client.transport.session import Session
from detlab.schemas.wire import Launch
from detlab_hub.backends.instances.configuration import ElasticPool
from detlab_hub.services import Caller, Settings
from detlab_hub.store import InlineExecutor, Store
from detlab_hub.store.queries import tokens
from simulation.checks.promises import BrokenPromise, Promises
from simulation.loop import EPOCH, Process, SimLoop, Stuck, as_thread, block
from simulation.machines import faults as kinds
from simulation.machines.faults import Faults
from simulation.machines.gang import Ring
from simulation.machines.large_faults import LargeFaults
from simulation.machines.master import Master, copy_torn, default_settings
from simulation.machines.network import Network
from simulation.machines.node import AgentPace, Node
from simulation.machines.trial import LENGTH, Course, HttpBridge, Trial

SLOTS = (2, 1, 1)
TRIALS, AGENTS = 8, 3
"""Trials of the search of a seed, and agents that run them, at least."""
AGAIN = "again"
"""Searches that follow one which ran on too few agents are called so."""
PATIENCE = 600.0
"""Virtual seconds in which everything must have ended."""


@dataclass
class Outcome:
    """What became of a seed.

    Attributes:
        asha_trials: Trials of asynchronous halving of which an attempt ran.
        asha_agents: Machines on which attempts of those ran.
    """

    seed: int
    problem: str | None
    faults: dict[str, int]
    checks: dict[str, int]
    digest: str
    steps: int
    asha_trials: int
    asha_agents: int
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
        self.faults = Faults(random.Random(f"faults {seed}"), wanted=self.rng.randrange(22, 34), calm=calm)
        self.network = Network(self.loop, random.Random(f"network {seed}"), self.faults)
        self.calm = calm
        self.living_pids: set[int] = set()
        self.database_full = self.database_found_full = False
        self.db_path = folder / "db0.sqlite"
        self._databases = 1
        shutil.copyfile(template, self.db_path)
        self.checkpoints = folder / "checkpoints"
        self.settings = self._settings()
        self.promises = self._make_promises()
        self.skew: dict[str, float] = {}
        self.masters: list[Master] = []
        self.nodes = self._make_nodes()
        self.large_faults = LargeFaults(self)
        self.experiment_ids: list[int] = []
        self._rings: dict[str, Ring] = {}

    def _settings(self) -> Settings:
        return default_settings(self.folder)

    def _make_promises(self) -> Promises:
        return Promises(self)

    def _make_nodes(self) -> list[Node]:
        return [Node(self, number, slots) for number, slots in enumerate(self.slots)]

    def elastic(self) -> list[ElasticPool]:
        """The pools that grow and shrink."""
        return []

    def collect(self, trial: Trial) -> int:
        """Do what the task of a collection does; only one world collects."""
        raise AssertionError(f"{trial.launch.allocation_id} is to remove checkpoints")

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
        copy_torn(source, self.db_path, self.rng.randrange(before + 1, after))
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
            backoff=Retries(attempts=400, refused=400),
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
        made = _config(self.seed, key)
        if key.startswith(AGAIN):  # only as many as all machines can run at a time
            made["searcher"] |= dict.fromkeys(("max_trials", "max_concurrent_trials"), sum(self.slots))
        return made

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
        while self.loop.time() < 1000.0 + PATIENCE and not self._finished(clients):
            await asyncio.sleep(1.0)
        self.promises.check_end()

    def _finished(self, clients: list[asyncio.Task[Any]]) -> bool:
        """Whether there is nothing left to do; a search that ran on too few agents has a successor."""
        if not (all(client.done() for client in clients) and self._over()):
            return False
        if self.promises.took_part().asha_agents >= AGENTS:
            return True
        self.promises.checks["searches once more"] += 1
        process = Process(self.loop, f"client again{len(clients)}", "client")
        clients.append(process.spawn(as_thread(self._search_again(f"{AGAIN}{len(clients)}"))))
        return False

    def _search_again(self, key: str) -> Callable[[], None]:
        """What submits another search: faults may have kept the first from all but two agents."""
        return partial(self._submit, key, 0.0)

    def _over(self) -> bool:
        waiting = "SELECT count(*) FROM {} WHERE state NOT IN ('COMPLETED','CANCELED','ERROR','TERMINATED')"
        left = sum(self.promises._one(waiting.format(table))[0] for table in ("experiments", "allocations"))
        return left == 0 and not any(node.tasks for node in self.nodes)

    def _enrol(self) -> None:
        setup = Store.open(self.db_url, holder="setup", clock=lambda: EPOCH, lease_ttl=1.0, writer=InlineExecutor())
        for node in self.nodes:
            node.key = setup.write_sync(lambda s, name=node.name: tokens.issue(s, "agent", name, None, EPOCH))
        setup.close()

    async def _wreck(self) -> None:
        await self.large_faults.go_on()

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
        if problem is None and not self.calm and self.faults.total < kinds.LEAST:
            problem = f"only {self.faults.total} faults"
        outcome = Outcome(
            self.seed,
            problem,
            dict(self.faults.counts),
            dict(self.promises.checks),
            hashlib.sha256("\n".join(self.trace).encode()).hexdigest(),
            self.loop.steps,
            *self.promises.took_part(),
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
