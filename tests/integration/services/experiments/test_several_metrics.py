"""Searches with constraints and with several metrics: what is best, and reports that lack one of the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from services_scripted import Op, asha, config, report

from detlab.schemas.wire import ExperimentState, Launch, TrialState

SMALL = {"name": "random", "metric": "loss", "max_trials": 3, "max_concurrent_trials": 1}


def reporting(*steps: Callable[[int], dict[str, Any]]):
    """Report what each of the functions makes of the trial's index, one after the other."""

    def script(launch: Launch) -> Iterator[Op]:
        for step, metrics in enumerate(steps, 1):
            yield report(step, batches=step, **metrics(launch.info.trial_index))
            if (yield ("poll",)):
                yield ("save", step)
                yield ("exit", 0)
        yield ("exit", 0)

    return script


async def test_the_best_trial_keeps_the_constraints(make_world):
    # the later a trial, the better and the larger it is; the second report of each is too large for any
    world = await make_world(
        reporting(lambda index: {"loss": 1.0 - index / 10, "size": 10 * index}, lambda index: {"loss": 0, "size": 99})
    )
    await world.add_agent()
    made = await world.submit(config({**SMALL, "constraints": {"size": {"max": 10}}}))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    trials = await world.trials(made.id)
    assert [trial.best_validation for trial in trials] == [1.0, 0.9, None]
    assert view.best is not None
    assert (view.best.trial_id, view.best.steps_completed, view.best.value) == (trials[1].id, 1, 0.9)


async def test_a_search_without_a_feasible_trial_has_no_best_one(make_world):
    world = await make_world(reporting(lambda index: {"loss": 0.1, "size": 50}))
    await world.add_agent()
    made = await world.submit(config({**SMALL, "constraints": {"size": {"max": 10}}}))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert view.best is None


async def test_two_metrics_rank_trials_by_both(make_world):
    # trial 0 is beaten in both metrics by each later one
    world = await make_world(reporting(*[lambda index: {"loss": 1.0 / (index + 1), "size": -index}] * 9))
    await world.add_agent()
    searcher = asha(trials=4, concurrent=1, metrics=[{"name": "loss"}, {"name": "size"}])
    del searcher["metric"]
    made = await world.submit(config(searcher))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    trials = await world.trials(made.id)
    assert trials[-1].steps_completed == 9
    assert view.best is not None
    assert view.best.trial_id == trials[-1].id


async def test_a_report_without_the_second_metric_condemns_and_the_card_names_those_that_came(make_world):
    world = await make_world(reporting(lambda index: {"loss": 0.5, "sise": 3}))
    await world.add_agent()
    made = await world.submit(config({**SMALL, "metrics": [{"name": "loss"}, {"name": "size"}]}, max_restarts=0))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.ERROR
    trial = (await world.trials(made.id))[0]
    assert trial.state is TrialState.ERROR
    card = trial.failure.model_dump_json()
    assert "must carry every metric of the search; it lacks 'size'" in card
    assert "sise" in card
    assert "loss" in card


async def test_a_constrained_metric_that_is_no_number_condemns(make_world):
    world = await make_world(reporting(lambda index: {"loss": 0.5, "size": "large"}))
    await world.add_agent()
    made = await world.submit(config({**SMALL, "constraints": {"size": {"max": 3}}}, max_restarts=0))
    await world.finish(made.id)
    trial = (await world.trials(made.id))[0]
    assert trial.state is TrialState.ERROR
    assert "the metric 'size' must be a number, the report has a str" in trial.failure.model_dump_json()
