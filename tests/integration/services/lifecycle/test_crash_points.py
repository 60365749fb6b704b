"""Every commit of a small search is a point at which the master dies, once before and once after it, and starts again.

The decisions of the search, the trials, their metrics and checkpoints must then be those of the calm run. What kills
the master's own process at such points is `tests/integration/web/attempts/test_web_crash_points.py`.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_agent import Batch
from services_scripted import ALICE, CrashError, Script, World, config, training
from sqlalchemy import select
from test_services_promises import check_slots

from detlab.schemas.wire import CreateExperiment
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.lifecycle import trials_to_make
from detlab_hub.store import InlineExecutor, Store
from detlab_hub.store.tables import SearcherJournal, TrialRow
from testbed import small_search
from testbed.crash_points import ALL, CALM, CrashPoint, Tripwire, engines_kept, watching
from testbed.databases import postgres

LEAST = 40
"""Commits that the search has at least."""
SOME = 25
"""On PostgreSQL every so many points are tried, unless all are asked for."""
TICK = 2.0
"""Seconds between two looks at deadlines, of which none passes here."""


class FragileWorld(World):
    """A world whose first master dies at one commit; the next ones do not."""

    def __init__(self, url: str, folder: Path, wire: Tripwire, script: Script = small_search.script) -> None:
        super().__init__(url, folder, script=script)
        self.wires = [wire]

    async def boot(self) -> None:
        """Start a master, again if it dies while it starts."""
        wire = self.wires[-1]
        self.wires.append(Tripwire(CALM, die))
        try:
            with watching(wire):
                await super().boot()
        except CrashError:
            self.crashes += 1
            await self.boot()

    async def step(self, seconds: float = 0.5) -> None:
        """One round of everything, in which the scheduler works only when it is told to, as in the master's loop."""
        try:
            if self.services.context.scheduler_kick.is_set():
                self.services.context.scheduler_kick.clear()
                await self.services.schedule()
            for agent in self.agents.values():
                await agent.turn()
            self.now += seconds
            if self.now % TICK == 0.0:
                await self.services.tick()
        except CrashError:
            await self.reboot()

    async def insist(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Do what a client does: ask again until there is an answer."""
        while True:
            try:
                return await call()
            except CrashError:
                await self.reboot()


def die() -> None:
    """Stand for the end of the process."""
    raise CrashError


async def course(url: str, folder: Path, wire: Tripwire) -> tuple[FragileWorld, dict[str, Any]]:
    """Run the search from the first start of the master to its end; it is paused in between, and one trial fails."""
    world = FragileWorld(url, folder, wire)
    try:
        await world.boot()
        await world.insist(lambda: world.add_agent(slots=1))
        wanted = CreateExperiment(config=small_search.CONFIG, idempotency_key="one submit")
        made = (await world.insist(lambda: world.services[Experiments].create(ALICE, wanted))).experiment
        trial, _, step = small_search.PAUSED
        await go_on_until(world, lambda states: states[trial : trial + 1] == [("ACTIVE", step)])
        await world.insist(lambda: world.services[Experiments].pause(ALICE, made.id))
        await go_on_until(world, lambda states: states[trial][0] == "PAUSED")
        await world.insist(lambda: world.services[Experiments].activate(ALICE, made.id))
        await world.insist(lambda: chores(world))
        await world.until(lambda: ended(world), 300)
        check_slots(world)
        return world, world.store.read_sync(small_search.outcome)
    finally:
        world.store.close(release=False)


async def late_course(url: str, folder: Path, wire: Tripwire) -> tuple[FragileWorld, list[Any]]:
    """Run a search whose trials are made in parts, wait in a batch system, and ask for their points when they run."""
    world = FragileWorld(url, folder, wire, training(3))
    try:
        await world.boot()
        agent = world.agents["batch"] = Batch(world, "batch", 0, places=1)
        await world.insist(agent.connect)
        searcher = {"name": "tpe", "metric": "loss", "max_trials": 3, "startup_trials": 3}
        wanted = CreateExperiment(config=config(searcher), idempotency_key="one submit")
        made = (await world.insist(lambda: world.services[Experiments].create(ALICE, wanted))).experiment
        await world.until(lambda: ended(world), 300)
        assert len(agent.launches) == 3
        query = select(TrialRow).where(TrialRow.experiment_id == made.id).order_by(TrialRow.idx)
        names = ("idx", "request_id", "hparams", "point_due", "state", "restarts", "best_validation")
        rows = world.store.read_sync(lambda s: [[getattr(row, name) for name in names] for row in s.scalars(query)])
        told = select(SearcherJournal.event).where(SearcherJournal.experiment_id == made.id)
        kinds = [event["type"] for event in world.store.read_sync(lambda s: list(s.scalars(told)))]
        return world, [*rows, sorted(kinds)]
    finally:
        world.store.close(release=False)


async def ended(world: FragileWorld) -> bool:
    """Whether the search is over."""
    return world.store.read_sync(small_search.over)


async def chores(world: World) -> None:
    """Do what the master does now and then."""
    world.store.renew_lease()
    await world.services.tidy()


async def go_on_until(world: FragileWorld, holds: Callable[[list[tuple[Any, ...]]], bool]) -> None:
    """Take steps until something holds of the trials' states and steps."""
    query = select(TrialRow.state, TrialRow.steps_completed).order_by(TrialRow.idx)

    async def look() -> bool:
        return holds(world.store.read_sync(lambda s: [tuple(row) for row in s.execute(query)]))

    await world.until(look, 100)


@pytest.fixture(autouse=True)
def compiled_once() -> Iterator[None]:
    """Compile each statement once, not for every master."""
    with engines_kept():
        yield


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where databases are: in memory if possible, for it is the process that dies here, not the machine."""
    memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="detlab-crash-", dir=memory if memory.is_dir() else None))
    yield made
    shutil.rmtree(made)


def check(world: FragileWorld, got: Any, calm: Any) -> None:
    """See that the master died once, and that nothing came of it."""
    point = world.wires[0].point
    assert world.wires[0].dead, f"{point} was never reached"
    assert world.crashes == 1
    assert got == calm, f"a master that died {point} changed the outcome"


def both(commits: int) -> list[CrashPoint]:
    """Before and after each of so many commits."""
    return [CrashPoint(at, after) for at in range(1, commits + 1) for after in (False, True)]


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_I1_I4_I5_I7_I8_a_master_that_dies_at_any_commit_changes_nothing(folder: Path) -> None:
    Store.open(f"sqlite:///{folder}/empty.sqlite", holder="setup", writer=InlineExecutor()).close()

    async def attempt(point: CrashPoint) -> Any:
        path = folder / "detlab.sqlite"
        for left in folder.glob("detlab.sqlite*"):
            left.unlink()
        if point.at != 1:  # the first commit makes the schema
            shutil.copyfile(folder / "empty.sqlite", path)
        return await course(f"sqlite:///{path}", folder, Tripwire(point, die))

    world, calm = await attempt(CALM)
    total = world.wires[0].count
    assert total >= LEAST
    assert len(calm["trials"]) == small_search.TRIALS
    assert {state for *_, state in calm["allocations"]} == {"TERMINATED"}
    for point in both(total) if ALL else both(total)[::3]:
        check(*await attempt(point), calm)
    print(f"{total} commits")


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_I1_I8_nor_one_whose_trials_come_in_parts_and_ask_for_their_points(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials_to_make, "PART", 2)
    Store.open(f"sqlite:///{folder}/empty.sqlite", holder="setup", writer=InlineExecutor()).close()

    async def attempt(point: CrashPoint) -> Any:
        path = folder / "detlab.sqlite"
        for left in folder.glob("detlab.sqlite*"):
            left.unlink()
        shutil.copyfile(folder / "empty.sqlite", path)
        return await late_course(f"sqlite:///{path}", folder, Tripwire(point, die))

    world, calm = await attempt(CALM)
    assert [row[3] for row in calm[:3]] == [False] * 3
    assert calm[3].count("trial_placed") == calm[3].count("trial_created") == 3
    points = both(world.wires[0].count)[2:]  # without the first, which makes the schema
    for point in points if ALL else points[::3]:
        check(*await attempt(point), calm)


@pytest.mark.soak
@pytest.mark.postgres
@pytest.mark.timeout(3600 if ALL else 300)
async def test_I1_I4_I5_I7_I8_nor_one_on_postgresql(postgres_server: postgres.Server, folder: Path) -> None:
    numbers = itertools.count(1)
    postgres_server.sql("CREATE DATABASE crash_empty")
    Store.open(postgres_server.url("crash_empty"), holder="setup", writer=InlineExecutor()).close()

    async def attempt(point: CrashPoint) -> Any:
        name = f"crash_{next(numbers)}"
        postgres_server.sql(f"CREATE DATABASE {name} TEMPLATE crash_empty")
        try:
            return await course(postgres_server.url(name), folder, Tripwire(point, die))
        finally:
            postgres_server.sql(f"DROP DATABASE {name} WITH (FORCE)")

    world, calm = await attempt(CALM)
    total = world.wires[0].count
    assert total >= LEAST
    for point in both(total) if ALL else both(total)[::SOME]:
        check(*await attempt(point), calm)
