"""Collection of an experiment's checkpoints: by policy, into the trash, and away by a task of the owner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from services_scripted import ALICE, BOB, ROOT, World, config, report
from sqlalchemy import select, update

from detlab.errors import Conflict, Forbidden, NotFound, StaleAttempt
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import GrantRequest
from detlab.schemas.wire.storage import Bookmark, Collected, CollectReport, EmptyTrash, GcPolicy, GcRequest
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.fencing import caller_of
from detlab_hub.services.checkpoints.checkpoints import Checkpoints
from detlab_hub.services.checkpoints.collecting import Collecting
from detlab_hub.services.checkpoints.removals import Removals
from detlab_hub.services.checkpoints.trash import Trash
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.usertasks.collection_tasks import AGAIN, CollectionTasks
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.tables import AllocationRow, ExperimentRow, FreedRow, RemovalRow, TaskNote, TaskRow

WEEK = 7 * 86400.0
LOSSES = {1: 0.6, 2: 0.2, 3: 0.4, 4: 0.5}


class Saving:
    """Reports and saves four times, the best at step 2, then waits to be let go; other tasks do nothing."""

    def __init__(self) -> None:
        self.done = False

    def __call__(self, launch: Any) -> Iterator[Any]:
        if not launch.info.trial_id:
            while True:
                yield ("wait",)
        for step, loss in LOSSES.items():
            yield report(step, loss=loss)
            yield ("save", step)
        while not self.done:
            yield ("wait",)
        yield ("exit", 0)


class Place:
    """A world with one experiment of one trial that has saved four times."""

    def __init__(self, world: World, script: Saving, experiment: int) -> None:
        self.world, self.script, self.experiment = world, script, experiment

    @property
    def services(self):
        return self.world.services

    async def steps(self, state: str = "COMPLETED") -> list[int]:
        found = await self.services[Experiments].checkpoints(ALICE, self.experiment)
        return sorted(item.steps_completed for item in found if item.state == state)

    async def uuid(self, step: int) -> str:
        found = await self.services[Experiments].checkpoints(ALICE, self.experiment)
        return next(item.uuid for item in found if item.steps_completed == step)

    async def end(self) -> None:
        self.script.done = True
        await self.world.finish(self.experiment)

    async def later(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.store.renew_lease()
        await self.services.tick()

    async def ended_and_collected(self) -> None:
        await self.end()
        await self.later(61.0)

    async def task(self) -> TaskRow:
        def read(s) -> TaskRow:
            return s.get(TaskRow, s.get(ExperimentRow, self.experiment).gc_task or "")

        return await self.services.context.read(read)

    async def caller(self) -> TaskCaller:
        """The current attempt of the task that removes, as its token says."""

        def read(s) -> TaskCaller:
            task = s.get(ExperimentRow, self.experiment).gc_task
            query = select(AllocationRow).where(AllocationRow.task_id == task).order_by(AllocationRow.run.desc())
            return caller_of(s.scalars(query).first())

        return await self.services.context.read(read)

    async def freed(self) -> list[tuple[str, int, int]]:
        rows = await self.services.context.read(lambda s: list(s.scalars(select(FreedRow))))
        return [(row.owner, row.bytes, row.count) for row in rows]

    async def removals(self) -> list[RemovalRow]:
        return await self.services.context.read(lambda s: list(s.scalars(select(RemovalRow))))


@pytest.fixture
async def place(make_world) -> Place:
    script = Saving()
    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config())
    here = Place(world, script, made.id)

    async def saved() -> bool:
        return len(await here.steps()) == 4

    await world.until(saved)
    return here


# --- by policy


async def test_an_experiment_that_has_ended_keeps_its_best_and_its_latest(place: Place) -> None:
    await place.end()
    assert await place.steps() == [1, 2, 3, 4], "there is time to look at them"
    await place.later(61.0)
    assert await place.steps() == [2, 4]
    assert await place.steps("DELETED") == [1, 3]
    gone = await place.services[Checkpoints].get(ALICE, await place.uuid(1))
    assert gone.trash_until == pytest.approx(place.world.now + WEEK)
    actions = [(one.actor, one.action) for one in (await place.services[Audit].page(ROOT, action="experiment")).items]
    assert ("cluster", "experiment.gc") in actions


async def test_the_policy_of_the_config_is_used(make_world) -> None:
    script = Saving()
    world = await make_world(script)
    await world.add_agent()
    storage = {"save_experiment_best": 2, "save_trial_best": 0, "save_trial_latest": 0}
    here = Place(world, script, (await world.submit(config(checkpoint_storage=storage))).id)
    await here.ended_and_collected()
    assert await here.steps() == [2, 3]
    (trial,) = await world.trials(here.experiment)
    assert trial.latest_checkpoint == await here.uuid(3)


async def test_a_preview_changes_nothing_and_says_why(place: Place) -> None:
    await place.end()
    found = await place.services[Collecting].preview(ALICE, place.experiment)
    assert (found.going, found.staying, found.freed, found.kept, found.applied) == (2, 2, 2, 2, False)
    assert [(one.steps_completed, one.keep) for one in found.items] == [(3, False), (1, False), (4, True), (2, True)]
    assert found.items[3].why == ["best of its trial (1 of 1)"]
    other = await place.services[Collecting].preview(ALICE, place.experiment, GcPolicy(save_trial_latest=3))
    assert (other.going, other.policy.save_trial_latest) == (1, 3)
    assert await place.steps() == [1, 2, 3, 4]


async def test_a_changed_policy_is_applied_at_once_to_what_has_ended(place: Place) -> None:
    await place.end()
    wanted = GcRequest(policy=GcPolicy(save_trial_best=0, save_trial_latest=1))
    done = await place.services[Collecting].apply(ALICE, place.experiment, wanted)
    assert (done.applied, done.going, await place.steps()) == (True, 3, [4])
    again = await place.services[Collecting].apply(ALICE, place.experiment, wanted)
    assert (again.going, await place.steps()) == (0, [4])


async def test_a_changed_policy_of_a_running_experiment_waits_for_its_end(place: Place) -> None:
    wanted = GcRequest(policy=GcPolicy(save_trial_best=0, save_trial_latest=1))
    done = await place.services[Collecting].apply(ALICE, place.experiment, wanted)
    assert (done.applied, await place.steps()) == (False, [1, 2, 3, 4])
    with pytest.raises(Conflict, match="collected when it has ended"):
        await place.services[Collecting].apply(ALICE, place.experiment, GcRequest())
    await place.ended_and_collected()
    assert await place.steps() == [4]


async def test_a_running_experiment_is_collected_when_asked_but_for_what_is_needed(place: Place) -> None:
    wanted = GcRequest(policy=GcPolicy(save_trial_best=1, save_trial_latest=0), now=True)
    done = await place.services[Collecting].apply(ALICE, place.experiment, wanted)
    assert (done.applied, await place.steps()) == (True, [2, 4])
    (pinned,) = [one for one in done.items if one.pins]
    assert (pinned.steps_completed, pinned.keep, pinned.pins[0].kind) == (4, True, "resume")


# --- trash


async def test_a_collected_checkpoint_is_restored_from_the_trash(place: Place) -> None:
    await place.end()
    nothing = GcRequest(policy=GcPolicy(save_trial_best=0, save_trial_latest=0))
    await place.services[Collecting].apply(ALICE, place.experiment, nothing)
    (trial,) = await place.world.trials(place.experiment)
    assert (await place.steps(), trial.latest_checkpoint) == ([], None)
    view = await place.services[Removals].undelete(ALICE, await place.uuid(3))
    assert (view.state, view.trash_until) == ("COMPLETED", None)
    (trial,) = await place.world.trials(place.experiment)
    assert trial.latest_checkpoint == view.uuid
    assert await place.services[Removals].undelete(ALICE, view.uuid) == view
    assert len(await place.removals()) == 3


async def test_no_trial_starts_from_the_trash(place: Place) -> None:
    await place.ended_and_collected()
    source = {"name": "single", "metric": "loss", "source_checkpoint_uuid": await place.uuid(1)}
    with pytest.raises(Exception, match="there is no checkpoint"):
        await place.world.submit(config(source))


async def test_a_deleted_checkpoint_is_in_the_trash_and_purged_on_request(place: Place) -> None:
    uuid = await place.uuid(1)
    view = await place.services[Removals].delete(ALICE, uuid)
    assert view.trash_until == pytest.approx(place.world.now + WEEK)
    await place.services[Removals].finish()
    assert len(await place.removals()) == 1
    await place.services[Removals].delete(ALICE, uuid, now=True)
    await place.later(1.0)
    await place.world.steps(2)
    await place.services[CollectionTasks].list(await place.caller())
    with pytest.raises(Conflict, match="cannot be restored: its files are being removed"):
        await place.services[Removals].undelete(ALICE, uuid)


# --- the task


async def test_a_task_of_the_owner_removes_what_is_due(place: Place) -> None:
    await place.ended_and_collected()
    assert await place.task() is None
    await place.later(WEEK)
    task = await place.task()
    assert (task.owner, task.kind, task.name) == ("alice", "command", f"gc of experiment {place.experiment}")
    assert task.config["entrypoint"] == ["python3", "-m", "detlab.run.collect"]
    assert task.config["resources"]["slots"] == 0
    await place.services.tick()
    assert (await place.task()).id == task.id, "one at a time"
    await place.world.steps(2)
    caller = await place.caller()
    found = await place.services[CollectionTasks].list(caller)
    assert {item.uuid for item in found.items} == {await place.uuid(1), await place.uuid(3)}
    assert found.items[0].files == {"model.pt": 1}
    with pytest.raises(Conflict, match="cannot be restored"):
        await place.services[Removals].undelete(ALICE, found.items[0].uuid)
    told = CollectReport(items=[Collected(uuid=item.uuid) for item in found.items])
    for _ in range(2):
        assert (await place.services[CollectionTasks].report(caller, told)).items == []
    assert await place.freed() == [("alice", 2, 2)], "counted once"
    assert await place.removals() == []
    with pytest.raises(Conflict, match="its files are gone"):
        await place.services[Removals].undelete(ALICE, found.items[0].uuid)


async def test_what_could_not_be_removed_is_tried_again_later(place: Place) -> None:
    await place.ended_and_collected()
    await place.later(WEEK)
    await place.world.steps(2)
    caller = await place.caller()
    found = await place.services[CollectionTasks].list(caller)
    told = [Collected(uuid=item.uuid, failure="the store is away") for item in found.items]
    assert (await place.services[CollectionTasks].report(caller, CollectReport(items=told))).items == []
    assert {row.failure for row in await place.removals()} == {"the store is away"}
    await place.services[Removals].delete(ALICE, await place.uuid(2))
    left = (await place.services[Experiments].get(ALICE, place.experiment)).deletion
    assert (left.checkpoints, left.bytes, left.failure) == (2, 2, "the store is away"), "none that can be restored"
    assert (await place.services[Experiments].get(ALICE, place.experiment)).pending_reason is None
    await place.later(AGAIN + 1)
    assert len((await place.services[CollectionTasks].list(await place.caller())).items) == 2


async def test_a_task_lost_with_its_node_is_followed_by_another(place: Place) -> None:
    await place.ended_and_collected()
    await place.later(WEEK)
    await place.world.steps(2)
    first, old = await place.task(), await place.caller()
    await place.services[CollectionTasks].list(old)
    place.world.agents["node"].drop()
    place.world.agents.clear()
    await place.world.steps(100)
    second = await place.task()
    assert second.id != first.id
    assert second.state == "ACTIVE"
    with pytest.raises(StaleAttempt):
        await place.services[CollectionTasks].report(old, CollectReport(items=[]))


async def test_the_master_may_die_before_and_after_each_step(place: Place) -> None:
    await place.end()
    await place.world.reboot()
    await place.later(61.0)
    await place.world.reboot()
    assert await place.steps() == [2, 4]
    await place.later(WEEK)
    await place.world.reboot()
    await place.world.steps(4)
    assert len((await place.services[CollectionTasks].list(await place.caller())).items) == 2


async def test_only_the_tasks_that_the_master_starts_are_told_what_to_remove(place: Place) -> None:
    await place.ended_and_collected()
    await place.later(WEEK)
    request = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": ["true"]})
    made = await place.services[UserTasks].create(BOB, request)
    noted = update(TaskRow).where(TaskRow.id == made.task.id).values(source={TaskNote.GC.value: place.experiment})
    await place.services.context.write(lambda unit: unit.session.execute(noted))
    await place.world.steps(2)

    def read(s) -> TaskCaller:
        return caller_of(s.scalars(select(AllocationRow).where(AllocationRow.task_id == made.task.id)).first())

    with pytest.raises(NotFound):
        await place.services[CollectionTasks].list(await place.services.context.read(read))


# --- emptying the trash


async def test_the_trash_is_emptied_of_what_was_looked_at(place: Place) -> None:
    await place.ended_and_collected()
    found = await place.services[Trash].look(ALICE, place.experiment)
    assert (found.checkpoints, found.bytes, found.emptied) == (2, 2, False)
    assert [(one.experiment_id, one.checkpoints) for one in found.items] == [(place.experiment, 2)]
    place.world.now += 1.0
    later = await place.uuid(2)
    await place.services[Removals].delete(ALICE, later)
    wanted = EmptyTrash(experiment_id=place.experiment, until=found.at)
    for at_once in (2, 0):
        emptied = await place.services[Trash].empty(ALICE, wanted)
        assert (emptied.checkpoints, emptied.emptied) == (at_once, True)
    with pytest.raises(Conflict, match="are being removed"):
        await place.services[Removals].undelete(ALICE, await place.uuid(1))
    assert (await place.services[Removals].undelete(ALICE, later)).state == "COMPLETED", "deleted after the look"
    await place.world.steps(4)
    assert len((await place.services[CollectionTasks].list(await place.caller())).items) == 2
    notes = (await place.services[Audit].page(ROOT, action="experiment.empty_trash")).items
    assert [(one.actor, one.detail) for one in notes] == [("alice", "2 checkpoints, 2 bytes")]


async def test_all_that_is_ones_own_is_emptied_and_nothing_of_others(place: Place) -> None:
    await place.ended_and_collected()
    assert (await place.services[Trash].empty(BOB, EmptyTrash())).checkpoints == 0
    assert (await place.services[Trash].empty(ROOT, EmptyTrash())).checkpoints == 0, "an administrator's own"
    for ask in (
        lambda: place.services[Trash].look(BOB, place.experiment),
        lambda: place.services[Trash].empty(BOB, EmptyTrash(experiment_id=place.experiment)),
    ):
        with pytest.raises(NotFound):
            await ask()
    await place.services[Grants].put(ALICE, place.experiment, GrantRequest(kind="user", name="bob", write=True))
    with pytest.raises(Forbidden):
        await place.services[Trash].empty(BOB, EmptyTrash(experiment_id=place.experiment))
    assert (await place.services[Trash].look(ALICE)).checkpoints == 2
    assert (await place.services[Trash].empty(ALICE, EmptyTrash())).checkpoints == 2
    assert (await place.services[Trash].look(ALICE)).checkpoints == 0


# --- rights and pins


async def test_i9_only_its_owner_collects(place: Place) -> None:
    await place.end()
    collecting = place.services[Collecting]
    uuid = await place.uuid(1)
    for act in (
        lambda: collecting.preview(BOB, place.experiment),
        lambda: collecting.apply(BOB, place.experiment, GcRequest(now=True)),
        lambda: collecting.pins(BOB, uuid),
        lambda: collecting.bookmark(BOB, uuid, Bookmark()),
        lambda: place.services[Removals].undelete(BOB, uuid),
    ):
        with pytest.raises(NotFound):
            await act()
    grant = GrantRequest(kind="user", name="bob", write=True)
    await place.services[Grants].put(ALICE, place.experiment, grant)
    assert (await collecting.preview(BOB, place.experiment)).going == 2
    with pytest.raises(Forbidden):
        await collecting.apply(BOB, place.experiment, GcRequest(now=True))
    assert (await collecting.bookmark(BOB, uuid, Bookmark(note="<b>mine</b>"))).items[0].kind == "bookmark"


async def test_a_bookmark_pins_until_it_is_removed(place: Place) -> None:
    await place.end()
    uuid = await place.uuid(1)
    collecting = place.services[Collecting]
    await collecting.bookmark(ALICE, uuid, Bookmark(note="for the paper"))
    (pin,) = (await collecting.pins(ALICE, uuid)).items
    assert pin.reason == "alice has bookmarked it: for the paper"
    with pytest.raises(Conflict, match="alice has bookmarked it: for the paper") as refused:
        await place.services[Removals].delete(ALICE, uuid)
    assert f"det checkpoint unbookmark {uuid}" in refused.value.hint
    with pytest.raises(Conflict, match="has checkpoints in use"):
        await place.services[Experiments].delete(ALICE, place.experiment)
    await place.later(61.0)
    assert await place.steps() == [1, 2, 4]
    assert (await collecting.unbookmark(ALICE, uuid)).items == []
    await collecting.apply(ALICE, place.experiment, GcRequest())
    assert await place.steps() == [2, 4]
    with pytest.raises(Conflict, match="is deleted"):
        await collecting.bookmark(ALICE, uuid, Bookmark())


async def test_a_pinned_checkpoint_is_refused_with_all_of_its_pins(place: Place) -> None:
    uuid = await place.uuid(4)
    source = {"name": "single", "metric": "loss", "source_checkpoint_uuid": uuid}
    other = await place.world.submit(config(source), activate=False)
    request = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": ["evaluate", uuid]})
    task = (await place.services[UserTasks].create(ALICE, request)).task.id
    await place.services[Collecting].bookmark(ALICE, uuid, Bookmark())
    (trial,) = await place.world.trials(place.experiment)
    with pytest.raises(Conflict) as refused:
        await place.services[Removals].delete(ALICE, uuid)
    for reason in (
        f"trial {trial.id}, which has not ended, resumes from it",
        f"experiment {other.id}, which has not ended, starts from it",
        f"task {task}, which has not ended, names it in its entrypoint",
        "alice has bookmarked it",
    ):
        assert reason in str(refused.value)
    kinds = [pin.kind for pin in (await place.services[Collecting].pins(ALICE, uuid)).items]
    assert kinds == ["resume", "warm_start", "evaluation", "bookmark"]
