"""Spaces in the master: conditions, relations, seeds and known results, from the submission to the trials."""

from __future__ import annotations

from typing import Any

import pytest
from services_scripted import ALICE, BOB, asha, config, training

from detlab.client.submission import fork_of
from detlab.errors import ConfigError
from detlab.schemas.wire import ExperimentState
from detlab_hub.core.searchers import Started, Suggest, TrialPlaced, make_searcher
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.store.tables import ExperimentRow

SPACE: dict[str, Any] = {
    "optimizer": {"type": "categorical", "vals": ["sgd", "adam"]},
    "momentum": {"type": "double", "minval": 0, "maxval": 1, "when": {"optimizer": "sgd"}},
    "net": {"when": {"optimizer": ["adam"]}, "heads": {"type": "int", "minval": 1, "maxval": 9}},
    "width": {"type": "int", "minval": 8, "maxval": 64, "step": 8},
}
RANDOM = {"name": "random", "metric": "loss", "max_trials": 6, "require": ["width % net.heads == 0"]}


async def stored(world: Any, experiment_id: int) -> dict[str, Any]:
    row = await world.services.context.read(lambda s: s.get(ExperimentRow, experiment_id).config)
    return dict(row["searcher"])


async def test_trials_have_what_the_conditions_and_relations_say(make_world):
    world = await make_world(training(2))
    await world.add_agent()
    made = await world.submit(config(RANDOM, hyperparameters=SPACE))
    await world.finish(made.id)
    trials = await world.trials(made.id)
    assert len(trials) == 6
    for trial in trials:
        assert ("momentum" in trial.hparams) == (trial.hparams["optimizer"] == "sgd") != ("net" in trial.hparams)
        assert trial.hparams["width"] % trial.hparams.get("net", {"heads": 1})["heads"] == 0


async def test_impossible_space_is_refused_with_its_path(make_world):
    world = await make_world(training(2))
    with pytest.raises(ConfigError) as refused:
        await world.submit(config(RANDOM | {"require": ["width > 64"]}, hyperparameters=SPACE))
    assert [problem.path for problem in refused.value.problems if problem.level == "error"] == ["searcher.require[0]"]


async def test_each_point_is_trained_with_several_seeds_through_a_restart(make_world):
    """The decisions after a restart are those before it: the journal has each report that a mean waits for."""
    world = await make_world(training(9))
    await world.add_agent(slots=4)
    made = await world.submit(config(asha(trials=3, concurrent=4, seeds=2)))
    assert made.trials_total == 6
    await world.steps(5)
    await world.reboot()
    await world.finish(made.id)
    trials = await world.trials(made.id)
    assert (await world.view(made.id)).state == ExperimentState.COMPLETED
    assert len(trials) == 6
    rates = [trial.hparams["lr"] for trial in trials]
    assert sorted(rates.count(rate) for rate in set(rates)) == [2, 2, 2]


TPE = {"name": "tpe", "metric": "loss", "max_trials": 2, "max_concurrent_trials": 1}


async def test_warm_start_takes_the_results_as_they_are_at_the_submission(make_world):
    world = await make_world(training(2))
    await world.add_agent()
    source = await world.submit(config({"name": "random", "metric": "loss", "max_trials": 4}))
    await world.finish(source.id)
    trials = await world.trials(source.id)
    made = await world.submit(config(TPE | {"warm_start": [source.id]}))
    assert made.config["searcher"]["warm_start"] == [source.id]
    assert "results" not in made.config["searcher"]
    results = (await stored(world, made.id))["results"]
    assert sorted(one["hparams"]["lr"] for one in results) == sorted(trial.hparams["lr"] for trial in trials)
    assert [one["metric"] for one in results] == sorted(trial.best_validation for trial in trials)
    again = await world.submit(made.config)
    assert (await stored(world, again.id))["results"] == results


async def test_a_clone_with_a_warm_start_asks_from_the_first_trial_on_with_the_results(make_world):
    world = await make_world(training(2))
    await world.add_agent()
    source = await world.submit(config({"name": "random", "metric": "loss", "max_trials": 4}))
    view = await world.finish(source.id)
    plain = fork_of(view, {}, warm_start=True)
    with pytest.raises(ConfigError) as refused:
        await world.submit(plain.config)
    [wrong] = [problem for problem in refused.value.problems if problem.level == "error"]
    assert wrong.path == "searcher.warm_start"
    changes = {"searcher.name": "tpe", "searcher.startup_trials": 4, "searcher.max_concurrent_trials": 1}
    wanted = fork_of(view, changes, warm_start=True)
    made = await world.submit(wanted.config)
    search = make_searcher(await stored(world, made.id), made.config["hyperparameters"], 1)
    (first,) = search.step(Started())
    assert search.step(TrialPlaced(first.request_id)) == [Suggest(0, 1)]
    known = sorted((ended[2], 10 ** ended[0][0]) for ended in search.question(0).known["ended"])
    trials = await world.trials(source.id)
    told = sorted((trial.best_validation, trial.hparams["lr"]) for trial in trials)
    assert len(known) == 4
    assert known == [(value, pytest.approx(rate)) for value, rate in told]


async def test_warm_start_from_what_the_caller_cannot_use_is_refused_at_once(make_world):
    world = await make_world(training(2))
    await world.add_agent()
    theirs = await world.submit(config(), caller=BOB)
    await world.finish(theirs.id)
    mine = await world.submit(config())
    await world.finish(mine.id)
    with pytest.raises(ConfigError) as refused:
        await world.submit(config(TPE | {"warm_start": [theirs.id, 999, mine.id], "metric": "los"}))
    said = {problem.path: problem.message for problem in refused.value.problems if problem.level == "error"}
    assert said == {
        "searcher.warm_start[0]": f"there is no experiment {theirs.id}",
        "searcher.warm_start[1]": "there is no experiment 999",
        "searcher.warm_start[2]": f"no trial of experiment {mine.id} has a finite validation metric 'los'",
    }
    other = {"lr": {"type": "double", "minval": 5, "maxval": 6}}
    with pytest.raises(ConfigError, match="is in this space; of one, lr is"):
        await world.submit(config(TPE | {"warm_start": [mine.id]}, hyperparameters=other))
    assert (await world.services[Experiments].get(ALICE, mine.id)).state == ExperimentState.COMPLETED
