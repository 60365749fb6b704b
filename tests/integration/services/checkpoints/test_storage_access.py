"""Stores that accept and never answer: a user's own is never asked by the master, the cluster's own holds up nobody."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from services_scripted import ALICE, BOB, World, config, report
from sqlalchemy import select

from detlab.errors import DetlabError
from detlab.schemas.checkpoint_ids import checkpoint_id
from detlab.schemas.wire import CheckpointFile, CommitCheckpoint
from detlab.schemas.wire.storage import GcRequest
from detlab.storage.objects import obstores
from detlab_hub.services.base.callers import Caller, TaskCaller
from detlab_hub.services.base.threads import user_of
from detlab_hub.services.checkpoints import files
from detlab_hub.services.checkpoints.checkpoints import Checkpoints
from detlab_hub.services.checkpoints.collecting import Collecting
from detlab_hub.services.checkpoints.removals import Removals
from detlab_hub.services.checkpoints.stores import NotTheClusters, OpenStore
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.stored_files import EventFiles
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.store.tables import CheckpointRow, ExperimentRow

DIGEST = f"sha256:{'0' * 64}"
MOST = 20.0
"""Seconds that one user may hold a worker for a store of the cluster's own that does not answer."""
BRIEFLY = 2.0
"""The seconds of a request in most tests: 15 in earnest."""
PROMPT = 3.0
"""Seconds in which another user's request is through meanwhile, on a busy machine."""


class Silent:
    """A store that accepts connections and never answers."""

    def __init__(self, port: int) -> None:
        self.port, self.connections = port, 0
        self.over = asyncio.Event()

    def block(self, **more: Any) -> dict[str, Any]:
        """A block that names it, with keys of its own."""
        url = f"http://127.0.0.1:{self.port}"
        keys = {"access_key": "a", "secret_key": "b"}
        return {"type": "s3", "bucket": "b", "endpoint_url": url, "region": "us-east-1", **keys, **more}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await self.over.wait()
        writer.close()


@pytest.fixture
async def silent() -> AsyncIterator[Silent]:
    here = Silent(0)
    listener = await asyncio.start_server(here.serve, "127.0.0.1", 0)
    here.port = listener.sockets[0].getsockname()[1]
    yield here
    here.over.set()
    listener.close()


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of the master's that are given up sooner."""
    once = {"quick": 0, "patient": 0}
    monkeypatch.setattr(obstores, "BRIEF", {**obstores.BRIEF, "seconds": once, "answering": BRIEFLY})


def training(launch: Any) -> Iterator[Any]:
    while True:
        yield ("wait",) if not launch.info.trial_id else report(1, loss=1.0)
        yield ("wait",)


class Place:
    """A world in which users have an experiment each, whose trial runs."""

    def __init__(self, world: World) -> None:
        self.world, self.saved = world, 1000
        self.experiments: dict[str, int] = {}

    @property
    def services(self):
        return self.world.services

    async def begin(self, caller: Caller, **more: Any) -> int:
        made = (await self.world.submit(config(**more), caller=caller)).id
        self.experiments[caller.name] = made
        await self.world.steps(3)
        return made

    def task(self, caller: Caller) -> TaskCaller:
        """The trial of a user, by its own token."""
        tasks = [task for agent in self.world.agents.values() for task in agent.tasks.values()]
        return next(task.caller for task in tasks if task.caller.experiment_id == self.experiments[caller.name])

    async def commit(self, caller: Caller, task: TaskCaller | None = None) -> str:
        task = task or self.task(caller)
        self.saved += 1
        uuid = checkpoint_id(self.saved << 80, task.trial_id or 0)
        files = {"model.pt": CheckpointFile(size=7, digest=DIGEST)}
        commit = CommitCheckpoint(uuid=uuid, steps_completed=self.saved, files=files, manifest_digest=DIGEST)
        await self.services[Tasks].commit_checkpoint(task, commit)
        return uuid

    async def moved(self, caller: Caller, block: dict[str, Any], count: int = 1) -> list[str]:
        """Checkpoints of a user that are, the database says, in another store."""
        uuids = [await self.commit(caller) for _ in range(count)]

        def move(unit) -> None:
            for uuid in uuids:
                unit.session.get_one(CheckpointRow, uuid).storage = block
            row = unit.session.get_one(ExperimentRow, self.experiments[caller.name])
            row.config = {**row.config, "checkpoint_storage": block}

        await self.services.context.write(move)
        return uuids

    async def end(self, caller: Caller) -> None:
        await self.services[Experiments].kill(caller, self.experiments[caller.name])
        await self.world.finish(self.experiments[caller.name])


async def made(make_world, **settings: Any) -> Place:
    world = await make_world(training, **settings)
    await world.add_agent(slots=4)
    return Place(world)


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


async def test_a_commit_is_the_trials_word_where_the_master_does_not_open_the_store(make_world, silent: Silent) -> None:
    place = await made(make_world)
    await place.begin(ALICE, checkpoint_storage=silent.block())
    assert user_of(place.task(ALICE)) == user_of(ALICE), "by its token a task is in its owner's turn"
    with within(PROMPT):
        uuid = await place.commit(ALICE)
    assert (await place.services[Checkpoints].get(ALICE, uuid)).size == 7
    assert silent.connections == 0


async def test_nothing_is_asked_of_a_store_that_only_a_user_names(make_world, silent: Silent) -> None:
    """Redirects and loopback addresses need no rule of their own: there is no connection that could be misled."""
    place = await made(make_world, trash_window=60.0)
    experiment = await place.begin(ALICE, checkpoint_storage=silent.block())
    first, second, third = [await place.commit(ALICE) for _ in range(3)]
    removals, checkpoints = place.services[Removals], place.services[Checkpoints]
    with within(2 * PROMPT):
        for refused in (checkpoints.open_file(ALICE, first, DIGEST), checkpoints.open_archive(ALICE, first)):
            with pytest.raises(NotTheClusters, match="--mode direct"):
                await refused
        assert (await removals.delete(ALICE, first)).state == "DELETED"
        assert (await removals.undelete(ALICE, first)).state == "COMPLETED"
        assert (await removals.delete(ALICE, first, now=True)).state == "DELETED"
        assert (await removals.remove_files(ALICE, second, ["*"])).state == "DELETED"
    await place.end(ALICE)
    with within(2 * PROMPT):
        await place.services[EventFiles].delete(ALICE, experiment)
        await place.services[Collecting].apply(ALICE, experiment, GcRequest(purge=True))
        await removals.finish()
        left = await place.services[Experiments].delete(ALICE, experiment)
    assert left is not None, "a task of hers removes them"
    assert (await place.services[Experiments].get(ALICE, experiment)).deletion.checkpoints == 3
    assert third
    assert silent.connections == 0


async def test_a_bucket_that_only_a_user_names_is_not_opened_with_the_masters_keys(
    make_world, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an endpoint the master's environment named one, and its own keys were sent for any bucket."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-masters")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-masters")
    place = await made(make_world)
    await place.begin(ALICE, checkpoint_storage={"type": "s3", "bucket": "another-teams"})
    uuid = await place.commit(ALICE)
    with pytest.raises(NotTheClusters):
        await place.services[Checkpoints].open_file(ALICE, uuid, DIGEST)
    assert silent.connections == 0


async def test_the_operators_store_is_opened_by_the_operators_block(make_world, silent: Silent, briefly: None) -> None:
    place = await made(make_world, checkpoint_stores=(silent.block(prefix="runs"),))
    await place.begin(ALICE)
    await place.begin(BOB)
    (his,) = await place.moved(BOB, silent.block(prefix="runs-evil"))
    (uuid,) = await place.moved(ALICE, silent.block(prefix="runs/alice"))
    with pytest.raises(NotTheClusters):
        await place.services[Checkpoints].open_file(BOB, his, DIGEST)
    assert silent.connections == 0
    with pytest.raises(DetlabError, match="it took too long"):
        await place.services[Checkpoints].open_file(ALICE, uuid, DIGEST)
    assert silent.connections > 0


Ask = Callable[[Place, str], Awaitable[Any]]
OPERATIONS: dict[str, Ask] = {
    "commit": lambda place, uuid: place.commit(ALICE),
    "download": lambda place, uuid: place.services[Checkpoints].open_file(ALICE, uuid, DIGEST),
    "archive": lambda place, uuid: place.services[Checkpoints].open_archive(ALICE, uuid),
    "undelete": lambda place, uuid: place.services[Removals].undelete(ALICE, uuid),
    "delete": lambda place, uuid: place.services[Removals].delete(ALICE, uuid, now=True),
    "gc": lambda place, uuid: place.services[Collecting].apply(
        ALICE, place.experiments[ALICE.name], GcRequest(now=True, purge=True)
    ),
}


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_the_clusters_own_store_holds_a_worker_for_seconds_and_nobody_else_waits(
    make_world, silent: Silent, briefly: None, operation: str
) -> None:
    """Two threads were held for 300 s each, and another user's trial of 4 s took 18 minutes."""
    place = await made(make_world, checkpoint_stores=(silent.block(),))
    await place.begin(ALICE)
    await place.begin(BOB)
    his = await place.commit(BOB)
    uuid, *_ = await place.moved(ALICE, silent.block(), 2)
    if operation == "undelete":
        await place.services[Removals].delete(ALICE, uuid)
    began = time.monotonic()
    slow = [asyncio.ensure_future(OPERATIONS[operation](place, uuid))]
    slow += [asyncio.ensure_future(OPERATIONS["commit"](place, uuid)) for _ in range(8)]
    await asyncio.sleep(0.3)
    with within(PROMPT):
        await place.commit(BOB)
        await place.services[Removals].delete(BOB, his)
        await place.services[Removals].undelete(BOB, his)
    with contextlib.suppress(DetlabError):
        await slow[0]
    assert time.monotonic() - began < 2 * BRIEFLY + PROMPT
    await place.services[Experiments].kill(ALICE, place.experiments[ALICE.name])
    await place.world.finish(place.experiments[ALICE.name])
    # What is queued of a trial that is over is not served: at most the one call that had begun.
    with within(BRIEFLY + PROMPT):
        await asyncio.gather(*slow, return_exceptions=True)


async def test_event_files_and_a_deletion_in_the_clusters_own_store_hold_up_nobody(
    make_world, silent: Silent, briefly: None
) -> None:
    place = await made(make_world, checkpoint_stores=(silent.block(),))
    experiment = await place.begin(ALICE)
    await place.begin(BOB)
    his = await place.commit(BOB)
    await place.moved(ALICE, silent.block(), 2)
    await place.end(ALICE)
    began = time.monotonic()
    slow = asyncio.ensure_future(place.services[Experiments].delete(ALICE, experiment))
    await asyncio.sleep(0.3)
    with within(PROMPT):
        await place.commit(BOB)
        await place.services[Removals].delete(BOB, his)
    assert await slow is not None, "what is left is for a task of the owner"
    assert time.monotonic() - began < 3 * BRIEFLY + PROMPT, "its checkpoints once, then its event files"

    def row(s) -> ExperimentRow | None:
        return s.scalars(select(ExperimentRow).where(ExperimentRow.id == experiment)).one_or_none()

    assert await place.services.context.read(row) is not None


@pytest.mark.soak
async def test_one_look_at_a_store_that_does_not_answer_is_given_up_within_seconds(silent: Silent) -> None:
    """In earnest, as the master opens it: the figure of docs/reference/limits.md."""
    store = OpenStore(silent.block())
    with within(MOST):
        await asyncio.to_thread(files.check_sizes, store, checkpoint_id(1 << 80, 1), {"model.pt": 7})
    assert silent.connections > 0
