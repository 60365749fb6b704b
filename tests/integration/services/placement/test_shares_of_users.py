"""Shares of users in the living master: who starts and who leaves, use that fades over crashes, costs and caps."""

from __future__ import annotations

from typing import Any

import pytest
from services_scripted import ALICE, BOB, ROOT, Flaw, FlawedStore, config, training
from sqlalchemy import event, select

from detlab.errors import Conflict
from detlab.schemas.jobwire import QuotaRequest, QuotaTo
from detlab.schemas.taskwire import CreateTask, SpawnRequest, TaskKind
from detlab.schemas.wire import CreateExperiment
from detlab_hub.core.scheduling import read_pools
from detlab_hub.services.admission import cost_caps
from detlab_hub.services.admission.quotas import Quotas
from detlab_hub.services.base.callers import Caller, HubCaller
from detlab_hub.services.cluster.usage import Usage
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.lifecycle.accounting import day_of
from detlab_hub.services.queue.jobs import Jobs
from detlab_hub.services.usertasks.spawns import Spawns
from detlab_hub.services.usertasks.usertasks import UserTasks
from detlab_hub.store.tables import AlertRow, AllocationRow, CostCapRow, FadedUsageRow, SlotUsageRow

SHARED = {"scheduler": "fair_share", "share_by": "user", "min_run": 5, "evict_after": 2, "usage_half_life": 3600}
GRID = {"name": "random", "metric": "loss", "max_trials": 8, "max_concurrent_trials": 8}


def pools(**more: Any) -> Any:
    found, errors = read_pools({"default": {**SHARED, **more}})
    assert not errors
    return found


async def rows(world: Any, table: Any) -> list[Any]:
    return await world.services.context.read(lambda s: list(s.scalars(select(table))))


async def held(world: Any, owner: str) -> int:
    found = await rows(world, AllocationRow)
    return sum(len(one.slots) for one in found if one.owner == owner and one.state == "RUNNING")


async def test_a_user_who_comes_gets_the_share_after_the_minimum_run(make_world):
    world = await make_world(training(100_000), pools=pools())
    await world.add_agent("node", 4)
    await world.submit(config(GRID))
    await world.steps(4)
    assert await held(world, "alice") == 4
    await world.submit(config(GRID), BOB)
    await world.steps(2, 0.5)
    assert (await held(world, "alice"), await held(world, "bob")) == (4, 0)
    await world.steps(60, 0.5)
    assert (await held(world, "alice"), await held(world, "bob")) == (2, 2)
    ran = [one for one in await rows(world, AllocationRow) if one.preempt_reason == "preempt"]
    assert ran
    assert all(one.preempt_at - one.started_at >= 5.0 for one in ran)


async def test_usage_and_why_tell_the_share(make_world):
    world = await make_world(training(100_000), pools=pools())
    await world.add_agent("node", 4)
    mine = await world.submit(config(GRID))
    await world.submit(config(GRID), BOB)
    await world.steps(40, 0.5)
    shares = (await world.services[Usage].view(ROOT)).shares
    assert [(one.user, one.held, one.of) for one in shares] == [("alice", 2, 4), ("bob", 2, 4)]
    assert sum(one.share for one in shares) == pytest.approx(4.0)
    assert [one.user for one in (await world.services[Usage].view(ALICE)).shares] == ["alice"]
    why = await world.services[Jobs].why(ALICE, str(mine.id))
    assert "the user's share of 4 is" in why.items[0].detail
    assert "bob" not in why.items[0].detail


async def test_groups_of_the_hub_have_shares_that_their_members_divide(make_world):
    world = await make_world(training(100_000), pools=pools(group_weights={"vision": 1, "speech": 1}))
    await world.add_agent("node", 8)
    for name, group in (("ada", "vision"), ("ben", "vision"), ("cleo", "speech")):
        await world.submit(config(GRID), Caller(name, groups=frozenset({group, "all"})))
    await world.steps(60, 0.5)
    shares = (await world.services[Usage].view(ROOT)).shares
    found = [(one.user, one.group, one.held, round(one.share)) for one in shares]
    assert found == [("ada", "vision", 2, 2), ("ben", "vision", 2, 2), ("cleo", "speech", 4, 4)]


@pytest.mark.parametrize("after_commit", [False, True])
async def test_use_is_added_once_over_crashes(make_world, after_commit):
    """The master dies before or after each of the last writes of an allocation, and comes back."""
    world = await make_world(training(3), pools=pools(price=3600.0, usage_half_life=1e8))
    await world.add_agent("node", 1)
    for at in range(1, 16, 2):
        done = await world.submit(config())
        world.services.context.store = FlawedStore(world.store, Flaw(at, after_commit), [0])
        await world.finish(done.id)
    (used,) = await rows(world, FadedUsageRow)
    (cost,) = await rows(world, SlotUsageRow)
    lasted = sum(one.ended_at - one.assigned_at for one in await rows(world, AllocationRow))
    assert lasted > 0
    assert used.slot_seconds == pytest.approx(lasted, rel=0.001)
    assert cost.cost == pytest.approx(lasted)


async def test_the_price_that_stood_at_the_start_counts(make_world):
    world = await make_world(training(100_000), pools=pools(price=3600.0), currency="EUR")
    await world.add_agent("node", 1)
    mine = await world.submit(config())
    await world.steps(10, 0.5)
    world.services.context.settings.pools.by_name["default"].__dict__["price"] = 7200.0
    await world.steps(10, 0.5)
    (one,) = await rows(world, AllocationRow)
    assert (one.price, one.pool) == (3600.0, "default")
    shown = await world.services[Experiments].get(ALICE, mine.id)
    cost = shown.cost
    assert shown.currency == "EUR"
    assert cost == pytest.approx(world.now - one.assigned_at)
    view = await world.services[Usage].view(ALICE)
    assert (view.items[0].cost, view.currency) == (pytest.approx(cost), "EUR")
    await world.services[Experiments].kill(ALICE, mine.id)
    await world.steps(10, 0.5)
    (ended,) = await rows(world, SlotUsageRow)
    assert ended.cost == pytest.approx(ended.slot_seconds)


async def test_the_cost_of_an_hour_is_bound_by_the_quotas_of_its_owner(make_world):
    """The cost of the whole pool was named to a user with a quota of one slot."""
    world = await make_world(training(3), pools=pools(price=2.5), currency="EUR")
    await world.add_agent("node", 4)
    request = CreateExperiment(config=config({**GRID, "max_concurrent_trials": 4}), dry_run=True)
    hourly = []
    for slots in (None, 2, 1):
        if slots is not None:
            await world.services[Quotas].put(ROOT, QuotaRequest(kind="user", name=ALICE.name, slots=slots))
        hourly.append((await world.services[Experiments].create(ALICE, request)).cost.per_hour)
    assert hourly == [10.0, 5.0, 2.5]
    assert (await world.services[Experiments].create(BOB, request)).cost.per_hour == 10.0


async def test_what_a_search_costs_is_said_at_submit(make_world):
    world = await make_world(training(3), pools=pools(price=2.0), currency="EUR")
    await world.add_agent("node", 4)
    search = {**GRID, "max_concurrent_trials": 3, "budget": {"slot_hours": 10}}
    for dry_run in (True, False):
        reply = await world.services[Experiments].create(
            ALICE, CreateExperiment(config=config(search), dry_run=dry_run)
        )
        assert (reply.cost.per_hour, reply.cost.at_most, reply.cost.currency) == (6.0, 20.0, "EUR")
    # More than the pool has is never held at a time.
    wide = config({**GRID, "max_concurrent_trials": 30, "budget": {"slot_hours": 10}})
    reply = await world.services[Experiments].create(ALICE, CreateExperiment(config=wide, dry_run=True))
    assert reply.cost.per_hour <= 8.0
    free = await make_world(training(3))
    await free.add_agent("node", 4)
    assert (await free.services[Experiments].create(ALICE, CreateExperiment(config=config()))).cost is None


@pytest.mark.parametrize("kind", ["user", "project", "experiment"])
async def test_a_cap_pauses_and_tells_and_kills_nothing(make_world, kind):
    """It is reached while the trial trains and saves: what it saves is kept, and it goes on from there."""
    world = await make_world(training(60, save_every=1), pools=pools(price=3600.0))
    await world.add_agent("node", 1)
    mine = await world.submit(config())
    row = await world.view(mine.id)
    name = {"user": "alice", "project": str(row.project_id), "experiment": str(mine.id)}[kind]
    quotas = world.services[Quotas]
    await quotas.put(ROOT, QuotaRequest(kind=kind, name=name, cost=5.0))

    async def paused() -> bool:
        return (await world.view(mine.id)).state == "PAUSED"

    await world.until(paused, 200)
    await world.steps(10, 0.5)
    assert await held(world, "alice") == 0
    assert [one.exit_code for one in await rows(world, AllocationRow)] == [0]
    assert any("is reached" in one for one in (await world.view(mine.id)).warnings)
    (told,) = await rows(world, AlertRow)
    assert (told.owner, told.level) == ("alice", "warn")
    with pytest.raises(Conflict, match="is reached"):
        await world.services[Experiments].activate(ALICE, mine.id)
    await quotas.put(ROOT, QuotaRequest(kind=kind, name=name, cost=1e9))
    await world.services[Experiments].activate(ALICE, mine.id)
    assert (await world.view(mine.id)).warnings == [], "it is paused no more"
    assert (await world.finish(mine.id)).state == "COMPLETED"
    await quotas.remove(ROOT, QuotaTo(kind=kind, name=name))
    assert (await quotas.list(ROOT)).costs == []


async def test_nothing_new_starts_beyond_a_cap(make_world):
    world = await make_world(training(3), pools=pools(price=1.0))
    await world.add_agent("node", 1)
    await world.services[Quotas].put(ROOT, QuotaRequest(kind="user", name="alice", cost=0.0))
    with pytest.raises(Conflict, match=r"the cap of user alice is reached: 0\.00 of 0 used in \d{4}-\d\d\n"):
        await world.submit(config())
    task = CreateTask(kind=TaskKind.COMMAND, config={"entrypoint": "true", "resources": {"slots": 1}})
    with pytest.raises(Conflict, match="the cap of user alice is reached"):
        await world.services[UserTasks].create(ALICE, task)
    assert (await world.submit(config(), BOB)).id
    assert [one.name for one in (await world.services[Quotas].list(BOB)).costs] == []


@pytest.mark.parametrize("kind", [TaskKind.NOTEBOOK, TaskKind.SHELL, TaskKind.TENSORBOARD])
async def test_the_hub_starts_no_server_beyond_a_cap_and_keeps_what_runs(make_world, kind):
    """A server with slots is refused; one that was there before goes on, and is found by its key."""
    world = await make_world(training(3), pools=pools(price=1.0))
    await world.add_agent("node", 2)

    async def spawn(owner: str, name: str, slots: int = 1, again: bool = True) -> Any:
        request = SpawnRequest(
            owner=owner,
            server_name=name,
            key=f"{name}-{owner}-{again}",
            kind=kind,
            config={"resources": {"slots": slots}},
        )
        return await world.services[Spawns].post(HubCaller(), request)

    before = await spawn("alice", "there")
    await world.services[Quotas].put(ROOT, QuotaRequest(kind="user", name="alice", cost=0.0))
    with pytest.raises(Conflict, match="the cap of user alice is reached") as refused:
        await spawn("alice", "new")
    assert "det quota set --user alice" in (refused.value.hint or "")
    with pytest.raises(Conflict, match="is reached"):
        await spawn("alice", "there", again=False)  # a new one of that name, before which the old one would end
    again = await spawn("alice", "there")
    assert (again.task_id, again.state) == (before.task_id, "ACTIVE")
    assert (await spawn("alice", "free", slots=0)).state == "ACTIVE"
    assert (await spawn("bob", "new")).state == "ACTIVE"


async def test_a_refusal_by_a_cap_gives_amounts_to_whom_they_may_be_told(make_world):
    """Nothing said how much was used, and of what."""
    world = await make_world(training(100_000), pools=pools(price=3600.0))
    await world.add_agent("node", 1)
    mine = await world.submit(config())
    await world.steps(10, 0.5)
    await world.services[Quotas].put(ROOT, QuotaRequest(kind="experiment", name=str(mine.id), cost=2))

    async def paused() -> bool:
        return (await world.view(mine.id)).state == "PAUSED"

    await world.until(paused, 200)
    with pytest.raises(Conflict, match=rf"the cap of experiment {mine.id} is reached: \d+\.\d\d of 2 used\n"):
        await world.services[Experiments].activate(ALICE, mine.id)
    await world.services[Quotas].put(ROOT, QuotaRequest(kind="experiment", name=str(mine.id), cost=1e9))
    await world.services[Quotas].put(ROOT, QuotaRequest(kind="project", name=str(mine.project_id), cost=1))
    with pytest.raises(Conflict, match=rf"the cap of project {mine.project_id} is reached\n"):
        await world.services[Experiments].activate(ALICE, mine.id)


async def test_a_clock_that_jumps_changes_no_more_than_shares(make_world):
    world = await make_world(training(100_000), pools=pools(price=1.0))
    await world.add_agent("node", 2)
    await world.submit(config(GRID))
    await world.steps(20, 0.5)
    world.now += 10 * 3600.0
    await world.steps(10, 0.5)
    world.now -= 20 * 3600.0
    await world.submit(config(GRID), BOB)
    await world.steps(10, 0.5)
    view = await world.services[Usage].view(ROOT)
    assert all(one.used >= 0.0 and one.share >= 0.0 for one in view.shares)
    assert all(one.cost >= 0.0 and one.slot_hours >= 0.0 for one in view.items)


def loafing(launch):
    """A trial that holds its GPU, and reports that it does nothing with it."""
    for step in range(1, 100_000):
        yield ("metrics", "gpu", step, {"gpu_util_0": 0.0 if launch.info.trial_index == 0 else 50.0})


async def test_gpus_at_zero_are_found_and_their_owner_is_told_once(make_world):
    world = await make_world(loafing, pools=pools(idle_gpu_warning=600))
    await world.add_agent("node", 2)
    mine = await world.submit(config({**GRID, "max_trials": 2}))
    await world.steps(5, 0.5)
    assert (await world.services[Usage].view(ALICE)).idle == []
    await world.steps(130, 20.0)
    idle = (await world.services[Usage].view(ALICE)).idle
    assert [(one.user, one.experiment_id, one.slots) for one in idle] == [("alice", mine.id, 1)]
    assert (await world.services[Usage].view(BOB)).idle == []
    (told,) = await rows(world, AlertRow)
    assert (told.owner, told.trial_id) == ("alice", idle[0].trial_id)


async def test_many_caps_are_looked_at_with_as_few_statements_as_some(make_world):
    world = await make_world(training(3), pools=pools(price=3600.0))
    await world.add_agent("node", 1)
    mine = await world.submit(config())
    await world.steps(3, 0.5)
    asked: list[str] = []
    event.listen(world.store._read_engine, "before_cursor_execute", lambda *arguments: asked.append(arguments[2]))
    counts = []
    for number in (2, 400):

        def fill(unit: Any, number: int = number) -> None:
            for name in range(number):
                row = CostCapRow(kind="user", name=f"u{name}", amount=0.5, told="", set_by="root", set_at=0.0)
                unit.session.merge(row)
                spent = SlotUsageRow(day=day_of(unit.now).isoformat(), owner=f"u{name}", kind="trial", cost=name % 2)
                spent.slot_seconds = 1.0
                unit.session.merge(spent)
            unit.session.merge(CostCapRow(kind="user", name="alice", amount=0.1, told="", set_by="root", set_at=0.0))

        await world.services.context.write(fill)
        asked.clear()
        found = await world.services.context.read(lambda s: cost_caps.reached(s, world.now))
        assert [one.name for one in found] == ["alice", *sorted(f"u{name}" for name in range(1, number, 2))]
        counts.append(len(asked))
    assert counts[0] == counts[1] <= 4, asked
    await world.services[Experiments].kill(ALICE, mine.id)
