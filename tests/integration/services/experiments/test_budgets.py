"""Budgets of searches: what runs is stopped when one is used up, once, and nothing begins afterwards."""

from __future__ import annotations

from services_scripted import ALICE, World, config, training
from sqlalchemy import select

from detlab.schemas.wire import ExperimentState
from detlab_hub.services.base.pending import PendingReasons
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.streams.reads import LogRead
from detlab_hub.store.tables import SearcherJournal

LONG = {"name": "random", "metric": "loss", "max_trials": 50, "max_concurrent_trials": 2}


async def spent(world: World, searcher: dict):
    await world.add_agent(slots=2)
    made = await world.submit(config(LONG | searcher))

    async def ended() -> bool:
        return (await world.view(made.id)).state.terminal

    await world.until(ended)
    return await world.view(made.id)


def told(world: World, experiment_id: int) -> list[str]:
    query = select(SearcherJournal.event).where(SearcherJournal.experiment_id == experiment_id)
    events = world.store.read_sync(lambda s: list(s.scalars(query)))
    return [event["reason"] for event in events if event["type"] == "budget_spent"]


async def test_a_search_ends_when_its_wall_clock_time_is_used_up(make_world):
    world = await make_world(training(1000))
    view = await spent(world, {"budget": {"wall_clock": 30}})
    assert view.state is ExperimentState.COMPLETED
    [reason] = told(world, view.id)
    assert reason.startswith("wall_clock: ")
    assert "of 30 used" in reason
    assert any("the budget is used up" in warning for warning in view.warnings)
    assert [trial.stop_evidence for trial in await world.trials(view.id)] == [reason] * 2


async def test_a_search_ends_when_its_slot_hours_are_used_up_through_a_restart(make_world):
    world = await make_world(training(1000))
    view = await spent(world, {"budget": {"slot_hours": 0.01}})
    [reason] = told(world, view.id)
    assert reason.startswith("slot_hours: ")
    assert view.state is ExperimentState.COMPLETED


async def test_a_snapshot_and_the_events_after_it_say_what_is_used(make_world):
    world = await make_world(training(1000))
    await world.add_agent(slots=2)
    made = await world.submit(config(LONG | {"budget": {"slot_hours": 1}}))
    before = await world.services[Experiments].curves(ALICE, made.id)
    assert [(one.name, one.limit) for one in before.experiment.budgets] == [("slot_hours", 1.0)]
    await world.steps(10)
    after = await world.services[Experiments].curves(ALICE, made.id)
    assert after.experiment.budgets[0].used > before.experiment.budgets[0].used
    read = LogRead(before.cursor, world.now, PendingReasons(), made.id)
    events = [line.event.data for line in world.store.read_sync(read).lines if line.event.kind == "experiment"]
    assert events[-1]["budgets"][0]["used"] == after.experiment.budgets[0].used
