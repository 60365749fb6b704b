"""Ask and tell: users evaluate the trials of unmanaged experiments; searches, metrics and crashes are as for others."""

from __future__ import annotations

import asyncio
import math

import pytest
from services_scripted import ALICE, BOB, ROOT, World, config, training
from sqlalchemy import select
from stream_reading import until

from detlab.errors import ConfigError, Conflict, NotFound, StaleAttempt
from detlab.schemas.wire import AskTrial, ExperimentState, SteerSearch, TellTrial, TrialState
from detlab_hub.services.experiments.by_hand import ByHand
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.steering import SearchSteering
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.store.tables import AuditRow

RANDOM = {"name": "random", "metric": "loss", "max_trials": 3}
ASHA = {
    "name": "asha",
    "variant": "stopping",
    "metric": "loss",
    "time_metric": "epoch",
    "max_time": 9,
    "divisor": 3,
    "max_trials": 9,
}


def by_hand(searcher: dict | None = None, **more):
    made = config(searcher or RANDOM, unmanaged=True, **more)
    del made["entrypoint"]
    return made


async def ask(world: World, experiment_id: int, caller=ALICE, **wanted):
    return await world.services[ByHand].ask(caller, experiment_id, AskTrial(**wanted))


async def tell(world: World, experiment_id: int, trial, value=None, step=None, caller=ALICE, **more):
    metrics = {} if value is None else value if isinstance(value, dict) else {"loss": value}
    state = more.pop("state", "completed" if step is None else "running")
    run = more.pop("run", trial.run)
    told = TellTrial(trial_id=trial.id, run=run, metrics=metrics, steps_completed=step, state=state, **more)
    return await world.services[ByHand].tell(caller, experiment_id, told)


async def test_a_search_is_evaluated_by_hand_without_any_agent(make_world):
    world = await make_world(training(1))
    made = await world.submit(by_hand())
    values = {}
    while (asked := await ask(world, made.id)).trial is not None:
        trial = asked.trial
        assert (await world.view(made.id)).trials["RUNNING"] == 1
        values[trial.id] = trial.hyperparameters["lr"]
        told = await tell(world, made.id, trial, values[trial.id])
        assert (told.stop, told.state) == (True, TrialState.COMPLETED)
    assert asked.over
    assert asked.why == f"experiment {made.id} is COMPLETED"
    view = await world.view(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert view.best.value == min(values.values())
    assert len(values) == 3
    for trial in await world.trials(made.id):
        assert (trial.asked_by, trial.best_validation) == ("alice", values[trial.id])
        assert (trial.allocation_state, trial.slots) == (None, [])
    with pytest.raises(Conflict, match="is over") as refused:
        await world.services[SearchSteering].steer(ALICE, made.id, SteerSearch(act="extend", trials=1))
    assert refused.value.hint == f"Begin another one: det experiment fork {made.id}", "its method takes no results"
    assert "continue" not in refused.value.hint


async def test_each_trial_is_made_when_it_is_asked_for(make_world):
    world = await make_world(training(1))
    made = await world.submit(by_hand({**RANDOM, "max_trials": 5}))
    assert len(await world.trials(made.id)) == 1
    first, second = (await ask(world, made.id)).trial, (await ask(world, made.id, ROOT)).trial
    assert {first.number, second.number} == {0, 1}
    shown = {trial.id: (trial.display_state, trial.asked_by) for trial in await world.trials(made.id)}
    assert shown == {first.id: ("RUNNING", "alice"), second.id: ("RUNNING", "root")}


@pytest.mark.parametrize("variant", ["stopping", "promotion"])
async def test_reports_at_rungs_say_whether_to_stop(make_world, variant):
    world = await make_world(training(1))
    made = await world.submit(by_hand({**ASHA, "variant": variant}))
    lengths: dict[int, int] = {}
    while (trial := (await ask(world, made.id)).trial) is not None:
        for step in range(trial.steps_completed + 1, 10):
            lengths[trial.number] = step
            if (await tell(world, made.id, trial, trial.number + 1 / step, step)).stop:
                break
    assert (await world.view(made.id)).state is ExperimentState.COMPLETED
    assert len(lengths) == 9
    assert lengths[0] == 9
    assert min(lengths.values()) == 1


async def test_a_crash_between_ask_and_tell_loses_nothing(make_world):
    world = await make_world(training(1))
    made = await world.submit(by_hand())
    trial = (await ask(world, made.id, idempotency_key="once")).trial
    await world.reboot()
    assert (await ask(world, made.id, idempotency_key="once")).trial == trial
    await tell(world, made.id, trial, 0.5)
    await world.reboot()
    told = await tell(world, made.id, trial, 0.5)
    assert told.stop
    with pytest.raises(Conflict, match=r"has ended \(completed\) with loss=0.5"):
        await tell(world, made.id, trial, 0.6)
    assert (await world.view(made.id)).best.value == 0.5


@pytest.mark.parametrize("searcher", [RANDOM | {"max_trials": 9}, ASHA], ids=lambda one: one["name"])
async def test_prepared_points_are_drawn_anew_within_new_bounds(make_world, searcher):
    """The next asks gave points of the old bounds, as they had been prepared."""
    world = await make_world(training(1))
    made = await world.submit(by_hand({**searcher, "max_concurrent_trials": 4}))
    first = (await ask(world, made.id)).trial
    steering = world.services[SearchSteering]
    await steering.steer(ALICE, made.id, SteerSearch(act="add", points=[{"lr": 0.0125}]))
    narrow = {"lr": {"type": "double", "minval": 5.0, "maxval": 6.0}}
    await steering.steer(ALICE, made.id, SteerSearch(act="bounds", hyperparameters=narrow))
    rates = [(await ask(world, made.id)).trial.hyperparameters["lr"] for _ in range(5)]
    assert rates[0] == 0.0125, "a point that a user added stays"
    assert all(5.0 <= rate <= 6.0 for rate in rates[1:])
    shown = {trial.id: trial.hparams for trial in (await steering.replay(ALICE, made.id, None)).trials}
    assert shown == {trial.id: trial.hparams for trial in await world.trials(made.id)}, "the journal replays the edit"
    assert shown[first.id] == first.hyperparameters, "what is being evaluated stays"
    for trial in await world.trials(made.id):
        if trial.asked_at is not None:
            await tell(world, made.id, (await ask(world, made.id, again=True, trial_id=trial.id)).trial, 0.5, 9)


async def test_the_same_key_of_two_people_gives_two_trials(make_world):
    world = await make_world(training(1))
    made = await world.submit(by_hand())
    mine = (await ask(world, made.id, idempotency_key="1")).trial
    theirs = (await ask(world, made.id, ROOT, idempotency_key="1")).trial
    assert mine.id != theirs.id


async def test_a_trial_of_a_notebook_that_died_is_handed_out_again(make_world):
    world = await make_world(training(1))
    made = await world.submit(by_hand())
    lost = (await ask(world, made.id)).trial
    await tell(world, made.id, lost, 0.1, 1)
    await tell(world, made.id, lost, 0.05, 2)
    again = (await ask(world, made.id, again=True)).trial
    assert (again.id, again.run, again.steps_completed) == (lost.id, 2, 2)
    noted = await world.services.context.read(lambda s: s.scalars(select(AuditRow).order_by(AuditRow.id)).all())
    assert [(row.actor, row.action, row.subject) for row in noted] == [
        ("alice", "experiment.create", f"experiment {made.id}"),
        ("alice", "search.again", f"trial {lost.id}"),
    ]
    with pytest.raises(StaleAttempt, match="handed out again to alice"):
        await tell(world, made.id, lost, 0.01, 3)
    await tell(world, made.id, again, 0.4, 1)  # it begins anew: what was told before is superseded
    await tell(world, made.id, again, 0.3, 2)
    await tell(world, made.id, again)
    [first, *_] = await world.trials(made.id)
    assert (first.state, first.best_validation, first.steps_completed) == (TrialState.COMPLETED, 0.3, 2)
    assert (await world.view(made.id)).best.value == 0.3
    with pytest.raises(Conflict, match="no trial that is being evaluated"):
        await ask(world, made.id, again=True)


async def test_enqueued_points_are_the_next_ones_in_their_order(make_world):
    world = await make_world(training(1))
    made = await world.submit(by_hand())
    points = [{"lr": 0.05}, {"lr": 0.06}]
    await world.services[SearchSteering].steer(ALICE, made.id, SteerSearch(act="add", points=points))
    rates = []
    while (trial := (await ask(world, made.id)).trial) is not None:
        rates.append(trial.hyperparameters["lr"])
        await tell(world, made.id, trial, 1.0)
    assert rates[:2] == [0.05, 0.06]
    assert len(rates) == 5


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"lss": 0.3}, "lacks 'loss'; it has lss"),
        ({"loss": "low"}, "must be a number, not a str"),
        (None, "lacks 'loss'"),
    ],
)
async def test_a_value_that_the_search_cannot_use_is_refused_and_changes_nothing(make_world, value, message):
    world = await make_world(training(1))
    made = await world.submit(by_hand())
    trial = (await ask(world, made.id)).trial
    with pytest.raises(ConfigError) as caught:
        await tell(world, made.id, trial, value)
    assert message in str(caught.value)
    [shown] = await world.trials(made.id)
    assert (shown.state, shown.steps_completed) == (TrialState.ACTIVE, 0)
    assert (await tell(world, made.id, trial, math.nan)).stop
    [shown, _] = await world.trials(made.id)
    assert math.isnan(shown.latest_validation)
    assert shown.best_validation is None


async def test_steps_go_up_and_are_told_once(make_world):
    world = await make_world(training(1))
    made = await world.submit(by_hand())
    trial = (await ask(world, made.id)).trial
    await tell(world, made.id, trial, 0.5, 3)
    assert not (await tell(world, made.id, trial, 0.5, 3)).stop
    with pytest.raises(Conflict, match=r"already has other values for step 3: loss=0\.5"):
        await tell(world, made.id, trial, 0.6, 3)
    with pytest.raises(Conflict, match="is at step 3 and cannot go back to step 2"):
        await tell(world, made.id, trial, 0.6, 2)


async def test_failed_and_invalid_trials_end_as_such(make_world):
    world = await make_world(training(1))
    made = await world.submit(by_hand({**RANDOM, "max_trials": 2}))
    trial = (await ask(world, made.id)).trial
    assert (await tell(world, made.id, trial, state="failed", message="no memory")).state is TrialState.ERROR
    assert (await tell(world, made.id, trial, state="failed")).state is TrialState.ERROR
    invalid = (await ask(world, made.id)).trial
    await tell(world, made.id, invalid, state="invalid")
    last = (await ask(world, made.id)).trial
    await tell(world, made.id, last, 0.2)
    assert (await ask(world, made.id)).over
    shown = [(trial.state, trial.end_reason) for trial in await world.trials(made.id)]
    assert shown == [("ERROR", "error"), ("COMPLETED", "invalid_hp"), ("COMPLETED", "completed")]
    failed = await world.services[Trials].get(ALICE, trial.id)
    assert failed.card.message == "no memory"


async def test_a_trial_stopped_by_somebody_else_says_so_when_it_is_told(make_world):
    world = await make_world(training(1))
    made = await world.submit(by_hand())
    trial = (await ask(world, made.id)).trial
    await tell(world, made.id, trial, 0.5, 1)
    await world.services[SearchSteering].steer(ALICE, made.id, SteerSearch(act="stop", trial_ids=[trial.id]))
    told = await tell(world, made.id, trial, 0.4, 2)
    assert (told.stop, told.why) == (True, "stopped by alice")
    with pytest.raises(Conflict, match="this result is refused"):
        await tell(world, made.id, trial, 0.4)
    other = (await ask(world, made.id)).trial
    await world.services[Experiments].cancel(ALICE, made.id)
    assert (await tell(world, made.id, other, 0.4, 1)).state is TrialState.CANCELED
    assert (await ask(world, made.id)).over


async def test_a_paused_experiment_takes_values_and_hands_out_nothing(make_world):
    world = await make_world(training(1))
    made = await world.submit(by_hand())
    trial = (await ask(world, made.id)).trial
    await world.services[Experiments].pause(ALICE, made.id)
    with pytest.raises(Conflict, match="is paused; it hands out no trials"):
        await ask(world, made.id)
    await tell(world, made.id, trial, 0.5)
    await world.services[Experiments].activate(ALICE, made.id)
    assert (await ask(world, made.id)).trial.number == 1


async def test_who_asks_waits_for_the_trial_that_becomes_free(make_world):
    world = await make_world(training(1))
    made = await world.submit(by_hand({**RANDOM, "max_trials": 1}))
    trial = (await ask(world, made.id)).trial
    none = await ask(world, made.id)
    assert (none.trial, none.over) == (None, False)
    assert f"knows the value of trial {trial.id}, which alice asked for" in none.why
    waiting = asyncio.ensure_future(ask(world, made.id, timeout=30))
    await until(lambda: world.services.context.wakeups.has_waiters(("search", made.id)))
    await tell(world, made.id, trial, state="invalid")  # a replacement is drawn
    assert (await waiting).trial.number == 1


async def test_others_cannot_ask_or_tell_and_managed_experiments_have_nothing_to_ask(make_world):
    world = await make_world(training(1))
    made = await world.submit(by_hand())
    trial = (await ask(world, made.id)).trial
    with pytest.raises(NotFound):
        await ask(world, made.id, BOB)
    with pytest.raises(NotFound):
        await tell(world, made.id, trial, 0.1, caller=BOB)
    managed = await world.submit(config(RANDOM))
    with pytest.raises(Conflict, match="the cluster runs the trials"):
        await ask(world, managed.id)
    other = (await world.trials(managed.id))[0]
    with pytest.raises(NotFound, match=f"experiment {made.id} has no trial"):
        await tell(world, made.id, other, 0.1)


async def test_a_trial_that_was_not_asked_for_cannot_be_told(make_world):
    world = await make_world(training(1))
    made = await world.submit(by_hand())
    [waiting] = await world.trials(made.id)
    assert waiting.display_state == "QUEUED"
    with pytest.raises(Conflict, match="has not been asked for"):
        await tell(world, made.id, waiting, 0.1)


async def test_what_needs_the_cluster_is_refused_at_submit(make_world):
    world = await make_world(training(1))
    pbt = {
        "name": "pbt",
        "metric": "loss",
        "time_metric": "epoch",
        "population_size": 4,
        "num_rounds": 3,
        "length_per_round": 2,
    }
    with pytest.raises(ConfigError, match="pbt starts trials from checkpoints of others"):
        await world.submit(by_hand(pbt))
    with pytest.raises(ConfigError, match="slot_hours: is never used up"):
        await world.submit(by_hand({**RANDOM, "budget": {"slot_hours": 1}}))


@pytest.mark.parametrize(
    "searcher",
    [
        {"name": "single", "metric": "loss"},
        {"name": "grid", "metric": "loss"},
        {**ASHA, "name": "adaptive_asha"},
        {**ASHA, "name": "hyperband"},
        {**ASHA, "name": "dehb"},
        {**RANDOM, "seeds": 2},
    ],
    ids=lambda one: one["name"] + ("_seeds" if "seeds" in one else ""),
)
async def test_every_method_ends_when_all_it_asks_for_is_told(make_world, searcher):
    world = await make_world(training(1))
    space = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0, "count": 4}}
    searcher = {key: value for key, value in searcher.items() if key != "variant" or searcher["name"] == "asha"}
    made = await world.submit(by_hand(searcher, hyperparameters=space))
    told = 0
    while (trial := (await ask(world, made.id)).trial) is not None:
        told += 1
        for step in range(trial.steps_completed + 1, 10):
            if (await tell(world, made.id, trial, trial.hyperparameters["lr"], step)).stop:
                break
        else:
            await tell(world, made.id, trial)
    view = await world.view(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert told >= view.trials_total


async def test_a_search_whose_points_are_all_invalid_is_paused_and_says_what_to_do(make_world):
    world = await make_world(training(1))
    made = await world.submit(by_hand({**RANDOM, "max_trials": 2}))
    for _ in range(10):
        await tell(world, made.id, (await ask(world, made.id)).trial, state="invalid")
    view = await world.view(made.id)
    assert view.state is ExperimentState.PAUSED
    assert "10 points in a row were invalid, the last of them that of trial 10" in view.failure.message
    assert f"det search bounds {made.id}" in view.failure.hint
    with pytest.raises(Conflict, match="is paused: 10 points in a row were invalid") as refused:
        await ask(world, made.id)
    assert refused.value.hint == f"Activate it: det experiment activate {made.id}"
    await world.services[Experiments].activate(ALICE, made.id)
    assert (await world.view(made.id)).failure is None
    for _ in range(2):
        await tell(world, made.id, (await ask(world, made.id)).trial, 0.5)
    assert (await ask(world, made.id)).over
