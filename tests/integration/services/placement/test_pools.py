"""Pools in the living master: who starts where, who has to leave for whom, and what is refused at submit."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, BOB, ROOT, config, deaf, training
from sqlalchemy import select

from detlab.errors import ConfigError, ResourcesError
from detlab.schemas.taskwire import CreateTask, TaskKind
from detlab.schemas.wire import CreateExperiment
from detlab_hub.core.scheduling import Pool, PoolConfig, Pools, Scheduler
from detlab_hub.services.agents.nodes import Nodes
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.placement import snapshots
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.tables import AllocationRow, ExperimentRow, QuotaRow

PREEMPTING = Pools({"default": PoolConfig("default", Pool(preemption=True))})
TWO = Pools(
    {"default": PoolConfig("default"), "gpu": PoolConfig("gpu", Pool(preemption=True), priority=60)},
    zero_slot="default",
)


def wants(priority=None, slots=1, **more):
    given = {} if priority is None else {"priority": priority}
    return {"slots_per_trial": slots, **given, **more}


def joins(agent, **fields):
    """The agent says more in its Hello: its pool, its labels, what its slots are."""
    plain, slot = agent.hello, fields.pop("slot", {})
    changed = {**fields}
    agent.hello = lambda: (said := plain()).model_copy(
        update={**changed, "slots": [one.model_copy(update=slot) for one in said.slots]}
    )
    return agent


async def node(world, name, slots=1, **fields):
    agent = await world.add_agent(name, slots)
    if fields:
        agent.drop()
        await joins(agent, **fields).connect()
    return agent


async def attempts(world, experiment_id):
    """(run, why it was asked to leave, how it ended, agent) of an experiment's attempts."""

    def look(s):
        rows = s.scalars(select(AllocationRow).where(AllocationRow.experiment_id == experiment_id))
        return sorted((row.run, row.preempt_reason, row.exit_reason, row.agent_id) for row in rows)

    return await world.services.context.read(look)


async def state_of(world, experiment_id):
    (trial,) = await world.trials(experiment_id)
    return trial.display_state


async def test_each_pool_has_its_own_agents_and_its_own_defaults(make_world):
    world = await make_world(training(3), pools=TWO)
    small, large = await node(world, "small"), await node(world, "large", 4, pool="gpu")
    here = await world.submit(config())
    there = await world.submit(config(resources=wants(resource_pool="gpu", slots=4)))
    await world.steps(2)
    assert [key[0].partition(".")[0] for key in small.launches] == [str(here.id)]
    assert [key[0].partition(".")[0] for key in large.launches] == [str(there.id)]
    rows = await world.services.context.read(lambda s: [s.get(ExperimentRow, one.id) for one in (here, there)])
    assert [(row.resource_pool, row.priority) for row in rows] == [("default", 42), ("gpu", 60)]
    assert (await world.finish(there.id)).state == (await world.finish(here.id)).state == "COMPLETED"


async def test_a_pool_that_is_not_there_is_refused_and_named_with_those_that_are(make_world):
    world = await make_world(training(3), pools=TWO)
    raw = config(resources=wants(resource_pool="nope"))
    for dry_run in (True, False):
        with pytest.raises(ConfigError, match="there is no pool 'nope'") as caught:
            await world.services[Experiments].create(ALICE, CreateExperiment(config=raw, dry_run=dry_run))
        assert [(one.path, one.hint) for one in caught.value.problems] == [
            ("resources.resource_pool", "there are: default, gpu")
        ]
    task = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true", "resources": {"resource_pool": "nope"}})
    with pytest.raises(ConfigError, match="there is no pool 'nope'"):
        await world.services[UserTasks].create(ALICE, task)


async def test_what_could_never_run_in_its_pool_is_refused_though_another_pool_is_larger(make_world):
    world = await make_world(training(3), pools=TWO)
    await node(world, "large", 8)
    await node(world, "small", 2, pool="gpu")
    with pytest.raises(ResourcesError, match="needs 4 slots; the only suitable agent, small, has 2"):
        await world.submit(config(resources=wants(resource_pool="gpu", slots=4)))
    with pytest.raises(ResourcesError, match="more than max_slots 1 of"):
        await world.submit(config(resources=wants(slots=2, max_slots=1)))
    await world.submit(config(resources=wants(slots=8)))


async def test_a_pool_without_an_agent_takes_what_is_submitted_with_a_warning(make_world):
    world = await make_world(training(3), pools=TWO)
    await node(world, "one")
    raw = config(resources=wants(resource_pool="gpu", slots=64))
    reply = await world.services[Experiments].create(ALICE, CreateExperiment(config=raw))
    assert [one.path for one in reply.warnings] == ["resources.resource_pool"]
    await world.services.schedule()
    assert set(world.services.context.pending_codes.values()) == {"no_agent"}


async def test_a_higher_priority_takes_the_slots_and_the_victim_goes_on_from_its_checkpoint(make_world):
    world = await make_world(training(12), pools=PREEMPTING)
    await node(world, "one")
    low = await world.submit(config(resources=wants(80)))
    await world.steps(4)
    high = await world.submit(config(resources=wants(10)), BOB)
    await world.services.schedule()
    assert await state_of(world, low.id) == "PREEMPTING"
    reason = (await world.view(high.id)).pending_reason
    assert reason == "waits for another user's task to release their slots"
    assert set(world.services.context.pending_codes.values()) == {"releasing"}
    assert (await world.finish(high.id)).state == "COMPLETED"
    done = await world.finish(low.id)
    assert done.state == "COMPLETED"
    assert await attempts(world, low.id) == [
        (1, "preempt", "preempted", "one"),
        (2, None, "finished", "one"),
    ]
    (trial,) = await world.trials(low.id)
    assert (trial.restarts, trial.steps_completed) == (0, 12), "a preemption is never counted"
    resumed = await world.services.context.read(
        lambda s: s.scalar(
            select(AllocationRow.resume_step).where(AllocationRow.experiment_id == low.id, AllocationRow.run == 2)
        )
    )
    assert resumed
    assert resumed >= 1, "it went on from where it was asked to leave"


async def test_without_preemption_nobody_has_to_leave(make_world):
    world = await make_world(training(4))
    await node(world, "one")
    low = await world.submit(config(resources=wants(80)))
    await world.steps(3)
    high = await world.submit(config(resources=wants(10)))
    await world.finish(high.id)
    assert await attempts(world, low.id) == [(1, None, "finished", "one")]


async def test_a_victim_that_does_not_leave_is_ended_after_its_preemption_timeout_and_no_other_is_taken(make_world):
    world = await make_world(
        lambda launch: deaf(3)(launch) if launch.owner == "alice" else training(3)(launch), pools=PREEMPTING
    )
    await node(world, "one")
    await node(world, "two")
    deaf_ones = [
        await world.submit(config({"name": "single", "metric": "loss"}, resources=wants(80), preemption_timeout=20))
        for _ in range(2)
    ]
    await world.steps(4)
    high = await world.submit(config(resources=wants(10)), BOB)
    await world.steps(10, 1.0)
    asked = [why for one in deaf_ones for _, why, _, _ in await attempts(world, one.id) if why]
    assert asked == ["preempt"], "pass after pass only the one is asked"
    assert (await world.finish(high.id, 200)).state == "COMPLETED"
    ends = [end for one in deaf_ones for _, why, end, _ in await attempts(world, one.id) if why]
    assert ends == ["killed"]
    assert [trial.restarts for one in deaf_ones for trial in await world.trials(one.id)] == [0, 0]


async def test_I10_a_trial_is_preempted_so_often_an_hour_and_then_keeps_its_slots(make_world):
    world = await make_world(training(400), pools=PREEMPTING, preemptions_per_hour=2)
    await node(world, "one")
    low = await world.submit(config(resources=wants(80)))
    await world.steps(3)
    for _ in range(2):
        high = await world.submit(config(resources=wants(10)))
        await world.steps(6)
        await world.services[Experiments].kill(ALICE, high.id)
        await world.steps(4)
    late = await world.submit(config(resources=wants(10)))
    await world.steps(20)
    told = [why for _, why, _, _ in await attempts(world, low.id)]
    assert told == ["preempt", "preempt", None]
    assert await state_of(world, late.id) == "QUEUED"
    assert world.services.context.pending_codes[(await allocation(world, late.id))] == "no_free_slots"
    world.now += 3600
    await world.steps(8)
    assert [why for _, why, _, _ in await attempts(world, low.id)][:3] == ["preempt"] * 3
    assert await state_of(world, late.id) == "RUNNING"


async def allocation(world, experiment_id):
    return await world.services.context.read(
        lambda s: s.scalar(
            select(AllocationRow.id)
            .where(AllocationRow.experiment_id == experiment_id)
            .order_by(AllocationRow.run.desc())
            .limit(1)
        )
    )


async def test_a_master_that_died_after_it_decided_preempts_that_one_and_no_other(make_world):
    world = await make_world(training(40), pools=PREEMPTING)
    await node(world, "one")
    await node(world, "two")
    lows = [await world.submit(config(resources=wants(80))) for _ in range(2)]
    await world.steps(4)
    high = await world.submit(config(resources=wants(10)), BOB)
    await world.services.schedule()
    before = [await attempts(world, one.id) for one in lows]
    assert sum(attempt[1] == "preempt" for one in before for attempt in one) == 1
    await world.reboot()
    await world.services.schedule()
    assert [await attempts(world, one.id) for one in lows] == before
    await world.steps(8)
    assert await state_of(world, high.id) in {"RUNNING", "STARTING"}
    after = [await attempts(world, one.id) for one in lows]
    assert sum(attempt[1] == "preempt" for one in after for attempt in one) == 1


async def test_quotas_of_users_and_groups_are_held_over_all_pools(make_world):
    world = await make_world(training(30), pools=TWO)
    await node(world, "one", 8)
    await node(world, "two", 8, pool="gpu")

    def set_quotas(unit):
        unit.session.add(QuotaRow(kind="user", name="alice", slots=2, set_by="root", set_at=unit.now))
        unit.session.add(QuotaRow(kind="group", name="vision", slots=3, set_by="root", set_at=unit.now))

    await world.services.context.write(set_quotas)
    vision = Caller("carol", groups=frozenset({"vision"}))
    alice = [await world.submit(config(resources=wants(resource_pool=pool))) for pool in ("gpu", "default", "gpu")]
    carol = [
        await world.submit(config(resources=wants(resource_pool=pool, slots=2)), vision) for pool in ("gpu", "default")
    ]
    bob = await world.submit(config(resources=wants(slots=2)), BOB)
    await world.steps(3)
    running = [await state_of(world, one.id) for one in (*alice, *carol, bob)]
    assert sorted(running[:3]) == ["QUEUED", "RUNNING", "RUNNING"]
    assert sorted(running[3:5]) == ["QUEUED", "RUNNING"]
    assert running[5] == "RUNNING"
    waiting = {(await world.view(one.id)).pending_reason for one in (*alice, *carol)} - {None}
    assert waiting == {
        "user alice holds 2 of a quota of 2 slots, this needs 1; see det quota list",
        "group vision holds 2 of a quota of 3 slots, this needs 2; see det quota list",
    }


async def test_a_suspect_agent_and_a_disabled_one_get_nothing(make_world):
    world = await make_world(training(3))
    await node(world, "gone")
    await node(world, "closed")
    await world.services[Nodes].disable(ROOT, "closed")
    world.agents["gone"].drop()
    waits = await world.submit(config())
    await world.services.schedule()
    reason = (await world.view(waits.id)).pending_reason
    assert reason == "agent closed is disabled; agent gone is out of contact"
    assert set(world.services.context.pending_codes.values()) == {"agents_unavailable"}
    await world.services[Nodes].enable(ROOT, "closed")
    await world.services.schedule()
    (trial,) = await world.trials(waits.id)
    assert trial.agent_id == "closed"


async def test_max_slots_weights_and_places_count_from_the_rows(make_world):
    world = await make_world(training(40))
    await node(world, "one", 3)
    search = {"name": "random", "metric": "loss", "max_trials": 4, "max_concurrent_trials": 4}
    capped = await world.submit(config(search, resources=wants(max_slots=1)))
    late = await world.submit(config(search))
    await world.steps(2)
    assert [trial.display_state for trial in await world.trials(capped.id)].count("RUNNING") == 1
    assert [trial.display_state for trial in await world.trials(late.id)].count("RUNNING") == 2
    assert (
        await world.view(capped.id)
    ).pending_reason == f"experiment {capped.id} holds 1 of its max_slots 1, this needs 1"


async def test_fair_share_gives_each_its_part(make_world):
    fair = Pools({"default": PoolConfig("default", Pool(Scheduler.FAIR_SHARE))})
    world = await make_world(training(60), pools=fair)
    await node(world, "one", 4)
    search = {"name": "random", "metric": "loss", "max_trials": 8, "max_concurrent_trials": 8}
    first = await world.submit(config(search))
    await world.steps(3)
    second = await world.submit(config(search), BOB)
    await world.steps(14)
    for one in (first, second):
        states = [trial.display_state for trial in await world.trials(one.id)]
        assert states.count("RUNNING") == 2, states


async def test_a_task_of_a_user_is_never_preempted(make_world):
    world = await make_world(deaf(3), pools=PREEMPTING)
    await node(world, "one")
    task = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true", "resources": {"slots": 1, "priority": 99}})
    made = await world.services[UserTasks].create(ALICE, task)
    await world.steps(3)
    high = await world.submit(config(resources=wants(1)))
    await world.steps(6)
    assert (await world.services[UserTasks].get(ALICE, made.task.id)).display_state == "RUNNING"
    assert await state_of(world, high.id) == "QUEUED"


async def test_a_request_that_waited_long_is_not_overtaken_any_more(make_world):
    patient = Pools({"default": PoolConfig("default", patience=30.0)})
    world = await make_world(training(400), pools=patient)
    await node(world, "one", 2)
    first = await world.submit(config())
    await world.steps(2)
    large = await world.submit(config(resources=wants(slots=2)))
    small = await world.submit(config(), BOB)
    await world.steps(2)
    assert await state_of(world, small.id) == "RUNNING", "the free slot was of no use to the large one yet"
    await world.services[Experiments].kill(BOB, small.id)
    await world.steps(70)
    late = await world.submit(config(), BOB)
    await world.steps(4)
    assert [await state_of(world, one.id) for one in (first, large, late)] == ["RUNNING", "QUEUED", "QUEUED"]
    said = (await world.view(late.id)).pending_reason
    assert said.startswith("comes after another user's task, which waits for 2 slots")


async def test_snapshots_say_what_the_agents_are(make_world):
    world = await make_world(training(3), pools=TWO)
    gpu = {"kind": "cuda", "name": "NVIDIA H100", "memory": 80 << 30}
    agent = await node(
        world, "one", 2, pool="gpu", labels={"rack": "r7"}, max_zero_slot_tasks=3, runtimes=["docker"], slot=gpu
    )
    for known in (True, False):
        if not known:
            await world.reboot()  # from the rows alone
        found = await world.services.context.read(
            lambda s: snapshots.snapshots(
                s, world.services.connections.nodes(world.now), {}, world.now, world.services.settings
            )
        )
        assert list(found) == ["default", "gpu"]
        assert found["default"].agents == ()
        (one,) = found["gpu"].agents
        assert (one.id, one.slots, one.labels, one.max_zero_slot_tasks) == ("one", 2, {"rack": "r7"}, 3)
        assert (one.slot_type, one.gpu, one.memory) == ("cuda", "NVIDIA H100", 80 << 30)
        assert one.runtimes == {"docker"}
    assert agent.launches == []


async def test_a_request_goes_where_the_gpu_its_memory_and_the_labels_are(make_world):
    world = await make_world(training(3))
    await node(world, "plain")
    small = {"kind": "cuda", "name": "NVIDIA A10", "memory": 24 << 30}
    large = {"kind": "cuda", "name": "NVIDIA A100-SXM4-80GB", "memory": 80 << 30}
    await node(world, "small", slot=small, labels={"rack": "r1"})
    await node(world, "large", slot=large, labels={"rack": "r2"})
    wanted = [
        ({"slot_type": "cpu"}, "plain"),
        ({"gpu": "a10"}, "small"),
        ({"memory": "40G"}, "large"),
        ({"labels": {"rack": "r1"}}, "small"),
        ({"gpu": "A100", "memory": "40G", "labels": {"rack": "r2"}}, "large"),
    ]
    for constraints, name in wanted:
        made = await world.submit(config(resources=wants(constraints=constraints)))
        assert (await world.finish(made.id)).state == "COMPLETED"
        assert [agent for *_, agent in await attempts(world, made.id)] == [name], constraints
    with pytest.raises(ResourcesError, match="no agent has a GPU of model 'H100'"):
        await world.submit(config(resources=wants(constraints={"gpu": "H100"})))
    with pytest.raises(ResourcesError, match="no agent has the labels rack=r1 among those"):
        await world.submit(config(resources=wants(constraints={"gpu": "A100", "labels": {"rack": "r1"}})))
    task = {"entrypoint": "true", "resources": {"slots": 1, "constraints": {"memory": "30G"}}}
    made = await world.services[UserTasks].create(ALICE, CreateTask(kind=TaskKind.COMMAND, config=task))
    await world.steps(2)
    assert (await world.services[UserTasks].get(ALICE, made.task.id)).agent_id == "large"


async def test_a_request_goes_where_its_rules_for_labels_hold_and_rather_where_it_prefers(make_world):
    world = await make_world(training(3))
    await node(world, "one", labels={"zone": "a", "spot": "yes"})
    await node(world, "two", labels={"zone": "b", "disk": "nvme"})
    await node(world, "three", labels={"zone": "c"})

    def rules(required=(), preferred=()):
        return {"affinity": {"required": list(required), "preferred": list(preferred)}}

    nvme, spot = {"label": "disk", "one_of": ["nvme"]}, {"label": "spot", "exists": True, "weight": 9}
    wanted = [
        (rules([{"label": "zone", "one_of": ["c", "d"]}]), "three"),
        (rules([{"label": "zone", "none_of": ["b", "c"]}]), "one"),
        (rules([{"label": "disk", "exists": True}]), "two"),
        (rules(preferred=[nvme, spot]), "one"),
        (rules([{"label": "spot", "exists": False}], [nvme, spot]), "two"),
        (rules(preferred=[{"label": "zone", "one_of": ["x"]}, {**nvme, "weight": 2}]), "two"),
    ]
    for constraints, name in wanted:
        made = await world.submit(config(resources=wants(constraints=constraints)))
        assert (await world.finish(made.id)).state == "COMPLETED"
        assert [agent for *_, agent in await attempts(world, made.id)] == [name], constraints
    nowhere = rules([{"label": "zone", "one_of": ["x", "y"]}])
    for dry_run in (False, True):
        with pytest.raises(ResourcesError, match=r"no agent has label zone in \{x, y\}; \w+ has zone="):
            await world.submit(config(resources=wants(constraints=nowhere)), dry_run=dry_run)
    task = {"entrypoint": "true", "resources": {"slots": 1, "constraints": rules(preferred=[nvme])}}
    made = await world.services[UserTasks].create(ALICE, CreateTask(kind=TaskKind.COMMAND, config=task))
    await world.steps(2)
    assert (await world.services[UserTasks].get(ALICE, made.task.id)).agent_id == "two"


async def test_a_dry_run_tells_what_would_happen_now(make_world):
    world = await make_world(training(40), pools=PREEMPTING)
    await node(world, "one", 2)

    async def told(caller=BOB, **resources):
        request = CreateExperiment(config=config(resources=wants(**resources)), dry_run=True)
        reply = await world.services[Experiments].create(caller, request)
        assert reply.experiment is None
        return reply.forecast

    assert (await told(slots=2)).model_dump() == {"pool": "default", "agent_id": "one", "reason": "", "detail": ""}
    await world.submit(config(resources=wants(50)))
    await world.steps(3)
    assert (await told(slots=1)).agent_id == "one"
    behind = await told(priority=60, slots=2)
    assert (behind.agent_id, behind.reason) == (None, "no_free_slots")
    assert behind.detail == "needs 2 slots: 1 of 2 free; would start now with 1 slot"
    ahead = await told(priority=10, slots=2)
    assert (ahead.reason, ahead.detail) == (
        "releasing",
        "waits for another user's task to release their slots",
    )
    assert [why for _, why, _, _ in await attempts(world, 1)] == [None], "a question changes nothing"


async def test_a_dry_run_of_a_draining_cluster_says_that_nothing_starts(make_world):
    world = await make_world(training(40), pools=PREEMPTING)
    await node(world, "one", 2)
    world.services.context.draining = True
    reply = await world.services[Experiments].create(BOB, CreateExperiment(config=config(), dry_run=True))
    assert (reply.forecast.agent_id, reply.forecast.reason) == (None, "draining")
    assert "until it is restarted" in reply.forecast.detail
