"""The task of a custom search: who may ask and answer, once each, and what happens when the task ends."""

from __future__ import annotations

import asyncio

import pytest
from services_scripted import ALICE, BOB, World, config, training
from sqlalchemy import select

from detlab.errors import ConfigError, Conflict, NotFound, StaleAttempt
from detlab.schemas.taskwire import CreateTask, TaskEnd, TaskKind
from detlab.schemas.wire import ExperimentState, SearchAnswer, SteerSearch, TrialState
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.fencing import caller_of
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.steering import SearchSteering
from detlab_hub.services.usertasks.search_tasks import SearchTasks
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.tables import AllocationRow, ExperimentRow, TaskRow

SPACE = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}
CUSTOM = {"name": "custom", "metric": "loss", "entrypoint": "mine:Mine", "max_trials": 4}


def create(key: str, lr: float = 0.5) -> dict[str, object]:
    return {"type": "create", "request_id": key, "hparams": {"lr": lr}}


async def submitted(world: World, **more) -> int:
    """Submit a custom search, whose task is begun at the next tick."""
    made = await world.submit(config({**CUSTOM, **more}, hyperparameters=SPACE))
    await world.services.tick()
    return made.id


async def caller(world: World, experiment_id: int) -> TaskCaller:
    """The current attempt of the search's task, as its token says."""

    def read(s) -> TaskCaller:
        task = s.get(ExperimentRow, experiment_id).search_task
        query = select(AllocationRow).where(AllocationRow.task_id == task).order_by(AllocationRow.run.desc())
        return caller_of(s.scalars(query).first())

    return await world.services.context.read(read)


async def answer(world: World, who: TaskCaller, number: int, *operations, failure: str = ""):
    said = SearchAnswer(number=number, operations=list(operations), failure=failure)
    return await world.services[SearchTasks].answer(who, said)


async def tasks_of(world: World, experiment_id: int) -> list[TaskRow]:
    def read(s) -> list[TaskRow]:
        rows = s.scalars(select(TaskRow).order_by(TaskRow.created_at, TaskRow.id)).all()
        return [row for row in rows if row.experiment_ids == [experiment_id]]

    return await world.services.context.read(read)


async def test_task_without_slots_is_begun_by_the_owner_and_asked_for_the_first_operations(make_world):
    world = await make_world(training(2))
    number = await submitted(world)
    [task] = await tasks_of(world, number)
    assert (task.owner, task.kind, task.config["resources"]["slots"]) == ("alice", "command", 0)
    assert (await world.view(number)).search_task == task.id
    await world.services.tick()
    assert len(await tasks_of(world, number)) == 1
    feed = await world.services[SearchTasks].feed(await caller(world, number), 0, 0.0)
    assert [event.type for event in feed.events] == ["initial_operations"]
    assert (feed.setup.entrypoint, feed.setup.max_trials, feed.over) == ("mine:Mine", 4, False)


async def test_a_task_without_a_place_is_why_its_experiment_waits(make_world):
    world = await make_world(training(2))
    number = await submitted(world)
    [task] = await tasks_of(world, number)

    async def told():
        return (await world.view(number)).pending_reason

    await world.until(told)
    queued = (await world.services[UserTasks].get(ALICE, task.id)).pending_reason
    assert queued
    assert await told() == f"the task of its search, {task.id}, waits: {queued}"
    [listed], _ = await world.services[Experiments].list(ALICE)
    assert listed.pending_reason == await told()
    await world.add_agent(slots=1)

    async def runs():
        return await told() is None

    await world.until(runs)


async def test_answer_makes_trials_once_and_survives_a_reboot(make_world):
    world = await make_world(training(2))
    number = await submitted(world)
    who = await caller(world, number)
    assert (await answer(world, who, 1, create("a"), create("b"))).accepted
    assert not (await answer(world, who, 1, create("a"), create("b"))).accepted
    assert not (await answer(world, who, 7, create("z"))).accepted
    await world.reboot()
    assert not (await answer(world, who, 1, create("a"))).accepted
    assert [trial.hparams for trial in await world.trials(number)] == [{"lr": 0.5}, {"lr": 0.5}]
    feed = await world.services[SearchTasks].feed(who, 0, 0.0)
    assert [event.type for event in feed.events] == ["initial_operations", "trial_created", "trial_created"]
    assert feed.events[0].operations == [create("a"), create("b")]
    assert feed.events[1].operations is None


async def test_journal_and_replay_show_what_the_class_decided(make_world):
    world = await make_world(training(2))
    number = await submitted(world)
    who = await caller(world, number)
    await answer(world, who, 1, create("a"), create("b"))
    await answer(world, who, 2, {"type": "close", "request_id": "a"})
    replayed = await world.services[SearchSteering].replay(ALICE, number, None)
    assert [(one.state, one.why) for one in replayed.trials] == [("ended", "closed by the class"), ("waiting", "")]
    entries = (await world.services[SearchSteering].journal(ALICE, number, 0, 100))[0]
    [first] = [one for one in entries if one.event.get("number") == 1]
    assert first.event["operations"] == [create("a"), create("b")]
    assert [one["type"] for one in first.decisions] == ["create_trial", "create_trial"]


async def test_long_poll_ends_when_there_is_an_event(make_world):
    world = await make_world(training(2))
    number = await submitted(world)
    who = await caller(world, number)
    waiting = asyncio.create_task(world.services[SearchTasks].feed(who, 1, 60.0))
    while not world.services.context.wakeups.has_waiters(("allocation", who.allocation_id)):
        await asyncio.sleep(0)
    await answer(world, who, 1, create("a"))
    assert [event.type for event in (await waiting).events] == ["trial_created"]


async def test_impossible_answer_names_every_mistake_and_is_not_journaled(make_world):
    world = await make_world(training(2))
    number = await submitted(world)
    who = await caller(world, number)
    before = (await world.services[SearchSteering].journal(ALICE, number, 0, 100))[0]
    with pytest.raises(ConfigError) as caught:
        await answer(world, who, 1, create("a", 3.0), {"type": "close", "request_id": "b"})
    assert len(caught.value.problems) == 2
    assert (await world.services[SearchSteering].journal(ALICE, number, 0, 100))[0] == before
    assert (await answer(world, who, 1, create("a"))).accepted


async def test_failure_pauses_the_experiment_and_activation_begins_the_task_anew(make_world):
    world = await make_world(training(2))
    number = await submitted(world)
    who = await caller(world, number)
    reply = await answer(world, who, 1, failure="mine.py, line 3: boom\nmine.py:3 in ask")
    assert (reply.accepted, reply.over) == (True, True)
    view = await world.view(number)
    assert view.state is ExperimentState.PAUSED
    assert view.failure is not None
    assert (view.failure.message, view.failure.log_tail) == ("mine.py, line 3: boom", ["mine.py:3 in ask"])
    await world.services[Experiments].activate(ALICE, number)
    await world.services.tick()
    tasks = {task.id: task for task in await tasks_of(world, number)}
    assert len(tasks) == 2
    failed = tasks[who.task_id or ""]
    assert (failed.state, failed.end_reason) == (TrialState.ERROR, TaskEnd.FAILED)
    assert (failed.failure or {})["message"] == "mine.py, line 3: boom"
    assert (await world.view(number)).failure is None
    with pytest.raises(StaleAttempt):
        await answer(world, who, 1, create("a"))
    again = await caller(world, number)
    assert again.task_id != who.task_id
    assert (await answer(world, again, 1, create("a"))).accepted


async def test_text_with_ids_that_are_no_trials_pauses_as_any_other(make_world):
    world = await make_world(training(2))
    number = await submitted(world)
    text = "no row 00000000-0000-4000-8000-000000000009"
    await answer(world, await caller(world, number), 1, failure=text)
    failure = (await world.view(number)).failure
    assert failure is not None
    assert failure.message == text


async def test_other_tasks_neither_read_nor_answer(make_world):
    world = await make_world(training(2))
    number = await submitted(world)
    request = CreateTask(
        kind=TaskKind.COMMAND, config={"entrypoint": ["true"], "resources": {"slots": 0}}, experiment_ids=[number]
    )
    made = (await world.services[UserTasks].create(ALICE, request)).task
    assert made is not None
    other = TaskCaller(f"{made.id}.1", None, None, 1, made.id)
    with pytest.raises(NotFound, match="runs no search"):
        await world.services[SearchTasks].feed(other, 0, 0.0)
    with pytest.raises(NotFound, match="runs no search"):
        await answer(world, other, 1, create("a"))
    assert await world.trials(number) == []


@pytest.mark.parametrize("act", ["pause", "cancel", "kill"])
async def test_task_ends_with_its_experiment(make_world, act):
    world = await make_world(training(2))
    number = await submitted(world)
    await getattr(world.services[Experiments], act)(ALICE, number)
    [task] = await tasks_of(world, number)
    assert TrialState(task.state).terminal
    assert task.end_reason == TaskEnd.CANCELED
    await world.services.tick()
    assert len(await tasks_of(world, number)) == 1


async def test_task_that_its_owner_kills_is_begun_again(make_world):
    world = await make_world(training(2))
    number = await submitted(world)
    [first] = await tasks_of(world, number)
    await world.services[UserTasks].end(ALICE, first.id)
    await world.services.tick()
    assert len(await tasks_of(world, number)) == 2
    assert (await world.view(number)).state is ExperimentState.ACTIVE


async def test_code_is_replaced_by_those_who_may_and_only_where_there_is_a_class(make_world):
    world = await make_world(training(2))
    number = await submitted(world)
    with pytest.raises(ConfigError, match="bundle"):
        await world.services[SearchSteering].steer(ALICE, number, SteerSearch(act="code", bundle="tree:0"))
    with pytest.raises(NotFound):
        await world.services[SearchSteering].steer(BOB, number, SteerSearch(act="code", bundle="tree:0"))
    plain = await world.submit(config({"name": "random", "metric": "loss", "max_trials": 1}))
    with pytest.raises(Conflict, match="its trials may run"):
        await world.services[SearchSteering].steer(ALICE, plain.id, SteerSearch(act="code", bundle="tree:0"))
