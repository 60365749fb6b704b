"""1,000 random schedules of collection beside those who need checkpoints: PBT, promotion, download, registration.

The functions are those of the services, on a database in memory; each actor is a row of transactions, and between any
two of them any other actor may have its turn. A task that removes may die at any step, and be followed by another.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import StaticPool, create_engine, delete, select
from sqlalchemy.orm import Session

from detlab.errors import Conflict
from detlab.schemas.wire.storage import GcPolicy, Pin
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.checkpoints import collecting, pins, removals
from detlab_hub.store.queries.storage import collection
from detlab_hub.store.tables import Base, BookmarkRow, CheckpointRow, ExperimentRow, FreedRow, RemovalRow, TrialRow

STEPS = 24
ALICE = Caller("alice")
WINDOW = 5.0
EVERYTHING = {
    *("a download found it gone", "cloned", "collected", "deleted"),
    *("promoted", "refused", "registered", "removed", "restored"),
}
"""What must happen in some schedule."""
Actor = Iterator[None]


@dataclass
class Searches:
    """In the place of the searches: what one needs is what its actor says."""

    needed: set[str] = field(default_factory=set)

    def needed_checkpoints(self, s: Session, row: ExperimentRow) -> set[str]:
        return set(self.needed)


@dataclass
class Cluster:
    """A search with trials that have saved, and a disk with their files."""

    session: Session
    rng: random.Random
    now: float = 1_000.0
    searches: Searches = field(default_factory=Searches)
    disk: set[str] = field(default_factory=set)
    versions: dict[str, str] = field(default_factory=dict)
    happened: set[str] = field(default_factory=set)
    saved: int = 0

    def write(self, act: Callable[[UnitOfWork], Any]) -> Any:
        """Run a transaction of the writer."""
        settings = Settings(state_dir=Path(), bundles_dir=Path(), trash_window=WINDOW)
        unit: Any = UnitOfWork(self.session, self.now, settings, self.searches, lifecycle=None)  # type: ignore[arg-type]
        try:
            found = act(unit)
            self.session.flush()
            self.session.commit()
        except BaseException:
            self.session.rollback()
            raise
        return found

    def completed(self) -> list[str]:
        query = select(CheckpointRow.uuid).where(CheckpointRow.state == "COMPLETED").order_by(CheckpointRow.uuid)
        return list(self.session.scalars(query))

    def some(self) -> str | None:
        found = self.completed()
        return self.rng.choice(found) if found else None

    def save(self, unit: UnitOfWork, trial: TrialRow, step: int) -> str:
        """A trial commits a checkpoint."""
        self.saved += 1
        uuid = f"00000000-0000-4000-8000-{self.saved:012d}"
        self.disk.add(uuid)
        row = CheckpointRow(
            uuid=uuid, trial_id=trial.id, experiment_id=1, steps_completed=step, created_at=self.now, size=1,
            files={"model": {"size": 1, "digest": "", "mode": 420}},
            storage={"type": "directory", "container_path": "/ckpt"},
        )  # fmt: skip
        unit.session.add(row)
        trial.latest_checkpoint = uuid
        return uuid

    def is_whole(self, uuid: str, why: str) -> None:
        assert uuid in self.disk, f"{why}: the files of {uuid} are gone"
        assert self.session.get_one(CheckpointRow, uuid).state == "COMPLETED", f"{why}: {uuid} is deleted"


def begun(cluster: Cluster) -> None:
    """Four trials, each of which has saved twice and trains on."""

    def make(unit: UnitOfWork) -> None:
        config = {"searcher": {"name": "pbt", "metric": "loss"}}
        unit.session.add(
            ExperimentRow(id=1, name="x", owner="alice", state="ACTIVE", config=config, searcher_name="pbt")
        )
        unit.session.flush()
        for idx in range(4):
            trial = TrialRow(id=idx + 1, experiment_id=1, idx=idx, request_id=f"{idx}", state="ACTIVE")
            unit.session.add(trial)
            unit.session.flush()
            for step in (1, 2):
                cluster.save(unit, trial, step)

    cluster.write(make)


# --- those who begin to need one


def pbt(cluster: Cluster) -> Actor:
    """The search chooses a parent, later makes a clone, which later loads it and saves one of its own."""
    while True:
        uuid = cluster.some()
        if uuid is None:
            yield
            continue
        cluster.write(lambda unit, uuid=uuid: cluster.searches.needed.add(uuid))
        yield
        cluster.is_whole(uuid, "the search needs it")

        def clone(unit: UnitOfWork, uuid: str = uuid) -> TrialRow:
            number = len(unit.session.scalars(select(TrialRow.id)).all()) + 1
            trial = TrialRow(id=number, experiment_id=1, idx=number - 1, request_id=f"{number}", state="ACTIVE",
                             parent_checkpoint=uuid)  # fmt: skip
            unit.session.add(trial)
            cluster.searches.needed.discard(uuid)
            return trial

        trial = cluster.write(clone)
        yield
        cluster.is_whole(uuid, "a clone loads it")
        cluster.happened.add("cloned")
        cluster.write(lambda unit, trial=trial: cluster.save(unit, unit.trial(trial.id), 3))
        yield
        cluster.write(lambda unit, trial=trial: setattr(unit.trial(trial.id), "state", "COMPLETED"))
        yield


def promotion(cluster: Cluster) -> Actor:
    """A trial is held at a rung, later promoted, and goes on from its newest; it saves, and the next is held."""
    for number in range(1, 1_000):
        key = number % 4 + 1

        def hold(unit: UnitOfWork, key: int = key) -> str:
            trial = unit.trial(key)
            trial.hold = "search"
            assert trial.latest_checkpoint is not None
            return trial.latest_checkpoint

        uuid = cluster.write(hold)
        yield
        cluster.is_whole(uuid, "a trial waits at a rung with it")
        yield
        cluster.is_whole(uuid, "a trial is promoted and resumes from it")

        def resume(unit: UnitOfWork, key: int = key, step: int = number + 2) -> None:
            trial = unit.trial(key)
            trial.hold = "none"
            cluster.save(unit, trial, step)

        cluster.write(resume)
        cluster.happened.add("promoted")
        yield


def registration(cluster: Cluster) -> Actor:
    """A version is made of a checkpoint that was looked at before; from then on it is there for good."""
    while len(cluster.versions) < 3:
        uuid = cluster.some()
        yield
        if uuid is not None and cluster.session.get_one(CheckpointRow, uuid).state == "COMPLETED":
            cluster.write(lambda unit, uuid=uuid: cluster.versions.setdefault(uuid, "version 1 of model digits"))
            cluster.happened.add("registered")
        yield
    while True:
        yield


def download(cluster: Cluster) -> Actor:
    """Somebody downloads one: file by file, or an error when it is gone; what is in the trash is still whole."""
    while True:
        uuid = cluster.some()
        yield
        if uuid is not None and uuid not in cluster.disk:
            removal = cluster.session.get(RemovalRow, uuid)
            state = cluster.session.get_one(CheckpointRow, uuid).state
            assert state == "DELETED"
            assert removal is None or removal.begun_at is not None, "its files went before their time"
            cluster.happened.add("a download found it gone")


def bookmarks(cluster: Cluster) -> Actor:
    """Somebody keeps one for a while."""
    while True:
        uuid = cluster.some()
        if uuid is not None:
            cluster.write(lambda unit, uuid=uuid: unit.session.add(BookmarkRow(uuid=uuid, name="alice", note="")))
            for _ in range(4):
                yield
                cluster.is_whole(uuid, "it is bookmarked")
            cluster.write(lambda unit, uuid=uuid: unit.session.execute(delete(BookmarkRow)))
        yield


# --- those who remove


def collector(cluster: Cluster) -> Actor:
    """Policies that keep next to nothing are applied again and again; the search runs on."""
    while True:
        numbers = [cluster.rng.choice((0, 0, 1)) for _ in range(3)]
        policy = GcPolicy(save_experiment_best=numbers[0], save_trial_best=numbers[1], save_trial_latest=numbers[2])

        def collect(unit: UnitOfWork, policy: GcPolicy = policy) -> int:
            row = unit.experiment(1)
            row.gc_policy = policy.model_dump()
            plan = collecting._plan(unit.session, unit.searches, row)
            return collecting.collect(unit, row, plan, unit.now + cluster.rng.choice((0.0, WINDOW)))

        if cluster.write(collect):
            cluster.happened.add("collected")
        yield


def user(cluster: Cluster) -> Actor:
    """One is deleted, with or without time in the trash, and may be restored."""
    while True:
        uuid = cluster.some()
        yield
        if uuid is None:
            continue
        try:
            now = cluster.rng.random() < 0.3
            cluster.write(lambda unit, uuid=uuid, now=now: removals._delete(unit, ALICE, uuid, now=now, by_task=True))
            cluster.happened.add("deleted")
        except Conflict as error:
            cluster.happened.add("refused" if "is in use" in str(error) else f"refused by mistake: {error}")
        yield
        try:
            cluster.write(lambda unit, uuid=uuid: removals._undelete(unit, ALICE, uuid))
            cluster.is_whole(uuid, "it was restored")
            cluster.happened.add("restored")
        except Conflict as error:
            if "cannot be restored" not in str(error):
                cluster.happened.add(f"not restored by mistake: {error}")
        yield


def remover(cluster: Cluster) -> Actor:
    """A task lists, removes and reports; it may die between any two steps, and so may be followed by itself."""
    while True:

        def listed(unit: UnitOfWork) -> list[str]:
            found = collection.due_by_task(unit.session, unit.now, 1)
            for removal in found:
                removal.begun_at = removal.begun_at or unit.now
            return [removal.uuid for removal in found]

        for uuid in cluster.write(listed):
            yield
            if cluster.rng.random() < 0.2:
                break  # it dies here
            assert cluster.session.get_one(CheckpointRow, uuid).state == "DELETED", f"{uuid} goes, and is not deleted"
            cluster.disk.discard(uuid)
            yield
            if cluster.rng.random() < 0.2:
                break
            cluster.write(lambda unit, uuid=uuid: removals.end_removal(unit, uuid, None, ""))
            cluster.happened.add("removed")
        yield


ACTORS = (pbt, promotion, registration, download, bookmarks, collector, user, remover)


def check(cluster: Cluster) -> None:
    """What each schedule must have left: nothing pinned is lost, and freed bytes are counted once."""
    for uuid in cluster.versions:
        cluster.is_whole(uuid, "it is a version of a model")
    for uuid in cluster.completed():
        cluster.is_whole(uuid, "it is not deleted")
    for trial in cluster.session.scalars(select(TrialRow).where(TrialRow.state == "ACTIVE")):
        if trial.latest_checkpoint is not None:
            cluster.is_whole(trial.latest_checkpoint, f"trial {trial.id} resumes from it")
    waiting = set(cluster.session.scalars(select(RemovalRow.uuid)))
    deleted = set(cluster.session.scalars(select(CheckpointRow.uuid).where(CheckpointRow.state == "DELETED")))
    freed = cluster.session.scalar(select(FreedRow.bytes)) or 0
    assert freed == len(deleted - waiting)
    assert not (deleted - waiting) & cluster.disk


@pytest.fixture
def emptied() -> Iterator[Callable[[], Session]]:
    """Makes sessions on one database in memory, which each finds empty."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    Base.metadata.create_all(engine)

    def make() -> Session:
        with engine.begin() as connection:
            for table in (RemovalRow, BookmarkRow, FreedRow, CheckpointRow, TrialRow, ExperimentRow):
                connection.execute(delete(table))
        return Session(engine, expire_on_commit=False)

    yield make
    engine.dispose()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("schedules", [250, pytest.param(1000, marks=pytest.mark.soak)])
def test_many_random_schedules(emptied: Callable[[], Session], monkeypatch: pytest.MonkeyPatch, schedules: int) -> None:
    happened: set[str] = set()
    now_in = SimpleNamespace(cluster=None)

    def version_pins(s: Session, uuids: Any) -> list[tuple[str, Pin]]:
        known = now_in.cluster.versions
        return [(uuid, Pin(kind="version", reason=known[uuid])) for uuid in sorted(known) if uuid in uuids]

    monkeypatch.setattr(pins, "version_pins", version_pins)
    for seed in range(schedules):
        rng = random.Random(seed)
        with emptied() as session:
            cluster = now_in.cluster = Cluster(session, rng)
            begun(cluster)
            actors = [make(cluster) for make in ACTORS]
            try:
                for _ in range(STEPS):
                    next(rng.choice(actors))
                    cluster.now += rng.random()
                check(cluster)
            except AssertionError as error:
                raise AssertionError(f"schedule {seed}: {error}") from error
            happened |= cluster.happened
    assert happened == EVERYTHING
