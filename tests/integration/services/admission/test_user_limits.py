"""Limits of one user: at it, beyond it, another user meanwhile, and later; each refusal says what to do."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from services_scripted import ALICE, BOB, ROOT, World, config, training

from detlab.errors import Conflict, Forbidden, LimitReached
from detlab.schemas.jobwire import JobUpdate
from detlab.schemas.taskwire import CreateTask, SpawnRequest, TaskKind
from detlab.schemas.wire import CreateExperiment, LogRecord, MetricsRecord, RecordBatch
from detlab_hub.services import TaskCaller
from detlab_hub.services.admission.bundles import Bundles
from detlab_hub.services.admission.user_limits import MOST_SHOWN, SETTINGS_OF, UserLimits
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.base.callers import HubCaller
from detlab_hub.services.base.limits.model import PerUserLimits
from detlab_hub.services.base.limits.reached import Reached
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.usertasks.spawns import Spawns
from detlab_hub.services.usertasks.usertasks import UserTasks

NONE = PerUserLimits.unlimited()
GIB = 1024**3


def idle(launch: Any) -> Any:
    while True:
        yield ("wait",)


def command(slots: int = 1, **resources: Any) -> CreateTask:
    return CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true", "resources": {"slots": slots, **resources}})


async def start(world: World, caller: Any = ALICE, slots: int = 1, **resources: Any) -> str:
    reply = await world.services[UserTasks].create(caller, command(slots, **resources))
    assert reply.task is not None
    return reply.task.id


def tells_what_to_do(error: Any, setting: str, name: str) -> None:
    assert isinstance(error, Reached)
    assert error.code == f"limit.{name}"
    assert setting in SETTINGS_OF.values()
    assert f"c.UserLimits.{setting}" in (error.hint or "")
    assert "det limits" in (error.hint or "")
    assert "administrator" in (error.hint or "")
    assert any(letter.isdigit() for letter in error.message), "the value is told"


# --- submissions


@pytest.mark.parametrize(
    ("limits", "setting", "wait"),
    [
        (replace(NONE, submissions_per_minute=3), "submissions_per_minute", 20.0),
        (replace(NONE, submissions_per_hour=3), "submissions_per_hour", 1200.0),
    ],
)
async def test_submissions_come_at_a_rate(make_world, limits, setting, wait):
    world = await make_world(idle, limits=limits)
    await world.add_agent()
    await world.submit(config())
    await start(world)
    await world.submit(config())
    with pytest.raises(LimitReached) as caught:
        await world.submit(config())
    tells_what_to_do(caught.value, setting, "submissions")
    assert caught.value.retry_after == wait
    with pytest.raises(LimitReached):
        await start(world)
    await world.submit(config(), BOB)
    await world.services[Experiments].create(ALICE, CreateExperiment(config=config(), dry_run=True))
    world.now += wait
    await world.submit(config())
    with pytest.raises(LimitReached):
        await world.submit(config())


async def test_a_submit_that_is_sent_again_counts_once(make_world):
    world = await make_world(idle, limits=replace(NONE, submissions_per_minute=1))
    await world.add_agent()
    first = await world.submit(config(), idempotency_key="k")
    again = await world.submit(config(), idempotency_key="k")
    assert again.id == first.id


async def test_servers_of_the_hub_count_as_their_owners_submissions(make_world):
    world = await make_world(idle, limits=replace(NONE, submissions_per_minute=1))
    await world.add_agent()

    def spawn(name: str) -> SpawnRequest:
        return SpawnRequest(kind=TaskKind.NOTEBOOK, owner="alice", server_name=name, key=f"key-of-{name}")

    await world.services[Spawns].post(HubCaller(), spawn("one"))
    await world.services[Spawns].post(HubCaller(), spawn("one"))
    with pytest.raises(LimitReached):
        await world.services[Spawns].post(HubCaller(), spawn("two"))


# --- jobs that have not ended


async def test_only_so_many_jobs_wait_or_run(make_world):
    world = await make_world(idle, limits=replace(NONE, queued_jobs=3))
    await world.add_agent()
    first = await world.submit(config())
    await world.submit(config(), activate=False)
    await start(world)
    for more in (world.submit(config()), start(world)):
        with pytest.raises(Conflict) as caught:
            await more
        tells_what_to_do(caught.value, "queued_jobs", "queued_jobs")
        assert "has 3 experiments and tasks" in caught.value.message
    await world.submit(config(), BOB)
    await world.services[Experiments].kill(ALICE, first.id)
    await world.finish(first.id)
    await world.submit(config())


# --- tasks without slots


async def test_tasks_without_slots_wait_for_their_owners_others(make_world):
    world = await make_world(idle, limits=replace(NONE, zero_slot_tasks=2))
    await world.add_agent()
    mine = [await start(world, slots=0) for _ in range(3)]
    other = await start(world, BOB, slots=0)
    await world.steps(3)
    get = world.services[UserTasks].get

    async def waits() -> list[str]:
        return [name for name in mine if (await get(ALICE, name)).pending_reason]

    (waiting,) = await waits()
    reason = (await get(ALICE, waiting)).pending_reason
    assert reason == "user alice runs 2 tasks without slots, as many as one user may"
    assert (await get(BOB, other)).pending_reason is None
    why = await world.services[Jobs].why(ALICE, waiting)
    assert [item.reason for item in why.items] == ["at_zero_slot_tasks"]
    await world.services.end_task(ALICE, next(name for name in mine if name != waiting))
    await world.steps(8)
    assert await waits() == []


async def test_trials_without_slots_count_too(make_world):
    world = await make_world(idle, limits=replace(NONE, zero_slot_tasks=2))
    agent = await world.add_agent()
    search = {"name": "random", "metric": "loss", "max_trials": 5, "max_length": 1}
    await world.submit(config(search, resources={"slots_per_trial": 0}))
    await world.steps(6)
    assert len(agent.tasks) == 2


# --- priorities


async def test_a_priority_of_administrators_is_refused_to_users(make_world):
    world = await make_world(idle, limits=replace(NONE, min_priority=10))
    await world.add_agent()
    made = await world.submit(config(resources={"priority": 10}))
    task = await start(world, priority=10)
    one = JobUpdate(priority=1)
    refused = [
        world.submit(config(resources={"priority": 9})),
        start(world, priority=1),
        world.services[Jobs].update(ALICE, str(made.id), one),
        world.services[Jobs].update(ALICE, task, one),
        world.services[Spawns].post(
            HubCaller(),
            SpawnRequest(
                kind=TaskKind.NOTEBOOK,
                owner="alice",
                server_name="a",
                key="a-long-key",
                config=command(priority=1).config,
            ),
        ),
    ]
    for attempt in refused:
        with pytest.raises(Forbidden) as caught:
            await attempt
        tells_what_to_do(caught.value, "min_priority", "priority")
        assert "alice may give 10 to 99" in caught.value.message
    assert (await world.services[Jobs].update(ROOT, task, one)).priority == 1
    assert (await world.services[Jobs].update(ALICE, task, JobUpdate(weight=2.0))).priority == 1, "what stands stays"
    await world.submit(config(resources={"priority": 1}), ROOT)


async def test_who_is_exempt_is_bound_by_none(make_world):
    limits = PerUserLimits(submissions_per_minute=1, queued_jobs=1, zero_slot_tasks=1, exempt_users={"alice"})
    world = await make_world(idle, limits=replace(limits, exempt_groups={"robots"}))
    await world.add_agent()
    robot = replace(BOB, name="robot", groups=frozenset({"robots"}))
    for _ in range(3):
        await world.submit(config(resources={"priority": 1}))
        await start(world, slots=0)
        await world.submit(config(resources={"priority": 1}), robot)
    await world.steps(6)
    tasks = (await world.services[UserTasks].list(ALICE)).items
    assert [task.pending_reason for task in tasks] == [None] * 3


# --- bytes


async def upload(world: World, caller: Any, text: bytes) -> bool:
    path = world.settings.state_dir / "upload"
    path.write_bytes(text)
    return bool(await world.services[Bundles].put(caller, "sha256:" + hashlib.sha256(text).hexdigest(), path))


async def test_bytes_of_a_day_are_counted_also_over_a_restart(make_world):
    world = await make_world(idle, limits=replace(NONE, upload_gb_per_day=1000 / GIB))
    world.now = 86400.0 * 1000 + 3600
    await upload(world, ALICE, b"a" * 600)
    await world.reboot()
    with pytest.raises(LimitReached) as caught:
        await upload(world, ALICE, b"b" * 500)
    tells_what_to_do(caught.value, "upload_gb_per_day", "upload")
    assert caught.value.retry_after == 3600.0, "an hour at most, until midnight if that is nearer"
    assert not (world.settings.state_dir / "upload").exists()
    await upload(world, BOB, b"b" * 500)
    await upload(world, ALICE, b"c" * 400)
    world.now += 86400.0
    await upload(world, ALICE, b"d" * 1000)


# --- names of metrics


async def running(make_world, limits: PerUserLimits, caller: Any = ALICE) -> tuple[World, TaskCaller, Any]:
    world = await make_world(idle, limits=limits)
    agent = await world.add_agent()
    await world.submit(config(), caller)
    await world.steps(3)
    (task,) = agent.tasks.values()
    return world, task.caller, task


async def report(world: World, task: TaskCaller, seq: int, metrics: dict[str, Any], group: str = "training") -> Any:
    record = MetricsRecord(seq=seq, time=1.0, group=group, steps_completed=seq, metrics=metrics)
    return await world.services[Tasks].records(task, RecordBatch(stream="metrics", records=[record]))


async def test_names_beyond_the_limit_are_left_out_and_all_others_kept(make_world):
    world, task, _ = await running(make_world, replace(NONE, metric_names=3))
    ack = await report(world, task, 1, {"a": 1.0, "b": 2.0, "text": "x"})
    assert (ack.acked, ack.refused) == (1, [])
    ack = await report(world, task, 2, {"a": 3.0, "c": 1.0, "d": 1.0})
    assert (ack.acked, ack.refused) == (2, [])
    await report(world, task, 3, {"loss": 0.5, "e": 1.0}, "validation")
    view = await world.services[Trials].get(ALICE, task.trial_id)
    assert set(view.summary) == {"training", "validation"}
    assert set(view.summary["training"]) == {"a", "b"}
    assert view.summary["training"]["a"].last == 3.0
    assert set(view.summary["validation"]) == {"loss"}, "what the search is by is never left out"
    (warning,) = view.warnings
    assert "too many names of metrics: a trial may report 3" in warning
    assert "c.UserLimits.metric_names" in warning
    (hit,) = [view for view in (await world.services[UserLimits].list(ROOT)).items if view.name == "metric_names"]
    assert [(one.user, one.hits) for one in hit.users] == [("alice", 2)]


async def test_names_are_known_again_after_a_restart(make_world):
    world, task, _ = await running(make_world, replace(NONE, metric_names=2))
    await report(world, task, 1, {"a": 1.0, "text": "x"})
    await world.reboot()
    await report(world, task, 2, {"a": 2.0, "text": "y", "new": 1.0})
    view = await world.services[Trials].get(ALICE, task.trial_id)
    assert set(view.summary["training"]) == {"a"}
    assert view.warnings


async def test_a_trial_with_too_many_names_to_show_says_how_many_are_left_out(make_world):
    world, task, _ = await running(make_world, NONE)
    await report(world, task, 1, {f"m{number:05d}": 1.0 for number in range(5_010)})
    view = await world.services[Trials].get(ALICE, task.trial_id)
    assert len(view.summary["training"]) == 5000
    assert view.summary_left_out == 10
    names, following = [], 0
    while following is not None:
        series, left_out, following = await world.services[Trials].curves(ALICE, task.trial_id, skip=following)
        names += [one.name for one in series]
        assert left_out == 10
    assert len(names) == len(set(names)) == 5000
    series, left_out, following = await world.services[Trials].curves(ALICE, task.trial_id, names=["m05009"])
    assert ([one.name for one in series], left_out, following) == (["m05009"], 0, None)


# --- output


def lines(first: int, count: int, text: str = "x", time: float = 1.0) -> RecordBatch:
    records = [LogRecord(seq=first + number, time=time, text=text) for number in range(count)]
    return RecordBatch(stream="logs", records=records)


LOG_LIMITS = replace(NONE, log_lines_per_second=2, log_lines_burst=10, log_kb_per_second=100, log_burst_mb=1)


async def test_lines_beyond_the_rate_are_left_out_and_counted(make_world):
    world, task, _ = await running(make_world, LOG_LIMITS)
    records = world.services[Tasks].records
    assert (await records(task, lines(1, 10, time=world.now))).acked == 10
    assert (await records(task, lines(11, 30, time=world.now))).acked == 40
    world.now += 2.0
    assert (await records(task, lines(41, 4, time=world.now))).acked == 44
    found, _ = await world.services[Trials].logs(ALICE, task.trial_id)
    texts = [line.text for line in found]
    assert texts[:10] == ["x"] * 10
    assert texts[10].startswith("[detlab] 30 lines were left out here: a task may write 2 lines")
    assert texts[11:] == ["x"] * 4
    (view,) = [view for view in (await world.services[UserLimits].list(ROOT)).items if view.name == "log_rate"]
    assert [(one.user, one.hits) for one in view.users] == [("alice", 30)]


@pytest.mark.parametrize("exempt", [{"exempt_users": {"alice"}}, {"exempt_groups": {"robots"}}])
async def test_tasks_of_exempt_users_lose_neither_lines_nor_names(make_world, exempt):
    """Of a task's owner the groups are those of the submission."""
    limits = replace(LOG_LIMITS, metric_names=1, **exempt)
    world, task, _ = await running(make_world, limits, replace(ALICE, groups=frozenset({"robots"})))
    assert (await world.services[Tasks].records(task, lines(1, 50, time=world.now))).acked == 50
    found, _ = await world.services[Trials].logs(ALICE, task.trial_id)
    assert [line.text for line in found] == ["x"] * 50
    await report(world, task, 1, {"a": 1.0, "b": 2.0})
    view = await world.services[Trials].get(ALICE, task.trial_id)
    assert set(view.summary["training"]) == {"a", "b"}
    assert view.warnings == []


# --- what is shown


async def test_administrators_see_who_meets_a_limit_and_users_only_themselves(make_world):
    world = await make_world(idle, limits=replace(NONE, queued_jobs=2, submissions_per_minute=100))
    await world.add_agent()
    await start(world)
    await start(world)
    for _ in range(5):
        with pytest.raises(Conflict) as caught:
            await start(world)
        world.services[UserLimits].note(caught.value)
    await start(world, BOB)

    async def users(caller: Any) -> list[tuple[str, float | None, int]]:
        views = (await world.services[UserLimits].list(caller)).items
        (view,) = [view for view in views if view.name == "queued_jobs"]
        assert (view.value, view.setting) == (2.0, "queued_jobs")
        return [(one.user, one.used, one.hits) for one in view.users]

    assert await users(ROOT) == [("alice", 2.0, 5), ("bob", 1.0, 0)]
    assert await users(ALICE) == [("alice", 2.0, 5)]
    assert await users(BOB) == [("bob", 1.0, 0)]
    await world.services[UserLimits].write_hits()
    with pytest.raises(Conflict) as caught:
        await start(world)
    world.services[UserLimits].note(caught.value)
    await world.services[UserLimits].write_hits()
    page = await world.services[Audit].page(ROOT, action="limit.reached")
    assert [(item.actor, item.subject, item.detail) for item in page.items] == [
        ("alice", "limit queued_jobs", "5 times; c.UserLimits.queued_jobs = 2")
    ], "once an hour"
    world.now += 3600.0
    await world.services[UserLimits].write_hits()
    page = await world.services[Audit].page(ROOT, action="limit.reached")
    assert [item.detail for item in page.items] == [
        "once; c.UserLimits.queued_jobs = 2",
        "5 times; c.UserLimits.queued_jobs = 2",
    ]


async def test_a_user_sees_their_own_use_though_many_others_use_more(make_world):
    """The list was cut to the first users before others were left out, so that one behind them saw nothing."""
    world = await make_world(idle, limits=replace(NONE, submissions_per_minute=4))
    others = [replace(BOB, name=f"user{number}") for number in range(MOST_SHOWN)]
    for caller in [*others, *others, *others, ALICE, ALICE]:
        await start(world, caller)
    views = {view.name: view for view in (await world.services[UserLimits].list(ALICE)).items}
    assert [one.user for one in views["submissions_minute"].users] == ["alice"]
    views = {view.name: view for view in (await world.services[UserLimits].list(ROOT)).items}
    assert len(views["submissions_minute"].users) == MOST_SHOWN


async def test_honest_work_meets_no_limit(make_world):
    """A search with the defaults: nothing is refused, left out or noted."""
    world = await make_world(training(20), limits=PerUserLimits())
    await world.add_agent(slots=4)
    search = {"name": "random", "metric": "loss", "max_trials": 20, "max_length": 20}
    made = await world.submit(config(search))
    await world.finish(made.id)
    views = (await world.services[UserLimits].list(ROOT)).items
    assert [(view.name, view.users) for view in views if view.users] == []
