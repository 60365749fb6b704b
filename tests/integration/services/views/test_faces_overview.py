"""What a face starts from, the queue, and the events that say when to ask for them again."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from services_scripted import ALICE, BOB, ROOT, config, report, training
from sqlalchemy import event as sqlalchemy_event

from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab_hub.core.scheduling import (
    Agent,
    Job,
    Pool,
    PoolConfig,
    Pools,
    ReasonCode,
    Scheduler,
    SchedulerTask,
    Snapshot,
    TaskState,
    schedule,
)
from detlab_hub.services.agents.nodes import Nodes
from detlab_hub.services.base.callers import READ, WRITE, Caller
from detlab_hub.services.cluster.overview import Overview
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.queue import queue as queues
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.queue.pools import PoolViews
from detlab_hub.services.streams.stream import Stream
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.queries import events


async def command(world, caller, slots=1, **more):
    wanted = CreateTask(
        kind=TaskKind.COMMAND, config={"entrypoint": "true", "resources": {"slots": slots, **more}}, name="a command"
    )
    reply = await world.services[UserTasks].create(caller, wanted)
    return reply.task


async def collect(stream, until, seconds=20.0):
    got = []
    try:
        async with asyncio.timeout(seconds):
            async for batch in stream:
                got += batch
                if until(got):
                    return got
    finally:
        await stream.aclose()
    raise AssertionError("the stream ended")


# --- overview


async def test_faces_overview_shows_ones_own_work(make_world):
    world = await make_world(training(3))
    await world.add_agent(slots=2)
    mine = await world.submit(config(name="mine"))
    other = await world.submit(config(name="other"), BOB)
    task = await command(world, ALICE)
    await command(world, BOB)
    await world.steps(2)
    look = await world.services[Overview].view(Caller("alice", frozenset({READ, WRITE, "x"})))
    assert look.me.model_dump() == {"name": "alice", "scopes": [READ, WRITE], "admin": False}
    assert [view.id for view in look.experiments] == [mine.id]
    assert look.experiments[0].config is None
    assert [view.id for view in look.tasks] == [task.id]
    assert [agent.id for agent in look.agents] == ["node"]
    assert (look.cluster.slots_total, look.cluster.slots_used) == (2, 2)
    assert (look.agents[0].enabled, look.agents[0].runtimes) == (True, ["process"])
    assert look.cursor > 0
    for caller, everybody, seen in (
        (ALICE, True, {mine.id}),
        (ROOT, False, set()),
        (ROOT, True, {mine.id, other.id}),
    ):
        look = await world.services[Overview].view(caller, everybody=everybody)
        assert {view.id for view in look.experiments} == seen, (caller, everybody)
        assert len(look.tasks) == len(seen)


async def test_faces_overview_and_stream_are_one_story(make_world):
    """What changes after the look comes in the stream from its cursor, and nothing that was in it."""
    world = await make_world(training(2))
    made = await world.submit(config())
    look = await world.services[Overview].view(ALICE)
    await world.services[Experiments].pause(ALICE, made.id)
    got = await collect(world.services[Stream].events(ALICE, None, after=look.cursor), bool)
    assert all(event.id > look.cursor for event in got)
    (one,) = [event for event in got if event.kind == "experiment"]
    assert one.data["state"] == "PAUSED"


async def test_a_paused_experiment_tells_when_its_trials_have_left(make_world):
    """No page may show `1 pausing` for long, nor a reason to wait: it waits for nothing."""
    world = await make_world(training(1000, save_every=1000))
    await world.add_agent(slots=1)
    made = await world.submit(config({"name": "random", "metric": "loss", "max_trials": 2, "max_concurrent_trials": 2}))

    async def one_runs_and_one_waits():
        view = await world.view(made.id)
        return view.trials.get("RUNNING") == 1 and view.pending_reason

    await world.until(one_runs_and_one_waits)
    look = await world.services[Overview].view(ALICE)
    assert (await world.services[Experiments].pause(ALICE, made.id)).pending_reason is None
    assert (await world.view(made.id)).pending_reason is None
    await world.steps(40)
    assert (await world.view(made.id)).trials.get("RUNNING", 0) == 0
    got = await collect(world.services[Stream].events(ALICE, None, after=look.cursor), bool)
    last = [event.data for event in got if event.kind == "experiment"][-1]
    assert (last["state"], last["trials"].get("RUNNING", 0), last["pending_reason"]) == ("PAUSED", 0, None)


async def test_the_end_of_an_attempt_is_an_event_of_its_experiment(make_world):
    """Where nothing else changed, pages showed `1 pausing` until the next change."""

    def leaves(launch):
        for step in itertools.count(1):
            yield report(step, loss=1.0)
            if (yield ("poll",)):
                yield ("exit", 0)

    world = await make_world(leaves)
    await world.add_agent(slots=1)
    made = await world.submit(config({"name": "single", "metric": "loss"}))
    for _ in range(2):  # the first time a trial leaves without a checkpoint, its warning is an event, too
        await world.until(lambda: trains(world, made.id))
        await world.services[Experiments].pause(ALICE, made.id)
        cursor = (await world.services[Overview].view(ALICE)).cursor
        for _ in range(40):
            world.now += 1
            await world.steps(1)
        assert (await world.view(made.id)).trials.get("RUNNING", 0) == 0
        times = {}
        for event in await collect(world.services[Stream].events(ALICE, None, after=cursor), bool):
            times[event.kind] = event.time
        assert times["experiment"] == times["trial"]
        await world.services[Experiments].activate(ALICE, made.id)


async def trains(world, experiment_id):
    [trial] = await world.trials(experiment_id)
    return trial.steps_completed > 2 and (await world.view(experiment_id)).trials.get("RUNNING") == 1


async def test_faces_overview_keeps_living_tasks_and_the_newest_ended(make_world, monkeypatch):
    monkeypatch.setattr("detlab_hub.services.cluster.overview.ENDED_TASKS", 3)
    world = await make_world()
    living, ended = [], []
    for number in range(6):
        world.now += 1
        task = await command(world, ALICE)
        living.append(task.id)
        if number % 6 != 0:
            await world.services[UserTasks].end(ALICE, task.id)
            ended.append(living.pop())
    look = await world.services[Overview].view(ALICE)
    assert {task.id for task in look.tasks if not task.state.terminal} == set(living)
    assert [task.id for task in look.tasks if task.state.terminal] == list(reversed(ended))[:3]
    times = [task.created_at for task in look.tasks]
    assert times == sorted(times, reverse=True)


async def test_faces_overview_of_an_empty_cluster(make_world):
    world = await make_world()
    look = await world.services[Overview].view(ALICE)
    assert (look.experiments, look.tasks, look.queue, look.agents) == ([], [], [], [])


# --- the queue


async def test_faces_queue_is_in_the_schedulers_order(make_world):
    world = await make_world(training(3))
    await world.submit(config(name="late", resources={"slots_per_trial": 1, "priority": 50}))
    world.now += 1
    search = await world.submit(
        config({"name": "random", "metric": "loss", "max_trials": 3, "max_concurrent_trials": 3}, name="search")
    )
    world.now += 1
    task = await command(world, ALICE)
    world.now += 1
    await world.submit(config(name="first", resources={"slots_per_trial": 1, "priority": 1}))
    await world.services.schedule()
    view = await world.services[queues.Queue].view(ALICE)
    assert [item.place for item in view.items] == [1, 2, 3, 4, 5, 6]
    assert [item.name for item in view.items] == ["first", "search", "search", "search", "a command", "late"]
    assert [item.kind for item in view.items] == ["trial"] * 4 + ["command", "trial"]
    assert [item.experiment_id for item in view.items][1:4] == [search.id] * 3
    assert view.items[4].task_id == task.id
    assert all(item.mine and item.owner == "alice" for item in view.items)
    assert [item.allocation_id for item in view.items] == list(world.services.context.pending_reasons)
    assert {item.reason for item in view.items} == {"no agent is connected"}
    shown = await world.services[UserTasks].get(ALICE, task.id)
    assert (shown.place, shown.pending_reason) == (5, "no agent is connected")


async def test_the_place_of_a_task_is_counted_in_its_own_pool_as_in_the_queue(make_world):
    pools = Pools(
        {
            "default": PoolConfig("default"),
            "fair": PoolConfig("fair", Pool(Scheduler.FAIR_SHARE)),
        }
    )
    world = await make_world(training(3), pools=pools)
    tasks = []
    for pool, priority in [("default", 42), ("fair", 90), ("default", 42), ("fair", 1), ("default", 1)]:
        tasks.append((await command(world, ALICE, resource_pool=pool, priority=priority)).id)
        world.now += 1
    await world.services.schedule()
    items = (await world.services[queues.Queue].view(ALICE)).items
    queued = {item.task_id: (item.pool, item.place) for item in items}
    assert [queued[task] for task in tasks] == [
        ("default", 2),
        ("fair", 1),
        ("default", 3),
        ("fair", 2),
        ("default", 1),
    ]
    shown = [await world.services[UserTasks].get(ALICE, task) for task in tasks]
    assert [(one.resource_pool, one.place) for one in shown] == [queued[task] for task in tasks]
    seen = {one.id: one.place for one in (await world.services[Overview].view(ALICE)).tasks}
    assert [seen[task] for task in tasks] == [2, 1, 3, 2, 1]
    for task in tasks:
        (why,) = (await world.services[Jobs].why(ALICE, task)).items
        assert (why.pool, why.place) == queued[task]


async def test_I9_the_queue_names_nobody_elses_work(make_world):
    world = await make_world(training(3))
    await world.submit(config(name="secret name"), BOB)
    world.now += 1
    await world.submit(config(name="mine"))
    await world.services.schedule()
    theirs, mine = (await world.services[queues.Queue].view(ALICE)).items
    assert (theirs.owner, theirs.place, theirs.mine, mine.place, mine.mine) == ("another user", 1, False, 2, True)
    assert (theirs.name, theirs.experiment_id, theirs.trial_id, theirs.task_id, theirs.reason) == (
        *("", None, None, None),
        "",
    )
    assert "secret" not in theirs.model_dump_json()
    assert "bob" not in theirs.model_dump_json()
    assert theirs.allocation_id != mine.allocation_id
    for item in (await world.services[queues.Queue].view(ROOT)).items:
        assert item.owner in ("alice", "bob")
        assert item.name
        assert not item.mine


def test_I9_a_reason_names_no_task_of_somebody_else():
    for other, named in (("bob", False), ("alice", True)):
        plan = schedule(
            Snapshot(
                Pool(),
                agents=(Agent("node", 3),),
                jobs={"x": Job("x"), "experiment 12": Job("experiment 12", 1), "experiment 13": Job("experiment 13")},
                tasks=(
                    SchedulerTask("11.running.1", "x", 1, TaskState.RUNNING, on={"node": 1}),
                    SchedulerTask("12.secret.1", "experiment 12", 3, user=other),
                    SchedulerTask("13.mine.1", "experiment 13", 1, user="alice"),
                ),
                private=True,
            )
        )
        reason = plan.waiting["13.mine.1"]
        assert reason.code is ReasonCode.BEHIND
        assert ("12.secret.1" in reason.detail) is named
        assert ("experiment 12" in reason.detail) is False
        assert "3 slots" in reason.detail


async def test_faces_queue_of_many_has_the_first_and_ones_own(make_world):
    world = await make_world()
    many = {"name": "random", "metric": "loss", "max_trials": 8, "max_concurrent_trials": 8}
    await world.submit(config(many), BOB)
    world.now += 1
    await world.submit(config(many))
    context = world.services.context
    items = await context.read(lambda s: queues.items(s, ALICE, context, 3))
    assert [(item.place, item.mine) for item in items] == [
        *((place, False) for place in (1, 2, 3)),
        *((place, True) for place in (9, 10, 11)),
    ]


async def test_a_pool_of_another_scheduler_crowds_nobody_out_of_the_queue(make_world):
    """Under fair share priorities do not count, and all of such a pool came before what others rank by priority."""
    fair, prio = Pool(Scheduler.FAIR_SHARE), Pool(Scheduler.PRIORITY)
    pools = Pools(
        {"default": PoolConfig("default"), "fair": PoolConfig("fair", fair), "prio": PoolConfig("prio", prio)}
    )
    world = await make_world(pools=pools)
    await command(world, BOB, resource_pool="prio", priority=1)
    await command(world, ALICE, resource_pool="prio", priority=1)
    world.now += 1
    many = {"name": "random", "metric": "loss", "max_trials": 20, "max_concurrent_trials": 20}
    await world.submit(config(many, resources={"slots_per_trial": 1, "resource_pool": "fair"}))
    context = world.services.context
    for caller in (ALICE, BOB, ROOT):
        items = await context.read(lambda s, caller=caller: queues.items(s, caller, context, 8))
        shown = {pool: [item.place for item in items if item.pool == pool] for pool in ("prio", "fair")}
        assert shown == {"prio": [1, 2], "fair": [1, 2, 3, 4, 5, 6] + [7] * (caller is ALICE)}
    listed = {pool.name: pool.tasks_waiting for pool in (await world.services[PoolViews].list()).items}
    assert listed == {"default": 0, "prio": 2, "fair": 20}, "however many items are sent"


@pytest.mark.parametrize(
    ("wanted", "limit", "given"),
    [
        ({}, 10, {}),
        ({"a": 3}, 10, {"a": 3}),
        ({"a": 250, "b": 3}, 200, {"a": 197, "b": 3}),
        ({"a": 250, "b": 250, "c": 10}, 200, {"a": 95, "b": 95, "c": 10}),
        ({"a": 5, "b": 5, "c": 5}, 2, {"a": 1, "b": 1, "c": 0}),
    ],
)
def test_the_items_of_one_look_are_shared_by_the_pools(wanted, limit, given):
    assert queues.shares(wanted, limit) == given


# --- events


async def test_faces_stream_tells_a_tasks_owner_and_administrators(make_world):
    world = await make_world(training(3))
    await world.add_agent()
    task = await command(world, ALICE)
    await world.services.schedule()
    for caller in (ALICE, ROOT):
        got = await collect(
            world.services[Stream].events(caller, None, after=0), lambda got: any(event.kind == "task" for event in got)
        )
        (one,) = [event for event in got if event.kind == "task"]
        assert (one.task_id, one.data["id"], one.data["name"]) == (task.id, task.id, "a command")
        assert "config" not in one.data
    mine = await world.submit(config(), BOB)
    got = await collect(
        world.services[Stream].events(BOB, None, after=0), lambda got: any(event.kind == "trial" for event in got)
    )
    assert not [event for event in got if event.kind == "task"], "I9"
    assert {event.experiment_id for event in got} <= {mine.id, None}


async def test_faces_stream_says_cluster_once_per_batch_to_everybody_without_data(make_world):
    world = await make_world(training(2))
    await world.add_agent()
    before = (await world.services[Overview].view(ALICE)).cursor
    made = await world.submit(config())
    await world.finish(made.id)
    got = await collect(world.services[Stream].events(BOB, None, after=before), bool)
    assert [(event.kind, event.data, event.experiment_id) for event in got] == [("cluster", {}, None)]


@pytest.mark.parametrize("what", ["connect", "leave", "disable", "enable", "submit", "remove", "drop"])
async def test_faces_a_cluster_event_follows_every_change_of_queue_or_agents(make_world, what):
    world = await make_world(training(50))
    agent = await world.add_agent("one")
    made = await world.submit(config())
    await world.steps(3)
    if what == "enable":
        await world.services[Nodes].disable(ROOT, "one")
    cursor = (await world.services[Overview].view(ALICE)).cursor
    match what:
        case "connect":
            await world.add_agent("two")
        case "leave":
            await world.services[Experiments].kill(ALICE, made.id)
            await world.steps(2)
        case "disable" | "enable" | "remove":
            await getattr(world.services[Nodes], what)(ROOT, "one")
        case "submit":
            await world.submit(config())
        case "drop":
            agent.drop()
            await world.services.tick()
    got = await collect(world.services[Stream].events(BOB, None, after=cursor), bool)
    assert "cluster" in [event.kind for event in got]


async def test_faces_nothing_new_is_no_cluster_event(make_world):
    world = await make_world(training(50))
    await world.add_agent()
    await world.submit(config())
    await world.submit(config())
    await world.steps(3)
    cursor = (await world.services[Overview].view(ALICE)).cursor

    def clusters(s):
        return [event for event in events.after(s, cursor) if event.kind == "cluster"]

    await world.steps(5)
    assert await world.services.context.read(clusters) == [], "the same reasons are no news"


async def test_faces_overview_asks_as_little_for_many_as_for_few(make_world):
    """The number of statements does not grow with what is shown (no query per row)."""
    world = await make_world(training(2))
    await world.add_agent(slots=2)
    asked = []
    sqlalchemy_event.listen(
        world.store._read_engine, "before_cursor_execute", lambda *arguments: asked.append(arguments[2])
    )
    counts = []
    for rounds in (2, 10):
        for _ in range(rounds):
            await world.submit(config({"name": "random", "metric": "loss", "max_trials": 2}))
            await command(world, ALICE)
        await world.steps(3)
        asked.clear()
        look = await world.services[Overview].view(ALICE)
        counts.append((len(look.experiments), len(asked)))
    (few, first), (many, second) = counts
    assert (few, many) == (2, 12)
    assert first == second <= 25, asked
