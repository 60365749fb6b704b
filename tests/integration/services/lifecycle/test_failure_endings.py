"""Cards of what was stopped, preempted, lost or diverged, with scripted agents and tasks; secrets are masked in all."""

from __future__ import annotations

import math

import pytest
from services_scripted import ALICE, ROOT, config, deaf, report, training

from detlab.client.facts import diverged, without_result
from detlab.schemas.wire import ExperimentState, FailureView, TrialState, TrialView
from detlab_hub.services.cluster.cluster import Cluster
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.trials import Trials

GLOO = "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation to complete"


async def only_trial(world, experiment_id: int) -> TrialView:
    (trial,) = await world.trials(experiment_id)
    return await world.services[Trials].get(ALICE, trial.id)


def told(card: FailureView | None) -> tuple[str, str, str | None]:
    assert card is not None
    return card.kind, card.message, card.command


async def test_who_stopped_an_experiment_or_a_trial_stands_on_its_card(make_world):
    world = await make_world(training(200))
    await world.add_agent(slots=2)
    canceled, killed = [await world.submit(config()) for _ in range(2)]
    await world.steps(6)
    await world.services[Experiments].cancel(ALICE, canceled.id)
    await world.services[Trials].kill(ROOT, (await only_trial(world, killed.id)).id)
    view = await world.finish(canceled.id)
    assert (view.state, view.failure) == (ExperimentState.CANCELED, None)
    number = canceled.id
    assert told(view.card) == (
        "user_stop",
        f"experiment {number} was canceled by alice",
        f"det experiment logs {number}",
    )
    trial = await only_trial(world, number)
    assert (trial.state, trial.failure) == (TrialState.CANCELED, None)
    assert told(trial.card) == (
        "user_stop",
        f"trial {trial.id} was canceled by alice",
        f"det trial logs {trial.id}",
    )
    await world.finish(killed.id)
    trial = await only_trial(world, killed.id)
    assert told(trial.card)[:2] == ("user_stop", f"trial {trial.id} was killed by {ROOT.name}")


async def test_who_killed_the_only_trial_stands_on_the_card_of_its_experiment(make_world):
    """It said "experiment 20 was stopped": not by whom, nor that it was its trial."""
    world = await make_world(training(200))
    await world.add_agent(slots=1)
    made = await world.submit(config())
    await world.steps(6)
    trial = await only_trial(world, made.id)
    await world.services[Trials].kill(ALICE, trial.id)
    view = await world.finish(made.id)
    assert view.state is ExperimentState.CANCELED
    assert told(view.card)[1] == f"trial {trial.id} of experiment {made.id} was killed by alice"


async def test_a_trial_whose_node_was_lost_says_so_and_goes_on(make_world):
    world = await make_world(training(200, save_every=1))
    lost = await world.add_agent("lost")
    made = await world.submit(config())
    await world.steps(6)
    assert (await only_trial(world, made.id)).card is None
    lost.drop()
    await world.add_agent("other")
    await world.steps(60)
    trial = await only_trial(world, made.id)
    assert (trial.state, trial.restarts, trial.failure) == (TrialState.ACTIVE, 0, None)
    assert told(trial.card) == ("lost", "attempt 1 was lost with agent lost", "det agent list")
    assert "from its last checkpoint" in (trial.card.hint or "")


async def test_a_preempted_trial_says_why_it_waits(make_world):
    world = await make_world(deaf(2))
    await world.add_agent()
    made = await world.submit(config())
    await world.steps(6)
    await world.services[Cluster].drain(ROOT, 1.0)
    await world.steps(20)
    trial = await only_trial(world, made.id)
    kind, message, command = told(trial.card)
    assert (kind, command, trial.failure, trial.restarts) == ("preempted", "det queue", None, 0)
    assert message.startswith("attempt 1 was preempted: its node, or the cluster, is being drained")
    assert "was killed" in message


async def test_a_metric_that_is_none_is_shown_on_trials_that_end_well_and_explains_those_that_do_not(make_world):
    def script(launch):
        yield report(1, loss=0.5)
        yield report(2, loss=math.nan)
        yield ("exit", int(launch.entrypoint[0]))

    world = await make_world(script)
    await world.add_agent(slots=2)
    well, ill = [await world.submit(config(entrypoint=[code], max_restarts=0)) for code in ("0", "7")]
    assert (await world.finish(well.id)).state is ExperimentState.COMPLETED
    trial = await only_trial(world, well.id)
    assert trial.failure is None
    assert told(trial.card) == (
        "nan",
        "it completed, but the last value of the searcher metric 'loss' is nan",
        f"det trial metrics {trial.id} --group validation",
    )
    view = await world.finish(ill.id)
    assert view.card == view.failure
    assert told(view.card)[:2] == ("nan", "exited with code 7, after the searcher metric 'loss' had become nan")


async def test_another_metric_that_ends_with_nan_is_shown_on_its_trial(make_world):
    """Page, command line and notebook said nothing of it."""

    def script(launch):
        yield report(1, loss=0.5, f1=0.1, size=math.inf)
        yield report(2, loss=0.4, f1=math.nan, size=3.0)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config())
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    trial = await only_trial(world, made.id)
    assert told(trial.card) == (
        "nan",
        "it completed, but the last value of 'f1' (validation) is NaN or infinite",
        f"det trial metrics {trial.id} --group validation",
    )
    assert (await world.view(made.id)).failure is None


async def test_a_trial_that_never_reported_its_metric_has_a_card_although_it_is_completed(make_world):
    world = await make_world(lambda _launch: iter([("exit", 0)]))
    await world.add_agent()
    made = await world.submit(config())
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    trial = await only_trial(world, made.id)
    assert told(trial.card)[0] == "no_metrics"
    assert "'loss'" in told(trial.card)[1]


async def test_the_rank_that_did_not_come_is_named_by_the_number_of_slots(make_world):
    """Only the rank that waited said anything, and it was also the first that ended."""

    def script(_launch):
        for line in ("Traceback (most recent call last):", '  File "train.py", line 3, in <module>', GLOO):
            yield ("log", 0, line)
        yield ("exit", 1)

    world = await make_world(script)
    await world.add_agent(slots=2)
    made = await world.submit(config(resources={"slots_per_trial": 2}, max_restarts=0))
    card = (await world.finish(made.id)).failure
    assert (card.kind, card.rank) == ("hang", 1)
    assert card.message == "rank 1 did not reach a collective, in which rank 0 waited"
    assert card.command == f"det trial logs {card.trial_id} --rank 1"
    assert card.hint.endswith(card.command)


async def test_secrets_of_the_config_are_masked_in_the_card(make_world):
    secret, token = "s3cret-of-alice", "hf_abcdefgh"

    def script(_launch):
        yield ("log", None, f"<b>connecting with {secret}</b> and {token}, not 12345")
        yield ("log", None, "Traceback (most recent call last):")
        yield ("log", None, '  File "train.py", line 3, in <module>')
        yield ("log", None, f"PermissionError: {secret} was refused")
        yield ("exit", 1)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(
        config(
            max_restarts=0,
            data={"secrets": {"key": secret, "pin": "12345"}},
            environment={"environment_variables": [f"HF_TOKEN={token}", "MODE=connecting"]},
        )
    )
    card = (await world.finish(made.id)).failure
    assert card.message == "PermissionError: ******** was refused"
    assert card.log_tail[0] == "<b>connecting with ********</b> and ********, not 12345"


@pytest.mark.parametrize("before", [995, 4000 - len("ValueError: ") - 5])
async def test_a_secret_across_the_end_of_what_a_card_reads_is_masked(make_world, before):
    """Lines and messages were cut first: of a secret at the cut a part was shown."""
    secret = "s3cret-of-alice"

    def script(_launch):
        yield ("log", None, "Traceback (most recent call last):")
        yield ("log", None, '  File "train.py", line 3, in <module>')
        yield ("log", None, f"ValueError: {'x' * before}{secret}")
        yield ("exit", 1)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(max_restarts=0, data={"secrets": {"key": secret}}))
    card = (await world.finish(made.id)).failure
    assert card.message.startswith("ValueError: xxx")
    assert secret[:4] not in card.message + "".join(card.log_tail)


LATE = "NaN or an infinite value of 'loss'; the best value is from before"


@pytest.mark.parametrize(
    ("ends", "warning"),
    [
        (
            [math.nan, math.inf],
            f"all 2 trials ended with {LATE}",
        ),
        ([math.nan, 0.5], "1 of 2 trials ended with NaN or an infinite value of 'loss'"),
        ([-math.inf], f"its trial ended with {LATE}"),
        ([0.5, 0.25], None),
    ],
)
async def test_a_search_whose_trials_diverge_after_better_values_says_so(make_world, ends, warning):
    """Six trials that all ended in NaN were a green "completed": their curves had begun well."""
    left = iter(ends)

    def script(launch):
        yield report(1, loss=1.0)
        yield report(2, loss=next(left))
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent(slots=2)
    made = await world.submit(config({"name": "random", "metric": "loss", "max_trials": len(ends)}))
    view = await world.finish(made.id)
    assert (view.state, view.best.value <= 1.0) == (ExperimentState.COMPLETED, True)
    assert view.warnings == ([] if warning is None else [warning])
    assert without_result(view) is None
    assert diverged(view) == (None if warning is None or "1 of 2" in warning else warning)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
async def test_a_search_whose_values_are_all_none_says_so_although_it_is_completed(make_world, value):
    """It was a green "completed" in the list, on the page, in `describe` and in the notebook; only the card told."""

    def script(launch):
        yield report(1, loss=value)
        yield report(2, loss=math.nan)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent(slots=2)
    made = await world.submit(config({"name": "random", "metric": "loss", "max_trials": 2}))
    view = await world.finish(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert view.warnings == ["no finite value of 'loss' was reported"]
    assert without_result(view) == view.warnings[0]
    for trial in await world.trials(made.id):
        assert trial.warnings == ["no finite value of 'loss' was reported; the last one is nan"]


async def test_a_completed_search_has_the_card_of_its_first_failed_trial_and_says_that_its_best_is_from_one(make_world):
    """Half of a search had failed, the trial with the best value among them, and nothing said why."""

    began = iter(range(3))

    def script(_launch):
        at = next(began)
        yield report(1, loss=0.1 + at)
        yield ("log", None, "ZeroDivisionError: division by zero")
        yield ("exit", 0 if at == 2 else 1)

    world = await make_world(script)
    await world.add_agent(slots=3)
    made = await world.submit(config({"name": "random", "metric": "loss", "max_trials": 3}, max_restarts=0))
    view = await world.finish(made.id)
    failed = [one for one in await world.trials(made.id) if one.state is TrialState.ERROR]
    first = min(failed, key=lambda one: (one.ended_at, one.id))
    assert (view.state, view.failure, view.trials["ERROR"]) == (ExperimentState.COMPLETED, None, 2)
    assert view.best is not None
    assert view.best.failed
    assert view.card is not None
    assert view.card.trial_id == first.id
    assert "ZeroDivisionError: division by zero" in view.card.message


async def test_one_finite_value_is_a_result(make_world):
    def script(launch):
        yield report(1, loss=math.nan)
        yield report(2, loss=0.5)
        yield ("exit", 0)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config())
    view = await world.finish(made.id)
    assert (view.warnings, without_result(view)) == ([], None)


async def test_a_name_that_only_the_notebook_knows_is_explained_on_the_card(make_world):
    def script(_launch):
        for line in (
            "Traceback (most recent call last):",
            '  File "train.py", line 3, in <module>',
            "NameError: name 'np' is not defined",
        ):
            yield ("log", None, line)
        yield ("exit", 1)

    world = await make_world(script)
    await world.add_agent()
    made = await world.submit(config(max_restarts=0))
    card = (await world.finish(made.id)).failure
    assert card.message == "NameError: name 'np' is not defined"
    assert "write `import numpy as np` in the module itself" in card.hint
    assert "det trial logs" in card.hint
