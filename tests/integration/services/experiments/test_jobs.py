"""The job queue: who sees what of it, who may change what, that changes count at once and last, and why jobs wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from services_scripted import ALICE, BOB, ROOT, config, training
from sqlalchemy import select

from detlab.errors import ConfigError, Conflict, Forbidden, NotFound, ResourcesError
from detlab.schemas.jobwire import JobUpdate, QuotaRequest
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import CreateExperiment, GrantRequest
from detlab_hub.core.scheduling import Pool, PoolConfig, Pools, Scheduler, read_pools
from detlab_hub.services.admission.feasibility import AWAY_SECONDS
from detlab_hub.services.admission.quotas import Quotas
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.cluster.cluster import Cluster
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.placement import passes as placement
from detlab_hub.services.placement import snapshots as placement_snapshots
from detlab_hub.services.queue import start_estimates
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.queue.pools import PoolViews
from detlab_hub.services.queue.queue import Queue
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.queries import events
from detlab_hub.store.tables import AllocationRow

MANY = {"name": "random", "metric": "loss", "max_trials": 3, "max_concurrent_trials": 3}


async def command(world, caller, slots=1, **more):
    wanted = CreateTask(
        kind=TaskKind.COMMAND, config={"entrypoint": "true", "resources": {"slots": slots, **more}}, name="a command"
    )
    world.now += 1
    return (await world.services[UserTasks].create(caller, wanted)).task


async def submit(world, caller=ALICE, slots=1, searcher=None, **resources):
    world.now += 1
    wanted = config(searcher, resources={"slots_per_trial": slots, **resources}) if searcher else config(
        resources={"slots_per_trial": slots, **resources})  # fmt: skip
    return await world.submit(wanted, caller)


async def change(world, caller, job, **what):
    return await world.services[Jobs].update(caller, str(job), JobUpdate(**what))


async def order(world, caller=ROOT, **more):
    return [item.id for item in (await world.services[Jobs].list(caller, **more)).items]


async def cluster_events(world, cursor):
    return await world.services.context.read(
        lambda s: sum(event.kind == "cluster" for event in events.after(s, cursor))
    )


@pytest.fixture
async def full(make_world):
    """One slot, held by Alice's first; her second, Bob's, and her third wait."""
    world = await make_world(training(100))
    await world.add_agent(slots=1)
    jobs = [await submit(world), await submit(world), await submit(world, BOB), await submit(world)]
    await world.steps(2)
    return world, [str(job.id) for job in jobs]


async def test_jobs_are_listed_in_the_schedulers_order(make_world):
    world = await make_world(training(100))
    await world.add_agent(slots=2)
    search = await submit(world, searcher=MANY)
    await world.steps(2)
    late = await submit(world, priority=50, weight=2.5, max_slots=1)
    task = await command(world, ALICE, 2)
    first = await submit(world, priority=1)
    await world.services.schedule()
    found = (await world.services[Jobs].list(ALICE)).items
    assert [item.id for item in found] == [str(first.id), str(search.id), task.id, str(late.id)]
    assert [item.order for item in found] == [1, 2, 3, 4]
    facts = [(item.kind, item.state, item.slots_held, item.slots_wanted, item.tasks_waiting) for item in found]
    assert facts == [
        ("experiment", "queued", 0, 1, 1),
        ("experiment", "running", 2, 1, 1),
        ("command", "queued", 0, 2, 1),
        ("experiment", "queued", 0, 1, 1),
    ]
    assert (found[3].priority, found[3].weight, found[3].max_slots, found[3].pool) == (50, 2.5, 1, "default")
    assert all(item.mine and item.owner == "alice" and item.reason for item in found)
    assert found[0].estimated_start is None
    with pytest.raises(ConfigError, match="there is no resource pool 'no such pool'"):
        await order(world, ALICE, pool="no such pool")


async def test_I9_the_jobs_name_nobody_elses_work(full):
    world, (first, second, theirs, third) = full
    seen = (await world.services[Jobs].list(ALICE)).items
    assert [item.id for item in seen] == [first, second, "place 3", third]
    other = seen[2]
    assert (other.owner, other.name, other.reason, other.mine) == ("another user", "", "", False)
    assert (other.slots_wanted, other.order, other.priority) == (1, 3, 42)
    assert "bob" not in other.model_dump_json()
    assert await order(world, ALICE, mine=True) == [first, second, third]
    assert await order(world, ROOT) == [first, second, theirs, third]
    for asked in (theirs, "place 3", "trial-999", "trial-", "command-000000000000", "9" * 18, "9" * 30, "²", "-1"):
        with pytest.raises(NotFound):
            await world.services[Jobs].why(ALICE, asked)
        with pytest.raises(NotFound):
            await change(world, ALICE, asked, priority=1)
    with pytest.raises(NotFound):
        await change(world, ALICE, second, ahead_of=theirs)


async def test_whoever_may_look_at_an_experiment_may_ask_why_and_change_nothing(full):
    world, (_, _, theirs, _) = full
    await world.services[Grants].put(BOB, int(theirs), GrantRequest(kind="user", name="alice", write=True))
    told = await world.services[Jobs].why(ALICE, theirs)
    assert (told.job.id, told.job.owner, len(told.items)) == (theirs, "bob", 1)
    with pytest.raises(Forbidden, match="only they, admins of its workspace and"):
        await change(world, ALICE, theirs, priority=1)


async def test_a_priority_counts_at_once_is_noted_and_lasts(full):
    world, (first, second, theirs, third) = full
    context = world.services.context
    cursor = await context.read(events.head)
    context.scheduler_kick.clear()
    view = await change(world, ALICE, third, priority=10, weight=2.0)
    assert (view.order, view.priority, view.weight) == (1, 10, 2.0)
    assert context.scheduler_kick.is_set()
    assert await cluster_events(world, cursor) == 1
    assert await order(world) == [third, first, second, theirs]
    await world.services.schedule()
    queue = (await world.services[Queue].view(ROOT)).items
    assert [str(item.experiment_id) for item in queue] == [third, second, theirs]
    assert (queue[0].place, queue[0].pool, queue[0].priority, queue[0].weight) == (1, "default", 10, 2.0)
    cursor = await context.read(events.head)
    assert await change(world, ALICE, third, priority=10, weight=2.0) == view.model_copy(
        update={"reason": (await world.services[Jobs].list(ALICE)).items[0].reason}
    )
    assert await cluster_events(world, cursor) == 0, "the same again is no change"
    await world.reboot()
    assert await order(world) == [third, first, second, theirs]
    (noted,) = (await world.services[Audit].page(ROOT, action="job")).items
    assert (noted.actor, noted.action, noted.subject) == ("alice", "job.update", f"experiment {third}")
    assert noted.detail == "priority 42 to 10, weight 1 to 2"
    await world.services[Experiments].kill(ALICE, int(first))
    await world.steps(3)
    assert (await world.services[Jobs].list(ROOT)).items[0].state == "running", "and the scheduler goes by it"


async def test_jobs_are_moved_within_what_one_may(full):
    world, (first, second, theirs, third) = full
    await world.services[Grants].put(ALICE, int(second), GrantRequest(kind="user", name="bob"))
    with pytest.raises(Forbidden, match="ahead of another user's job: only administrators"):
        await change(world, BOB, theirs, ahead_of=second)
    view = await change(world, ALICE, third, ahead_of=second)
    assert (view.order, view.moved) == (2, True)
    assert await order(world) == [first, third, theirs, second], "in the places that her jobs had"
    assert await change(world, ALICE, third, ahead_of=second) == view
    await change(world, ROOT, theirs, ahead_of=third)
    assert await order(world) == [first, theirs, third, second]
    await change(world, ROOT, theirs, behind_of=second)
    assert await order(world) == [first, third, second, theirs]
    await world.reboot()
    await world.services.schedule()
    assert await order(world) == [first, third, second, theirs]
    queue = (await world.services[Queue].view(ROOT)).items
    assert [str(item.experiment_id) for item in queue] == [third, second, theirs]
    assert list(world.services.context.pending_reasons) == [item.allocation_id for item in queue]
    view = await change(world, ALICE, third, priority=41)
    assert not view.moved, "a new priority puts it where its submission would"


async def test_a_task_can_be_moved_and_what_cannot_is_said(full):
    world, (first, second, _, third) = full
    task = await command(world, ALICE)
    await change(world, ROOT, task.id, ahead_of=second)
    assert (await order(world))[1] == task.id
    await change(world, ALICE, third, priority=5)
    with pytest.raises(Conflict, match=r"priority 42.*priority 5: jobs move within one"):
        await change(world, ALICE, task.id, ahead_of=third)
    with pytest.raises(Conflict, match="name another job"):
        await change(world, ALICE, task.id, ahead_of=task.id)
    with pytest.raises(ConfigError, match="no resource pool 'large'"):
        await change(world, ALICE, task.id, pool="large")
    await world.services[Experiments].kill(ALICE, int(first))
    await world.steps(3)
    with pytest.raises(Conflict, match="has ended"):
        await change(world, ALICE, first, priority=3)
    with pytest.raises(Conflict, match="holds no slots and waits for none"):
        await change(world, ALICE, task.id, ahead_of=first)


async def test_why_is_the_schedulers_answer_with_what_would_help(make_world):
    world = await make_world(training(100))
    await world.add_agent(slots=4)
    holds = await submit(world, slots=2)
    await world.steps(2)
    waits = await submit(world, BOB, slots=4)
    search = await submit(world, slots=2, searcher=MANY, priority=60)
    await world.services.schedule()
    told = await world.services[Jobs].why(BOB, str(waits.id))
    (item,) = told.items
    assert (item.reason, item.slots, item.place, item.ahead, item.pool) == ("no_free_slots", 4, 1, 0, "default")
    assert item.detail.startswith("needs 4 slots: 2 of 4 free")
    assert [hint.text for hint in item.hints] == ["would start now with 2 slots"]
    assert "would start now" not in item.detail, "said once"
    assert item.estimated_start is None
    told = await world.services[Jobs].why(ALICE, str(search.id))
    assert (told.waiting, [one.place for one in told.items], [one.ahead for one in told.items]) == (
        3, [2, 3, 4], [1, 1, 1],
    )  # fmt: skip
    assert told.items[0].reason == "behind"
    assert f"experiment {waits.id}" not in told.model_dump_json()
    trial = told.items[1].trial_id
    single = await world.services[Jobs].why(ALICE, f"trial-{trial}")
    assert [one.trial_id for one in single.items] == [trial]
    assert (await world.services[Jobs].why(ALICE, str(holds.id))).items == []
    await world.services[Cluster].drain(ROOT, 60)
    assert (await world.services[Jobs].why(BOB, str(waits.id))).items[0].reason == "draining"


async def test_a_quota_holds_and_lowering_it_ends_nothing(make_world):
    world = await make_world(training(100))
    await world.add_agent(slots=3)
    quotas = world.services[Quotas]
    await quotas.put(ROOT, QuotaRequest(kind="user", name="alice", slots=2))
    search = await submit(world, searcher=MANY)
    await world.steps(3)
    (mine,) = (await world.services[Jobs].list(ALICE)).items
    assert (mine.slots_held, mine.tasks_waiting) == (2, 1)
    (item,) = (await world.services[Jobs].why(ALICE, str(search.id))).items
    held = "user alice holds 2 of a quota of 2 slots, this needs 1; see det quota list"
    assert (item.reason, item.detail) == ("at_quota", held)
    await quotas.put(ROOT, QuotaRequest(kind="user", name="alice", slots=1))
    await world.steps(3)
    assert (await world.services[Jobs].list(ALICE)).items[0].slots_held == 2, "nothing is ended"
    with pytest.raises(ResourcesError, match="more than the quota of user alice: 1"):
        await submit(world, slots=2)
    with pytest.raises(ResourcesError, match="more than the quota of user alice: 1"):
        await command(world, ALICE, 2)
    await command(world, BOB, 1)
    await quotas.remove(ROOT, QuotaRequest(kind="user", name="alice", slots=0))
    await world.steps(2)


POOLS = Pools(
    {
        "default": PoolConfig("default"),
        "large": PoolConfig("large"),
        "fair": PoolConfig("fair", Pool(scheduler=Scheduler.FAIR_SHARE)),
    }
)


async def node(world, name, slots, pool):
    agent = await world.add_agent(name, slots)
    agent.drop()
    plain = agent.hello
    agent.hello = lambda: plain().model_copy(update={"pool": pool})
    await agent.connect()


async def test_a_job_is_moved_to_a_pool_where_it_can_start(make_world):
    world = await make_world(training(100), pools=POOLS)
    await world.add_agent(slots=1)
    await node(world, "big", 4, "large")
    await node(world, "even", 1, "fair")
    first, second = await submit(world), await submit(world)
    big = await submit(world, slots=4, resource_pool="large")
    await world.steps(3)
    (item,) = (await world.services[Jobs].why(ALICE, str(second.id))).items
    assert [hint.text for hint in item.hints] == ["would start now in the pool fair"]
    other = await submit(world, slots=3, resource_pool="large")
    with pytest.raises(ResourcesError) as refused:
        await change(world, ALICE, other.id, pool="fair")
    said = "a trial of experiment 4 in the pool fair: needs 3 slots; the only suitable agent, even, has 1"
    assert (refused.value.message, refused.value.hint) == (f"no agent could ever run {said}", "see `det agent list`")
    assert (await world.services[Jobs].why(ALICE, str(other.id))).job.pool == "large", "refused as a whole"
    assert (await change(world, ALICE, second.id, pool="fair")).pool == "fair"
    await world.steps(3)
    found = {item.id: (item.pool, item.state, item.order) for item in (await world.services[Jobs].list(ROOT)).items}
    assert found == {
        str(first.id): ("default", "running", 1),
        str(second.id): ("fair", "running", 1),
        str(big.id): ("large", "running", 1),
        str(other.id): ("large", "queued", 2),
    }
    assert await order(world, pool="large") == [str(big.id), str(other.id)]
    with pytest.raises(Conflict, match="jobs move within one"):
        await change(world, ALICE, other.id, ahead_of=str(first.id))


ELASTIC = {"type": "local", "slots": 2, "max_instances": 3, "slot_type": "cpu", "cpus": 4, "memory": "8G"}


async def refused(world, job, pool, *, caller=ALICE):
    """What is said of a job that cannot be moved to a pool; nothing of it is changed."""
    before = (await world.services[Jobs].why(caller, str(job))).job
    with pytest.raises(ResourcesError) as caught:
        await change(world, caller, job, pool=pool, priority=1)
    after = (await world.services[Jobs].why(caller, str(job))).job
    assert (after.pool, after.priority) == (before.pool, before.priority)
    return caught.value.message


async def test_a_job_moves_to_no_elastic_pool_whose_instances_could_never_run_it(make_world):
    pools, _ = read_pools({"default": {}, "elastic": {"provider": ELASTIC}})
    world = await make_world(training(100), pools=pools)
    await node(world, "big", 8, "default")
    trials = await submit(world, slots=8)
    for job in (trials.id, (await command(world, ALICE, 8)).id):
        said = await refused(world, job, "elastic")
        assert "in the pool elastic: needs 8 slots; " in said
        assert "the pool starts 3 instances at most, of 2 slots" in said
    several, one = await submit(world, slots=6, cpus=4), await submit(world, slots=6, is_single_node=True)
    assert (await change(world, ALICE, several.id, pool="elastic")).pool == "elastic"
    assert "needs 6 slots" in await refused(world, one.id, "elastic")
    assert "4 CPUs" in await refused(world, (await submit(world, cpus=5)).id, "elastic")
    assert "needs 4 slots" in await refused(world, (await command(world, ALICE, 4)).id, "elastic")


async def test_a_search_whose_trials_all_run_moves_to_no_pool_that_is_too_small_for_the_next(make_world):
    world = await make_world(training(100), pools=POOLS)
    await node(world, "big", 4, "large")
    await node(world, "even", 1, "fair")
    search = await submit(world, searcher={**MANY, "max_concurrent_trials": 2}, slots=2, resource_pool="large")
    await world.steps(3)
    assert [job.state for job in (await world.services[Jobs].list(ALICE)).items] == ["running"]
    said = "a trial of experiment 1 in the pool fair: needs 2 slots; the only suitable agent, even, has 1"
    for caller in (ALICE, ROOT):
        assert said in await refused(world, search.id, "fair", caller=caller)
    with pytest.raises(NotFound):  # before anything is said of it (I9)
        await change(world, BOB, search.id, pool="fair")
    await world.services[Experiments].kill(ALICE, search.id)
    await world.steps(3)
    with pytest.raises(Conflict, match="has ended"):
        await change(world, ALICE, search.id, pool="fair")


async def test_a_job_moves_to_a_pool_whose_agent_is_away_for_less_than_a_day(make_world):
    world = await make_world(training(100), pools=POOLS)
    await node(world, "big", 4, "large")
    await node(world, "wide", 4, "fair")
    await node(world, "even", 1, "fair")
    job = await submit(world, slots=4, resource_pool="large")
    wide = world.agents["wide"]
    wide.drop()
    wide.online = False
    await world.steps(80, 1.0)
    moved = await change(world, ALICE, job.id, pool="fair")
    assert moved.pool == "fair", "submitted there it would be accepted, with a warning"
    assert (await change(world, ALICE, job.id, pool="large")).pool == "large"
    world.now += AWAY_SECONDS + 100
    assert "the only suitable agent, even, has 1" in await refused(world, job.id, "fair")


async def test_an_agent_that_comes_back_with_another_pool_keeps_its_tasks_and_takes_new_ones_of_that_pool(make_world):
    world = await make_world(training(8), pools=POOLS)
    agent = await world.add_agent("moves", slots=2)
    runs = await submit(world)
    await world.steps(2)
    agent.drop()
    plain = agent.hello
    agent.hello = lambda: plain().model_copy(update={"pool": "large"})
    await agent.connect()
    mine, theirs = await submit(world), await submit(world, BOB, resource_pool="large")
    await world.steps(2)
    pools = {pool.name: pool for pool in (await world.services[PoolViews].list()).items}
    assert [(pools[name].slots_total, pools[name].slots_used) for name in ("large", "default")] == [(2, 2), (0, 0)]
    assert await order(world, pool="default") == [str(runs.id), str(mine.id)]
    await world.steps(60)
    states = [(await world.services[Experiments].get(ROOT, one.id)).state for one in (runs, theirs, mine)]
    assert [state.value for state in states] == ["COMPLETED", "COMPLETED", "ACTIVE"]
    attempts = await world.services.context.read(lambda s: [row.run for row in s.scalars(select(AllocationRow))])
    assert max(attempts) == 1, "what ran went on"


async def test_when_a_job_starts_is_known_from_maximum_times(full):
    world, (first, second, theirs, third) = full

    def limit(unit):
        for row in unit.session.scalars(select(AllocationRow)):
            if str(row.experiment_id) in (first, second):
                row.max_time = 600.0

    await world.services.context.write(limit)
    starts = {item.id: item.estimated_start for item in (await world.services[Jobs].list(ROOT)).items}
    assert starts[second] == pytest.approx(world.now + 600, abs=5)
    assert starts[theirs] == pytest.approx(world.now + 1200, abs=5)
    assert starts[third] is None, "Bob's may run for ever"
    (item,) = (await world.services[Jobs].why(BOB, theirs)).items
    assert item.estimated_start == starts[theirs]
    assert (await world.services[Jobs].list(ALICE)).items[2].estimated_start is None, "somebody else's"


async def test_a_quota_of_a_group_counts_all_its_users(make_world):
    world = await make_world(training(100))
    await world.add_agent(slots=4)
    vera, sam = (replace(BOB, name=name, groups=frozenset({"vision"})) for name in ("vera", "sam"))
    await world.services[Quotas].put(ROOT, QuotaRequest(kind="group", name="vision", slots=3))
    await submit(world, vera, slots=2)
    await submit(world, BOB, slots=1)
    waits = await submit(world, sam, slots=2)
    await world.steps(3)
    (item,) = (await world.services[Jobs].why(sam, str(waits.id))).items
    assert (item.reason, [hint.text for hint in item.hints]) == ("at_quota", ["would start now with 1 slot"])
    (quota,) = (await world.services[Quotas].list(sam)).items
    assert (quota.name, quota.slots, quota.held, quota.waiting) == ("vision", 3, 2, 2)
    with pytest.raises(ResourcesError, match="more than the quota of group vision: 3"):
        await submit(world, sam, slots=4)


async def test_no_reader_thread_is_given_what_changes_in_the_event_loop(full, monkeypatch):
    """A task that was refused meanwhile made the list of jobs an error: a dictionary changed while it was read."""
    world, jobs = full
    context, seen, real = world.services.context, [], placement_snapshots.snapshots

    def noted(s, nodes, refusals, now, settings):
        seen.append(refusals)
        return real(s, nodes, refusals, now, settings)

    monkeypatch.setattr(placement_snapshots, "snapshots", noted)
    monkeypatch.setattr(placement, "snapshots", noted)
    context.refusals["a task", "node"] = world.now + 30.0
    await world.services[Jobs].list(ROOT)
    await world.services[Jobs].why(ALICE, jobs[1])
    await change(world, ALICE, jobs[1], weight=2.0)
    await world.services[Experiments].create(ALICE, CreateExperiment(config=config(), dry_run=True))
    assert len(seen) >= 4
    assert all(one == context.refusals and one is not context.refusals for one in seen)


async def test_why_and_the_list_of_jobs_share_what_was_found_out_of_starts(full, monkeypatch):
    """To find it out takes dozens of passes: each look of each user had its own."""
    world, jobs = full
    asked, real = [], start_estimates.estimated_starts
    monkeypatch.setattr(start_estimates, "estimated_starts", lambda *args: asked.append(args) or real(*args))
    await world.services[Jobs].list(ROOT)
    for job in jobs[1:]:
        (item,) = (await world.services[Jobs].why(ROOT, job)).items
        assert item.reason
    assert len(asked) == 1
