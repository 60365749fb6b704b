"""Stopping policies in the master: they stop trials of any search, or only note it, and say what they went by."""

from __future__ import annotations

from collections.abc import Iterator

from services_scripted import ALICE, Op, World, asha, config, report, training
from sqlalchemy import select

from detlab.schemas.wire import ExperimentState, Launch, TrialState
from detlab_hub.services.experiments.timeline import Timeline
from detlab_hub.store.tables import SearcherJournal, TrialRow


def flat(length: int, level: float = 0.5):
    """Report the same loss at every step, and leave when told to."""

    def script(launch: Launch) -> Iterator[Op]:
        for step in range(1, length + 1):
            yield report(step, loss=level, batches=step)
            if (yield ("poll",)):
                yield ("save", step)
                yield ("exit", 0)
        yield ("exit", 0)

    return script


def rows(world: World, experiment_id: int) -> list[TrialRow]:
    query = select(TrialRow).where(TrialRow.experiment_id == experiment_id).order_by(TrialRow.id)
    return list(world.store.read_sync(lambda s: s.scalars(query).all()))


def single(**more):
    return {"name": "single", "metric": "loss", "time_metric": "batches", **more}


async def test_a_policy_stops_a_trial_and_its_row_says_why(make_world):
    world = await make_world(flat(50))
    await world.add_agent()
    made = await world.submit(config(single(), stopping=[{"name": "no_improvement", "patience": 3}]))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    [row] = rows(world, made.id)
    assert row.state == TrialState.COMPLETED
    assert row.steps_completed < 10
    assert row.stop_evidence == (
        "at batches 4: the best of the last 3 reports is 0.5, better than 0.5 was needed (no_improvement)"
    )
    assert row.would_stop == []
    [item] = [one for one in (await world.services[Timeline].view(ALICE, made.id)).items if one.what == "trial stopped"]
    assert (item.trial_id, item.detail) == (row.id, row.stop_evidence)


async def test_a_dry_run_notes_once_what_it_would_have_stopped_and_lets_it_train(make_world):
    world = await make_world(flat(12))
    await world.add_agent()
    entry = {"name": "no_improvement", "patience": 3, "dry_run": True}
    made = await world.submit(config(single(), stopping=[entry]))
    await world.finish(made.id)
    [row] = rows(world, made.id)
    assert (row.state, row.steps_completed, row.stop_evidence) == (TrialState.COMPLETED, 12, "")
    [noted] = row.would_stop
    assert noted.startswith("at batches 4: ")
    course = (await world.services[Timeline].view(ALICE, made.id)).items
    [item] = [one for one in course if one.what == "trial would have been stopped"]
    assert (item.trial_id, item.detail) == (row.id, noted)
    assert "trial stopped" not in [one.what for one in course]


async def test_wall_clock_counts_the_time_on_slots_and_none_in_the_queue(make_world):
    world = await make_world(flat(200))
    made = await world.submit(config(single(), stopping=[{"name": "wall_clock", "seconds": 20}]))
    await world.steps(100)  # 50 s in the queue
    await world.add_agent()
    began = world.now
    await world.finish(made.id)
    [row] = rows(world, made.id)
    assert row.state == TrialState.COMPLETED
    assert row.stop_evidence.endswith("it has run for 20 s, the limit is 20 s (wall_clock)")
    assert 20 <= world.now - began < 40


async def test_policies_stop_trials_of_a_search_and_a_new_master_decides_the_same(make_world, tmp_path):
    policies = [{"name": "median", "min_trials": 2}, {"name": "divergence", "factor": 5}]
    found = []
    for reboots in (0, 3):
        world = World(f"sqlite:///{tmp_path}/{reboots}.sqlite", tmp_path, script=training(9))
        await world.boot()
        await world.add_agent()
        searcher = single(name="random", max_trials=6, max_concurrent_trials=1)
        made = await world.submit(config(searcher, stopping=policies))
        for _ in range(reboots):
            await world.steps(15)
            await world.reboot()
        assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
        found.append([(row.request_id, row.state, row.stop_evidence) for row in rows(world, made.id)])
        world.close()
    assert found[0] == found[1]
    assert any(evidence.endswith("(median)") for _, _, evidence in found[0])


async def test_the_journal_keeps_what_policies_went_by(make_world):
    world = await make_world(flat(50))
    await world.add_agent()
    made = await world.submit(config(single(), stopping=[{"name": "wall_clock", "seconds": 3}]))
    await world.finish(made.id)
    query = select(SearcherJournal.event).where(SearcherJournal.experiment_id == made.id)
    events = world.store.read_sync(lambda s: list(s.scalars(query)))
    elapsed = [event["elapsed"] for event in events if event["type"] == "validation_reported"]
    assert elapsed, events
    assert elapsed == sorted(elapsed)
    assert elapsed[-1] >= 3


async def test_a_rung_that_stops_a_trial_is_in_the_timeline_with_the_place(make_world):
    world = await make_world(training(9))
    await world.add_agent()
    made = await world.submit(config(asha(6)))
    await world.finish(made.id)
    course = (await world.services[Timeline].view(ALICE, made.id)).items
    said = {one.trial_id: one.detail for one in course if one.what == "trial stopped"}
    assert said == {row.id: row.stop_evidence for row in rows(world, made.id) if row.stop_evidence}
    assert any("place" in detail for detail in said.values())


async def test_a_goal_ends_the_whole_search_and_the_experiment_says_so(make_world):
    world = await make_world(flat(50, level=0.04))
    await world.add_agent()
    searcher = {"name": "random", "metric": "loss", "max_trials": 9, "max_concurrent_trials": 2, "goal": 0.05}
    made = await world.submit(config(searcher, hyperparameters={"lr": {"type": "double", "minval": 0, "maxval": 1}}))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert view.progress == 1.0
    why = "loss has reached the goal of 0.05: it is 0.04"
    assert f"the search has ended early: {why}" in view.warnings
    found = rows(world, made.id)
    assert len(found) < 9
    assert all(why in row.stop_evidence for row in found)


async def test_a_search_that_has_tried_every_point_completes_and_says_so(make_world):
    world = await make_world(flat(2))
    await world.add_agent()
    searcher = {"name": "random", "metric": "loss", "max_trials": 9, "max_concurrent_trials": 2}
    space = {"x": {"type": "categorical", "vals": ["a", "b", "c"]}}
    made = await world.submit(config(searcher, hyperparameters=space))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert sorted(row.hparams["x"] for row in rows(world, made.id)) == ["a", "b", "c"]
    assert "every point of the space has been tried" in view.warnings
