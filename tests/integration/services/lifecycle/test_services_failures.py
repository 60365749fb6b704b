"""How the master takes trials that fail or end without metrics, with scripted agents and tasks."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, asha, config, report, training

from detlab.client.facts import without_result
from detlab.schemas.wire import EndReason, ExperimentState, SlotView, TrialState
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.failures import cards


def failing(code: int, lines: tuple[str, ...] = ()):
    def script(launch):
        for line in lines:
            yield ("log", 0, line)
        yield ("exit", code)

    return script


async def test_services_failures_restart_until_max_restarts(make_world):
    world = await make_world(failing(3))
    agent = await world.add_agent()
    made = await world.submit(config(max_restarts=2))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.ERROR
    (trial,) = await world.trials(made.id)
    assert (trial.state, trial.restarts, trial.run) == (TrialState.ERROR, 2, 3)
    assert len(agent.launches) == 3
    assert view.failure.exit_code == 3
    assert view.failure.message == "exited with code 3"
    assert f"det trial logs {trial.id}" in view.failure.hint


async def test_services_a_traceback_becomes_a_failure_card(make_world):
    lines = (
        "starting",
        "Traceback (most recent call last):",
        '  File "/tmp/x/1.abc.1/work/train.py", line 12, in <module>',
        "    main()",
        '  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads',
        "    return f(s)",
        "ValueError: bad <img onerror=alert(1)>",
    )

    def script(launch):
        yield from failing(1, tuple(line.replace("1.abc.1", launch.allocation_id) for line in lines))(launch)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(max_restarts=0), source={"cells": {"train.py": {"cell": 4, "line_offset": 2}}})
    view = await world.finish(made.id)
    card = view.failure
    assert (card.kind, card.message) == ("exception", "ValueError: bad <img onerror=alert(1)>")
    assert card.where == "cell 4, line 10"
    assert card.rank == 0
    assert card.log_tail[0] == "starting"
    assert len(card.log_tail) == 7


HEAD = ("Traceback (most recent call last):", '  File "/t/work/train.py", line 1, in <module>', "    import it")


@pytest.mark.parametrize(
    ("kind", "slots", "advice"),
    [
        ("cpu", 1, 'the task has none: ask for the backend "gloo"'),
        ("cuda", 1, "install a build for them in its environment or image"),
        ("cuda", 0, 'the task has none: ask for the backend "gloo"'),
    ],
)
async def test_services_nccl_that_is_missing_is_advised_about_by_what_the_slots_are(make_world, kind, slots, advice):
    error = "RuntimeError: Distributed package doesn't have NCCL built in"
    world = await make_world(failing(1, (*HEAD, error)))
    agent = await world.add_agent()
    agent.drop()
    plain, told = agent.hello, [SlotView(id="one", kind=kind, uuid="GPU-1" if kind == "cuda" else None)]
    agent.hello = lambda: plain().model_copy(update={"slots": told})
    await agent.connect()
    made = await world.submit(config(max_restarts=0, resources={"slots_per_trial": slots}))
    card = (await world.finish(made.id)).failure
    assert (card.kind, card.message) == ("exception", error)
    assert advice in card.hint
    assert ("gloo" in card.hint) is ("gloo" in advice)
    assert card.hint.endswith(f"det trial logs {card.trial_id}")


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ((*HEAD, "ModuleNotFoundError: No module named 'it'"), "import"),
        ((*HEAD, "ImportError: cannot import name 'it' from 'them' (unknown location)"), "import"),
        (
            ('  File "/t/work/train.py", line 3', "    for x in", "            ^", "SyntaxError: invalid syntax"),
            "exception",
        ),
    ],
)
async def test_services_code_that_cannot_be_imported_is_not_restarted(make_world, lines, kind):
    world = await make_world(failing(1, lines))
    agent = await world.add_agent()
    made = await world.submit(config(max_restarts=5))
    view = await world.finish(made.id)
    (trial,) = await world.trials(made.id)
    assert (view.state, trial.state, trial.restarts) == (ExperimentState.ERROR, TrialState.ERROR, 0)
    assert len(agent.launches) == 1
    assert (view.failure.kind, view.failure.message) == (kind, lines[-1])
    assert view.failure.hint.endswith("(not restarted: it would fail in the same way each time)")


NO_FRAMEWORK = (
    "detlab.frameworks.errors.FrameworkVersionError: detlab.keras needs keras, which is not installed",
    "pip install 'detlab[keras]'",
)
OTHER_LENGTH = (
    "detlab.frameworks.errors.FrameworkError: the search trains for 7 epochs, and the code for 5 epochs: trials",
    "Set fit(epochs=…) to 7 epochs, or change searcher.max_time and searcher.time_metric in the config.",
)


async def test_services_a_wrong_number_of_processes_costs_one_start(make_world):
    """An entrypoint without launcher on two slots was restarted five times."""
    said = (
        "detlab.pytorch.errors.WorldSizeError: this task has 2 slots, and only one process was started",
        "start it with `python3 -m detlab.launch.torch_distributed python3 train.py`: one process per slot",
    )
    world = await make_world(failing(1, (*HEAD, *said)))
    agent = await world.add_agent(slots=2)
    made = await world.submit(config(max_restarts=5, resources={"slots_per_trial": 2}))
    view = await world.finish(made.id)
    (trial,) = await world.trials(made.id)
    assert (len(agent.launches), trial.restarts) == (1, 0)
    assert view.failure.message == said[0]
    assert view.failure.hint.startswith("begin the entrypoint with python3 -m detlab.launch.torch_distributed, which")
    assert view.failure.hint.endswith("(not restarted: it would fail in the same way each time)")


@pytest.mark.parametrize(
    ("said", "kind", "helps"),
    [(NO_FRAMEWORK, "import", f"{NO_FRAMEWORK[1]}, where tasks run; "), (OTHER_LENGTH, "exception", "")],
)
async def test_services_a_framework_that_does_not_fit_costs_one_start(make_world, said, kind, helps):
    """Regression: five restarts, and of what to install the card said nothing."""
    world = await make_world(failing(1, (*HEAD, *said)))
    agent = await world.add_agent()
    made = await world.submit(config(max_restarts=5))
    view = await world.finish(made.id)
    assert len(agent.launches) == 1
    assert (view.failure.kind, view.failure.message) == (kind, said[0])
    assert view.failure.hint.startswith(helps)
    assert view.failure.hint.endswith("(not restarted: it would fail in the same way each time)")


async def test_services_an_import_that_fails_after_a_report_is_restarted(make_world):
    def script(launch):
        yield report(1, loss=0.5)
        yield from failing(1, (*HEAD, "ModuleNotFoundError: No module named 'it'"))(launch)

    world = await make_world(script)
    agent = await world.add_agent()
    made = await world.submit(config(max_restarts=2))
    await world.finish(made.id)
    (trial,) = await world.trials(made.id)
    assert (trial.restarts, len(agent.launches)) == (2, 3)
    assert "not restarted" not in trial.failure.hint


DENIED = "detlab.errors.StorageDenied: cannot make /data/.stage-1: Permission denied: /data belongs to root (uid 0)"
LET = "Let that user write there, on vm: chmod 1777 /data; or name another folder in checkpoint_storage"


async def test_services_a_closed_storage_is_not_tried_again_on_the_only_agent(make_world):
    """Each restart met the same folder."""

    def script(launch):
        yield report(1, loss=0.5)
        yield from failing(1, (*HEAD, DENIED, LET))(launch)

    world = await make_world(script)
    agent = await world.add_agent()
    made = await world.submit(config(max_restarts=5))
    view = await world.finish(made.id)
    assert len(agent.launches) == 1
    assert view.failure.message == DENIED
    assert view.failure.hint.startswith(LET)
    assert view.failure.hint.endswith("(not restarted: it would fail in the same way each time)")


REFUSED = (
    "detlab.errors.StorageRefused: checkpoints cannot be stored (checkpoint_storage.bucket): NoSuchBucket: The "
    "specified bucket does not exist"
)
LOOK = "look at checkpoint_storage.bucket and at the credentials, then: det config check --storage CONFIG"


async def test_services_a_wrong_bucket_costs_one_start_also_where_there_are_other_agents(make_world):
    world = await make_world(failing(1, (*HEAD, REFUSED, LOOK)))
    agents = [await world.add_agent(name) for name in ("one", "two")]
    made = await world.submit(config(max_restarts=5))
    view = await world.finish(made.id)
    assert sum(len(agent.launches) for agent in agents) == 1
    assert view.failure.message == REFUSED
    assert view.failure.hint.startswith(LOOK)


async def test_services_a_closed_storage_may_be_open_on_another_agent(make_world):
    world = await make_world(failing(1, (*HEAD, DENIED, LET)))
    agents = [await world.add_agent(name) for name in ("one", "two")]
    made = await world.submit(config(max_restarts=2))
    await world.finish(made.id)
    assert sum(len(agent.launches) for agent in agents) == 3


async def test_services_data_that_a_task_may_not_read_is_not_tried_again(make_world):
    said = "PermissionError: [Errno 13] Permission denied: '/data/x.csv'"
    world = await make_world(failing(1, (*HEAD, said)))
    agent = await world.add_agent()
    made = await world.submit(config(max_restarts=5))
    view = await world.finish(made.id)
    assert (len(agent.launches), view.failure.message) == (1, said)
    assert view.failure.hint.startswith("tasks of alice run as a user of their own")


async def test_services_a_program_that_is_not_there_is_not_looked_for_again_on_the_only_agent(make_world):
    world = await make_world(failing(127, ("sh: 1: pyton3: not found",)))
    agent = await world.add_agent()
    made = await world.submit(config(max_restarts=5))
    view = await world.finish(made.id)
    assert (len(agent.launches), view.failure.kind) == (1, "config")
    assert view.failure.message == "the entrypoint needs 'pyton3', which does not exist"
    assert view.failure.hint.endswith("(not restarted: it would fail in the same way each time)")


async def test_services_a_time_metric_with_another_name_is_suggested(make_world):
    def script(launch):
        yield report(1, loss=0.5, epoch=1)
        yield ("wait",)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(asha(trials=1, time_metric="epochs")))
    view = await world.finish(made.id)
    assert "searcher.time_metric: epoch, which the trial reports" in view.failure.hint
    assert f"; the report of trial {view.failure.trial_id} has none; " in view.failure.message


async def test_services_a_time_metric_that_no_trial_reports_ends_the_search_with_the_first(make_world):
    """All trials failed, one after the other."""

    def script(launch):
        yield report(1, loss=0.5, epoch=1)
        yield ("wait",)

    world = await make_world(script)
    await world.add_agent(slots=2)
    search = {**asha(trials=8, time_metric="epochs"), "max_concurrent_trials": 2}
    made = await world.submit(config(search))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.ERROR
    assert "searcher.time_metric: epoch, which the trial reports" in view.failure.hint
    assert view.failure.hint.endswith("(the search ends: its other trials would fail in the same way)")
    assert len(await world.trials(made.id)) == 2, "those that had begun"


async def test_services_one_trial_without_the_time_metric_ends_alone(make_world):
    def script(launch):
        if launch.info.trial_index == 1:
            yield report(1, loss=0.5, epoch=1)
            yield ("wait",)
        for step in range(1, 10):
            yield report(step, loss=float(launch.info.trial_index), epochs=step)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    search = {**asha(trials=3, time_metric="epochs"), "max_concurrent_trials": 1}
    made = await world.submit(config(search))
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    states = [one.state for one in await world.trials(made.id)]
    assert (len(states), states.count(TrialState.ERROR)) == (3, 1)


async def test_services_an_experiment_in_error_is_not_done(make_world):
    world = await make_world(failing(3))
    await world.add_agent()
    made = await world.submit(config(max_restarts=0))
    view = await world.finish(made.id)
    assert (view.state, view.progress) == (ExperimentState.ERROR, 0.0)


async def test_services_an_experiment_with_one_good_trial_is_completed(make_world):
    def script(launch):
        if launch.info.trial_index == 0:
            yield ("exit", 1)
        yield report(1, loss=1.0)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    searcher = {"name": "random", "metric": "loss", "max_trials": 3, "max_concurrent_trials": 3}
    made = await world.submit(config(searcher, max_restarts=0))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert view.trials == {"COMPLETED": 2, "ERROR": 1}


async def test_services_no_metrics_is_a_failure_under_asha_of_a_trial_that_stopped_itself(make_world):
    def script(launch):
        yield ("early_exit", "USER_REQUESTED_STOP")
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(asha(trials=2)))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.ERROR
    for trial in await world.trials(made.id):
        assert (trial.state, trial.end_reason) == (TrialState.ERROR, EndReason.NO_METRICS)
        assert trial.failure.kind == "no_metrics"
        assert "'loss'" in trial.failure.message


async def test_services_a_misspelt_metric_is_told_at_the_first_validation(make_world):
    """A whole search trained to its end before anybody was told."""

    def script(launch):
        yield report(1, test_loss=0.5, batches=1)
        yield ("wait",)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(asha(trials=2)))

    async def told():
        return (await world.view(made.id)).warnings

    await world.until(told)
    [warning] = await told()
    expected = "its first validation report has no 'loss', the searcher's metric; it has batches, test_loss"
    assert warning == f"trial {(await world.trials(made.id))[0].id}: {expected}"


async def test_services_a_metric_that_comes_later_is_not_warned_of_any_longer(make_world):
    def script(launch):
        yield report(1, test_loss=0.5, batches=1)
        yield report(1, loss=0.5, batches=1)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config({"name": "single", "metric": "loss"}))
    assert (await world.finish(made.id)).warnings == []


@pytest.mark.parametrize("name", ["single", "random", "grid"])
async def test_services_no_metrics_is_a_warning_elsewhere(make_world, name):
    world = await make_world(failing(0))
    await world.add_agent()
    searcher = {"name": name, "metric": "loss", **({"max_trials": 1} if name == "random" else {})}
    made = await world.submit(config(searcher, hyperparameters={"lr": 0.1}))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    (trial,) = await world.trials(made.id)
    assert trial.warnings == ["never reported 'loss'"]
    assert view.warnings == [f"trial {trial.id} never reported 'loss'"]


async def test_services_warnings_of_many_trials_are_counted_beyond_a_number(make_world, monkeypatch):
    monkeypatch.setattr(cards, "WARNED_TRIALS", 2)
    world = await make_world(failing(0))
    await world.add_agent(slots=2)
    made = await world.submit(config({"name": "random", "metric": "loss", "max_trials": 5, "max_concurrent_trials": 2}))
    view = await world.finish(made.id)
    assert len(view.warnings) == 3
    assert view.warnings[2] == "and 3 more trials, each with a warning of its own"
    assert all(trial.warnings == ["never reported 'loss'"] for trial in await world.trials(made.id))


async def test_services_a_search_by_a_training_metric_alone_has_no_result_and_says_why(make_world):
    def script(launch):
        yield ("metrics", "training", 1, {"acc": 0.5})
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config({"name": "random", "metric": "acc", "max_trials": 2}))
    view = await world.finish(made.id)
    told = (
        "never reported 'acc' (its validations reported: nothing; its training did, but a search goes by validations)"
    )
    assert told in view.warnings[0]
    assert without_result(view) == view.warnings[0]


async def test_services_the_warning_about_a_missing_metric_names_what_was_reported(make_world):
    def script(launch):
        yield report(1, test_loss=0.5, epoch=1)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config({"name": "single", "metric": "val_loss"}))
    view = await world.finish(made.id)
    (trial,) = await world.trials(made.id)
    assert trial.warnings == ["never reported 'val_loss' (its validations reported: epoch, test_loss)"]
    assert view.warnings == [f"trial {trial.id} {trial.warnings[0]}"]


async def test_services_a_pause_of_code_that_saves_nothing_is_told(make_world):
    def script(launch):
        yield report(40, loss=0.5)
        while not (yield ("poll",)):
            pass
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config({"name": "single", "metric": "loss"}))

    async def reported():
        return [trial.steps_completed for trial in await world.trials(made.id)] == [40]

    await world.until(reported)
    for _ in range(2):  # said once, however often it is paused
        await world.services[Experiments].pause(ALICE, made.id)
        await world.steps(200)
        await world.services[Experiments].activate(ALICE, made.id)
        await world.steps(20)
    (trial,) = await world.trials(made.id)
    assert trial.warnings == [
        "left at step 40 without a checkpoint: it begins anew, since its code saves nothing when it is asked to leave"
    ]
    assert (await world.view(made.id)).warnings == [f"trial {trial.id} {trial.warnings[0]}"]


async def test_services_invalid_hp_is_completed_and_replaced(make_world):
    def script(launch):
        if launch.info.trial_index == 0:
            yield ("early_exit", "INVALID_HP")
            yield ("exit", 0)
        yield from training(9)(launch)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(asha(trials=2, concurrent=1)))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    trials = await world.trials(made.id)
    assert (trials[0].state, trials[0].end_reason) == (TrialState.COMPLETED, EndReason.INVALID_HP)
    assert len(trials) == 3, "an invalid trial does not use up the budget"
    assert trials[0].restarts == 0
    assert view.trials_total == 3, "the plan of 2 made the progress line read 3/2"


@pytest.mark.parametrize(
    ("searcher", "told"),
    [
        ({"name": "single", "metric": "loss"}, "its one point was"),
        ({"name": "grid", "metric": "loss", "max_trials": 2, "max_concurrent_trials": 1}, "all 2 points were"),
    ],
)
async def test_services_a_search_that_replaces_no_point_says_that_all_were_invalid(make_world, searcher, told):
    """It ended COMPLETED, and nothing but the cards of its trials said that nothing was trained."""

    def script(launch):
        yield ("early_exit", "INVALID_HP")
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(searcher, hyperparameters={"lr": {"type": "categorical", "vals": [0.1, 0.2]}}))
    view = await world.finish(made.id)
    assert view.failure is not None
    assert view.failure.message == f"nothing was trained: {told} invalid (InvalidHP)"
    assert view.failure.command == f"det trial list {made.id}"


async def test_services_a_search_whose_points_are_all_invalid_is_paused_with_the_reason(make_world):
    def script(launch):
        yield ("early_exit", "INVALID_HP")
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(asha(trials=2, concurrent=1)))

    async def paused() -> bool:
        return (await world.view(made.id)).state is ExperimentState.PAUSED

    await world.until(paused)
    view = await world.view(made.id)
    assert "10 points in a row were invalid" in view.failure.message
    assert f"det search bounds {made.id} FILE" in view.failure.hint
    assert view.failure.command == f"det experiment activate {made.id}"
    assert len(await world.trials(made.id)) <= 11
    world.script = training(9)
    await world.services[Experiments].activate(ALICE, made.id)
    view = await world.finish(made.id)
    assert (view.state, view.failure) == (ExperimentState.COMPLETED, None)


@pytest.mark.parametrize("end", ["cancel", "kill"])
async def test_services_a_paused_search_that_is_ended_instead_of_mended_is_not_to_be_activated(make_world, end):
    """Regression: its card went on saying that it was paused, nothing lost, and how to activate it."""

    def script(launch):
        yield report(1, test_loss=0.5, batches=1)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(asha(trials=2)))

    async def paused() -> bool:
        return (await world.view(made.id)).state is ExperimentState.PAUSED

    await world.until(paused)
    assert "activate" in (await world.view(made.id)).failure.hint
    await getattr(world.services[Experiments], end)(ALICE, made.id)
    view = await world.finish(made.id)
    assert view.state is ExperimentState.CANCELED
    assert "test_loss" in view.failure.message, "the reason stays"
    for said in (view.failure.hint, view.failure.command):
        assert "activate" not in said
        assert "paused" not in said


async def test_services_a_metric_that_is_no_number_fails_the_trial_only(make_world):
    def script(launch):
        if launch.info.trial_index == 0:
            yield report(1, loss={"not": "a number"}, batches=1)
            while True:
                yield ("wait",)
        yield from training(9)(launch)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(asha(trials=2, concurrent=1)))
    view = await world.finish(made.id)
    first, *_ = await world.trials(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert (first.state, first.restarts, first.failure.kind) == (TrialState.ERROR, 0, "searcher")
    assert "'loss'" in first.failure.message


async def test_services_a_missing_time_metric_is_named_with_what_there_was(make_world):
    def script(launch):
        yield report(1, loss=0.5, other=2)
        while True:
            yield ("wait",)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(asha(trials=1, time_metric="epochs")))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.ERROR
    assert "'epochs'" in view.failure.message
    assert "loss, other" in view.failure.message


async def test_services_steps_completed_stands_for_the_time_metric_batches(make_world):
    def script(launch):
        for step in range(1, 10):
            yield report(step, loss=float(launch.info.trial_index))
            if (yield ("poll",)):
                yield ("exit", 0)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(asha(trials=3)))
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    assert any(trial.end_reason is EndReason.STOPPED for trial in await world.trials(made.id))


async def test_services_nan_ranks_worst_and_is_kept(make_world):
    def script(launch):
        for step in range(1, 10):
            yield report(step, loss="NaN" if launch.info.trial_index == 0 else 1.0, batches=step)
            if (yield ("poll",)):
                yield ("exit", 0)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(asha(trials=4, concurrent=1)))
    view = await world.finish(made.id)
    trials = await world.trials(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert view.best.value == 1.0
    first = await world.services[Trials].get(ALICE, trials[0].id)
    assert first.summary["validation"]["loss"].nan_count >= 1
    assert first.best_validation is None
