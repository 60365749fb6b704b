"""Ways in which checkpoints, or the count of their bytes, were lost: each test is named after the fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from services_scripted import ALICE, BOB, ROOT, CrashError, Flaw, World, config, report
from sqlalchemy import select, update

from detlab.errors import ConfigError, Conflict, Forbidden, NotFound
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import ExperimentState, ExperimentView
from detlab.schemas.wire.registry import CreateModel, CreateVersion
from detlab.schemas.wire.storage import Bookmark, Collected, CollectedFolders, CollectReport, GcRequest
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.fencing import caller_of
from detlab_hub.services.checkpoints.checkpoints import Checkpoints
from detlab_hub.services.checkpoints.collecting import Collecting
from detlab_hub.services.checkpoints.removals import Removals
from detlab_hub.services.checkpoints.stores import NotTheClusters
from detlab_hub.services.experiments import stored_files
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.registry.models import Models
from detlab_hub.services.registry.versions import Versions
from detlab_hub.services.usertasks.collection_tasks import AGAIN, CollectionTasks
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.tables import AllocationRow, CheckpointRow, ExperimentRow, FreedRow, RemovalRow, TaskNote, TaskRow

STORE = {"type": "s3", "bucket": "checkpoints"}


class Saving:
    """Saves three times, then waits to be let go; other tasks do nothing."""

    def __init__(self) -> None:
        self.done = False

    def __call__(self, launch: Any) -> Iterator[Any]:
        if not launch.info.trial_id:
            while True:
                yield ("wait",)
        for step in (1, 2, 3):
            yield report(step, loss=1.0 / step)
            yield ("save", step)
        while not self.done:
            yield ("wait",)
        yield ("exit", 0)


class Place:
    """A world with one experiment, whose trial has saved three times."""

    def __init__(self, world: World, script: Saving, experiment: int) -> None:
        self.world, self.script, self.experiment = world, script, experiment
        self.uuids: list[str] = []

    @property
    def services(self):
        return self.world.services

    async def trial(self) -> TaskCaller:
        def read(s) -> TaskCaller:
            return caller_of(s.scalars(select(AllocationRow).where(AllocationRow.trial_id.is_not(None))).one())

        return await self.services.context.read(read)

    def store_files(self) -> None:
        """Make folders of the checkpoints, for the master to see them."""
        for uuid in self.uuids:
            folder = self.world.settings.state_dir / "checkpoints" / uuid
            folder.mkdir()
            (folder / "model.pt").write_bytes(b"1")

    async def end(self) -> None:
        self.script.done = True
        await self.world.finish(self.experiment)

    async def collector(self) -> TaskCaller:
        """The task that removes what is due."""
        await self.world.steps(4)

        def read(s) -> TaskCaller:
            task = s.get_one(ExperimentRow, self.experiment).gc_task
            return caller_of(s.scalars(select(AllocationRow).where(AllocationRow.task_id == task)).one())

        return await self.services.context.read(read)

    async def collected(self) -> list[str]:
        """Let the task remove all that it is told to, and end; return what that was."""
        caller, uuids, events = await self.collector(), [], None
        found = await self.services[CollectionTasks].list(caller)
        while found.items or found.event_files:
            uuids += [one.uuid for one in found.items]
            if found.event_files:
                events = CollectedFolders(freed=100)
            told = CollectReport(items=[Collected(uuid=one.uuid) for one in found.items], event_files=events)
            found = await self.services[CollectionTasks].report(caller, told)
        await self.services.tick()
        return uuids

    async def exists(self) -> bool:
        return await self.services.context.read(lambda s: s.get(ExperimentRow, self.experiment)) is not None

    async def view(self) -> ExperimentView:
        return await self.services[Experiments].get(ALICE, self.experiment)

    async def state(self, uuid: str) -> str:
        return await self.services.context.read(lambda s: s.get_one(CheckpointRow, uuid).state)

    async def freed(self) -> list[tuple[int, int]]:
        rows = await self.services.context.read(lambda s: list(s.scalars(select(FreedRow))))
        return [(row.bytes, row.count) for row in rows]

    async def set_state(self, state: ExperimentState) -> None:
        def change(unit) -> None:
            unit.session.get_one(ExperimentRow, self.experiment).state = state.value

        await self.services.context.write(change)


async def saved(make_world, **settings: Any) -> Place:
    script = Saving()
    world = await make_world(script, **settings)
    await world.add_agent()
    (world.settings.state_dir / "checkpoints").mkdir(exist_ok=True)
    here = Place(world, script, (await world.submit(config())).id)

    async def three() -> bool:
        found = await here.services[Experiments].checkpoints(ALICE, here.experiment)
        here.uuids = [one.uuid for one in sorted(found, key=lambda one: one.steps_completed)]
        return len(found) == 3

    await world.until(three)
    return here


@pytest.fixture
async def place(make_world) -> Place:
    return await saved(make_world)


# --- a task's own deletion


async def test_a_trial_deletes_no_checkpoint_of_its_own_that_is_pinned(place: Place) -> None:
    first, second, _ = place.uuids
    await place.services[Collecting].bookmark(ALICE, first, Bookmark(note="for the paper"))
    await place.services[Models].create(ALICE, CreateModel(name="digits"))
    await place.services[Versions].register(ALICE, "digits", CreateVersion(checkpoint=second))
    source = {"name": "single", "metric": "loss", "source_checkpoint_uuid": second}
    other = await place.world.submit(config(source), activate=False)
    task = await place.trial()
    for uuid, said in (
        (first, ["alice has bookmarked it: for the paper"]),
        (second, ["it is a version of a model", f"experiment {other.id}, which has not ended, starts from it"]),
    ):
        with pytest.raises(Conflict) as refused:
            await place.services[Tasks].delete_checkpoint(task, uuid)
        assert all(reason in str(refused.value) for reason in said)
        assert await place.state(uuid) == "COMPLETED"


async def test_a_trial_may_delete_what_it_would_itself_resume_from(place: Place) -> None:
    await place.services[Tasks].delete_checkpoint(await place.trial(), place.uuids[2])
    (trial,) = await place.world.trials(place.experiment)
    assert trial.latest_checkpoint == place.uuids[1]


async def test_what_a_trial_removes_from_the_trash_cannot_be_restored(place: Place) -> None:
    uuid = place.uuids[0]
    await place.services[Removals].delete(ALICE, uuid)
    for _ in range(2):
        await place.services[Tasks].delete_checkpoint(await place.trial(), uuid)
    with pytest.raises(Conflict, match="cannot be restored: its files are being removed"):
        await place.services[Removals].undelete(ALICE, uuid)
    await place.end()
    found = await place.services[CollectionTasks].list(await place.collector())
    assert [one.uuid for one in found.items] == [uuid], "a task sees to it that they are gone"


# --- deletion of an experiment


async def test_nothing_begins_to_need_a_checkpoint_of_an_experiment_that_is_being_deleted(place: Place) -> None:
    uuid = place.uuids[0]
    await place.end()
    await place.services[Models].create(ALICE, CreateModel(name="digits"))
    (trial,) = await place.world.trials(place.experiment)
    await place.set_state(ExperimentState.DELETING)
    with pytest.raises(Conflict, match="is being deleted"):
        await place.services[Collecting].bookmark(ALICE, uuid, Bookmark())
    for wanted in (CreateVersion(checkpoint=uuid), CreateVersion(experiment_id=place.experiment)):
        with pytest.raises(Conflict, match="is being deleted"):
            await place.services[Versions].register(ALICE, "digits", wanted)
    for key, value in (("source_checkpoint_uuid", uuid), ("source_trial_id", trial.id)):
        with pytest.raises(ConfigError):
            await place.world.submit(config({"name": "single", "metric": "loss", key: value}))
    await place.world.reboot()  # which goes on with the deletion
    assert await place.exists(), "nobody has seen that its files are gone"
    assert sorted(await place.collected()) == sorted(place.uuids)
    assert not await place.exists()
    assert await place.services.context.read(lambda s: s.get(CheckpointRow, uuid)) is None


@pytest.mark.parametrize("write", [1, 2, 3])
@pytest.mark.parametrize("after_commit", [False, True])
async def test_a_deletion_that_is_repeated_after_a_crash_frees_bytes_once(
    place: Place, after_commit: bool, write: int
) -> None:
    place.store_files()
    await place.end()
    await place.services[Removals].delete(ALICE, place.uuids[0])
    place.services.context.store._flaw = Flaw(place.world.writes[0] + write, after_commit)
    with pytest.raises(CrashError):
        await place.services[Experiments].delete(ALICE, place.experiment)
    await place.world.reboot()
    if write == 1 and not after_commit:  # it was never acknowledged
        await place.services[Experiments].delete(ALICE, place.experiment)
    await place.collected()
    assert not await place.exists()
    assert await place.freed() == [(103, 3)], "of event files, too, which are no checkpoint"


async def test_a_deletion_books_nothing_that_a_task_of_collection_has_booked(place: Place) -> None:
    place.store_files()
    await place.end()
    await place.services[Collecting].apply(ALICE, place.experiment, GcRequest(purge=True))
    caller = await place.collector()
    found = await place.services[CollectionTasks].list(caller)
    told = CollectReport(items=[Collected(uuid=one.uuid) for one in found.items])
    await place.services[CollectionTasks].report(caller, told)
    before = await place.freed()
    await place.services[Experiments].delete(ALICE, place.experiment)
    await place.services[CollectionTasks].report(caller, told)
    assert await place.freed() == [(3, 3)]
    assert before == [(len(found.items), len(found.items))]
    assert await place.services.context.read(lambda s: list(s.scalars(select(RemovalRow)))) == []


async def test_rows_of_an_experiment_stay_until_its_files_are_gone(place: Place) -> None:
    """They were dropped where the master could not remove files, which then lay there for ever, known to nobody."""
    await place.end()
    left = await place.services[Experiments].delete(ALICE, place.experiment)
    assert left is not None
    assert (left.checkpoints, left.bytes, left.event_files, left.failure) == (3, 3, True, "")
    view = await place.view()
    assert view.state is ExperimentState.DELETING
    assert view.pending_reason == "3 checkpoints (3 B) and event files still stored: to be removed by a task"
    caller = await place.collector()
    found = await place.services[CollectionTasks].list(caller)
    assert found.event_files is None, "they come when it is known that the storage is there"
    told = [Collected(uuid=one.uuid, failure="the store is away") for one in found.items]
    again = await place.services[CollectionTasks].report(caller, CollectReport(items=told))
    assert (again.items, again.event_files) == ([], None)
    failed = await place.view()
    assert failed.pending_reason.endswith("still stored, and tried again later: the store is away")
    assert failed.deletion.retry_at == pytest.approx(place.world.now + AGAIN)
    assert failed.deletion.task is not None
    (listed,), _ = await place.services[Experiments].list(ALICE)
    assert listed.deletion == failed.deletion
    with pytest.raises(Conflict, match="is being deleted"):
        await place.services[Removals].undelete(ALICE, place.uuids[0])
    # Once more, at once, by its owner's wish.
    assert (await place.services[Experiments].delete(ALICE, place.experiment)).failure == ""
    found = await place.services[CollectionTasks].list(caller)
    assert len(found.items) == 3
    told = [Collected(uuid=one.uuid) for one in found.items]
    found = await place.services[CollectionTasks].report(caller, CollectReport(items=told))
    trial = (await place.world.trials(place.experiment))[0].id
    assert found.event_files.names == [f"tensorboard-{place.world.settings.cluster_id}-{place.experiment}-{trial}"]
    await place.services.tick()
    assert (await place.view()).pending_reason.startswith("event files still stored")
    end = CollectReport(event_files=CollectedFolders(freed=7))
    await place.services[CollectionTasks].report(caller, end)
    await place.services.tick()
    assert not await place.exists()
    assert await place.freed() == [(10, 3)]


async def test_a_task_that_says_nothing_of_event_files_is_not_followed_by_another_at_once(place: Place) -> None:
    """As those of older images do: there would be one task after another for ever."""
    await place.end()
    await place.services[Experiments].delete(ALICE, place.experiment)
    caller = await place.collector()
    found = await place.services[CollectionTasks].list(caller)
    told = [Collected(uuid=one.uuid) for one in found.items]
    assert (await place.services[CollectionTasks].report(caller, CollectReport(items=told))).event_files
    row = await place.services.context.read(lambda s: s.get_one(ExperimentRow, place.experiment))
    assert row.event_files_due == pytest.approx(place.world.now + AGAIN)
    assert (await place.services[CollectionTasks].list(caller)).event_files is None


async def test_only_an_administrator_gives_up_on_files_and_only_after_a_try(place: Place) -> None:
    await place.end()
    with pytest.raises(Forbidden):
        await place.services[Experiments].forget_files(ALICE, place.experiment)
    with pytest.raises(NotFound):
        await place.services[Experiments].forget_files(BOB, place.experiment)
    with pytest.raises(Conflict, match="only when they could not be removed"):
        await place.services[Experiments].forget_files(ROOT, place.experiment)
    await place.services[Experiments].delete(ALICE, place.experiment)
    with pytest.raises(Forbidden):
        await place.services[Experiments].forget_files(ALICE, place.experiment)
    await place.services[Experiments].forget_files(ROOT, place.experiment)
    assert not await place.exists()
    assert await place.freed() == [], "nobody knows that anything is gone"
    note = (await place.services[Audit].page(ROOT, action="experiment.forget_files")).items[0]
    assert (note.actor, note.subject) == (ROOT.name, f"experiment {place.experiment}")
    assert "3 checkpoints (3 B)" in note.detail


# --- event files


async def test_event_files_are_removed_of_an_experiment_that_has_ended(place: Place) -> None:
    with pytest.raises(Conflict, match="may still write event files"):
        await place.services[stored_files.EventFiles].delete(ALICE, place.experiment)
    await place.end()
    with pytest.raises(NotFound):
        await place.services[stored_files.EventFiles].delete(BOB, place.experiment)
    left = await place.services[stored_files.EventFiles].delete(ALICE, place.experiment)
    assert (left.checkpoints, left.event_files) == (0, True)
    caller = await place.collector()
    assert (await place.services[CollectionTasks].list(caller)).event_files
    end = CollectReport(event_files=CollectedFolders(freed=7))
    for _ in range(2):
        await place.services[CollectionTasks].report(caller, end)
    assert await place.freed() == [(7, 0)], "counted once"
    assert len(await place.services[Experiments].checkpoints(ALICE, place.experiment)) == 3
    assert (await place.view()).state is ExperimentState.COMPLETED


# --- credentials


async def test_a_task_of_collection_gets_credentials_of_its_experiment(make_world) -> None:
    asked: list[tuple[str, Any]] = []

    def give(owner, block):
        asked.append((owner, block["bucket"]))
        return {"token": "t"}

    place = await saved(make_world, storage_credentials=give)

    def move(unit) -> None:
        row = unit.session.get_one(ExperimentRow, place.experiment)
        row.config = {**row.config, "checkpoint_storage": STORE}

    await place.end()
    await place.services.context.write(move)
    await place.services[Collecting].apply(ALICE, place.experiment, GcRequest(purge=True))
    found = await place.services[Tasks].storage_credentials(await place.collector())
    assert found.values == {"token": "t"}
    assert asked == [(ALICE.name, "checkpoints")]


async def test_a_users_own_task_gets_no_credentials_of_an_experiment(make_world) -> None:
    place = await saved(make_world, storage_credentials=lambda *_: {"token": "t"})
    await place.end()
    request = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": ["true"]})
    made = await place.services[UserTasks].create(ALICE, request)
    noted = update(TaskRow).where(TaskRow.id == made.task.id).values(source={TaskNote.GC.value: place.experiment})
    await place.services.context.write(lambda unit: unit.session.execute(noted))
    await place.world.steps(2)

    def read(s) -> TaskCaller:
        return caller_of(s.scalars(select(AllocationRow).where(AllocationRow.task_id == made.task.id)).one())

    with pytest.raises(Conflict, match="only trials"):
        await place.services[Tasks].storage_credentials(await place.services.context.read(read))


@pytest.mark.parametrize("given", [True, False, None])
async def test_an_experiment_is_deleted_with_the_keys_that_its_owner_has(
    make_world, monkeypatch: pytest.MonkeyPatch, given: bool | None
) -> None:
    """Else the files stay for ever in a bucket that the master itself cannot write."""
    asked: list[str] = []
    used: list[Any] = []

    def give(owner, block):
        asked.append(owner)
        if given is None:
            raise RuntimeError("sts is away")
        return {"access_key_id": "a", "secret_access_key": "b", "token": "t"} if given else None

    place = await saved(make_world, storage_credentials=give, checkpoint_stores=(STORE,))

    def move(unit) -> None:
        for uuid in place.uuids:
            unit.session.get_one(CheckpointRow, uuid).storage = STORE

    await place.end()
    await place.services.context.write(move)
    monkeypatch.setattr(stored_files.files, "remove", lambda store, *_: used.append(store.block) or "")
    await place.services[Experiments].delete(ALICE, place.experiment)
    keys = {"access_key": "a", "secret_key": "b", "session_token": "t"} if given else {}
    assert used == [{**STORE, "prefix": None, **keys}] * 3
    assert asked == [ALICE.name], "asked once for all of a storage"


async def test_the_master_sends_its_keys_to_no_server_that_a_user_names(place: Place, unused_tcp_port: int) -> None:
    await place.end()
    evil = {**STORE, "endpoint_url": f"http://127.0.0.1:{unused_tcp_port}"}

    def move(unit) -> None:
        for uuid in place.uuids:
            unit.session.get_one(CheckpointRow, uuid).storage = evil

    await place.services.context.write(move)
    uuid = place.uuids[0]
    digest = (await place.services[Checkpoints].get(ALICE, uuid)).files["model.pt"].digest
    for ask in (
        lambda: place.services[Checkpoints].open_file(ALICE, uuid, digest),
        lambda: place.services[Checkpoints].open_archive(ALICE, uuid),
    ):
        with pytest.raises(NotTheClusters, match="one of the cluster's own"):
            await ask()
    await place.services[Experiments].delete(ALICE, place.experiment)
    assert await place.freed() == [], "nothing was asked of that server, so nothing is known to be gone"
    assert (await place.view()).deletion.checkpoints == 3


# --- what is, or is not, where the master looks


async def test_nothing_is_restored_from_the_trash_whose_files_are_gone(place: Place) -> None:
    shared = place.world.settings.state_dir / "shared"
    first, second, third = place.uuids
    await place.end()

    def move(unit) -> None:
        for uuid in place.uuids:
            unit.session.get_one(CheckpointRow, uuid).storage = {"type": "shared_fs", "host_path": str(shared)}

    await place.services.context.write(move)
    for uuid in place.uuids:
        await place.services[Removals].delete(ALICE, uuid)
    assert (await place.services[Removals].undelete(ALICE, third)).state == "COMPLETED", "not mounted: not judged"
    (shared / second).mkdir(parents=True)
    (shared / second / "model.pt").write_bytes(b"x")
    with pytest.raises(Conflict, match="its files are gone from its storage"):
        await place.services[Removals].undelete(ALICE, first)
    assert await place.state(first) == "DELETED"
    assert (await place.services[Removals].undelete(ALICE, second)).state == "COMPLETED"
    assert (await place.services[Removals].undelete(ALICE, second)).state == "COMPLETED"


async def test_a_directory_without_the_checkpoint_is_another_machines(place: Place) -> None:
    first, second, _ = place.uuids
    here = place.world.settings.state_dir / "checkpoints" / second
    here.mkdir()
    (here / "model.pt").write_bytes(b"x")
    for uuid in (first, second):
        await place.services[Removals].delete(ALICE, uuid, now=True)
    assert not here.exists()
    assert await place.freed() == [(1, 1)], "of the other nothing is known to be gone"
    await place.end()
    found = await place.services[CollectionTasks].list(await place.collector())
    assert [one.uuid for one in found.items] == [first]


async def test_a_collection_whose_experiment_was_removed_meanwhile_has_nothing_to_do(make_world: Any) -> None:
    """The master removes an experiment's files itself while its task starts; that task failed, with a card."""
    place = await saved(make_world)
    await place.end()
    await place.services[Experiments].delete(ALICE, place.experiment)
    caller = await place.collector()
    await place.services[Experiments].forget_files(ROOT, place.experiment)
    assert not await place.exists()
    found = await place.services[CollectionTasks].list(caller)
    assert (found.experiment_id, found.items, found.event_files) == (place.experiment, [], None)
    told = CollectReport(items=[Collected(uuid=place.uuids[0])], event_files=CollectedFolders(freed=100))
    assert (await place.services[CollectionTasks].report(caller, told)).items == []


@pytest.mark.soak
async def test_a_killed_collection_waits_longer_each_time_and_people_can_retry_it(make_world: Any) -> None:
    place = await saved(make_world)
    await place.end()
    uuid = place.uuids[0]
    await place.services[Removals].delete(ALICE, uuid, now=True)

    async def killed() -> str:
        await place.world.steps(4)
        caller = await place.collector()
        await place.services[CollectionTasks].list(caller)
        task = caller.holder_id if hasattr(caller, "holder_id") else None
        row = await place.services.context.read(lambda s: s.get_one(ExperimentRow, place.experiment).gc_task)
        assert task in (None, row)
        await place.services.end_task(ALICE, row)
        await place.world.steps(6)
        return row

    def current() -> Any:
        return place.services.context.read(lambda s: s.get_one(ExperimentRow, place.experiment).gc_task)

    async def pause_after(task: str) -> float:
        """Seconds until another task is there."""
        began = place.world.now
        while await current() == task:
            place.world.now += 1.0
            await place.services.tick()
            assert place.world.now < began + 4000
        return place.world.now - began

    pauses = [await pause_after(await killed()) for _ in range(4)]
    assert pauses == sorted(pauses)
    assert pauses[0] <= 11
    assert pauses[3] > 8 * pauses[1] > 16 * pauses[0] / 10
    (view,) = [
        one for one in await place.services[Experiments].checkpoints(ALICE, place.experiment) if one.uuid == uuid
    ]
    assert view.removing, "it is listed as being removed"
    task = await killed()
    with pytest.raises((Forbidden, NotFound)):
        await place.services[Collecting].apply(BOB, place.experiment, GcRequest(retry=True))
    assert (await place.services[Collecting].apply(ALICE, place.experiment, GcRequest(retry=True))).going == 1
    await place.services.tick()
    assert await current() not in (None, task), "a new one begins now"
