"""Experiments that have ended go on: the same trials from their checkpoints, longer; failed points are tried again."""

from __future__ import annotations

import pytest
from services_scripted import ALICE, BOB, ROOT, CrashError, Flaw, World, asha, config, curve, report, training
from sqlalchemy import update

from detlab.errors import ConfigError, Conflict, Forbidden, NotFound
from detlab.schemas.wire import EditExperiment, ExperimentState, GrantRequest, SteerSearch, TrialState
from detlab.schemas.wire.continuing import ContinueExperiment
from detlab_hub.services.base.audit import Audit
from detlab_hub.services.checkpoints.removals import Removals
from detlab_hub.services.experiments.continuing import Continuing
from detlab_hub.services.experiments.edits import Edits
from detlab_hub.services.experiments.experiments import Experiments
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.experiments.steering import SearchSteering
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.store.tables import RemovalRow

SINGLE = {"name": "single", "metric": "loss", "max_length": {"batches": 4}}
RANDOM = {"name": "random", "metric": "loss", "max_trials": 3, "max_concurrent_trials": 1, "max_length": {"batches": 4}}
LONGER = {"searcher": {"max_length": {"batches": 8}}}


def as_long_as_the_config_says(launch):
    """Train from the checkpoint on until `max_length`; save at every second step."""
    length = launch.info.config["searcher"]["max_length"]["batches"]
    start = yield ("resume",)
    for step in range(start + 1, length + 1):
        yield report(step, loss=curve(launch, step))
        if step % 2 == 0:
            yield ("save", step)
        left = yield ("poll",)
        if left:
            yield ("save", step)
            yield ("exit", 0)
    yield ("exit", 0)


async def go_on(world: World, number: int, caller=ALICE, **wanted):
    return await world.services[Continuing].go_on(caller, number, ContinueExperiment(**wanted))


@pytest.fixture
async def world(make_world) -> World:
    world = await make_world(as_long_as_the_config_says)
    await world.add_agent()
    return world


async def test_the_same_trial_trains_on_from_its_checkpoint(world):
    made = await world.submit(config(SINGLE))
    first = await world.finish(made.id)
    [trial] = await world.trials(made.id)
    assert (first.state, trial.steps_completed) == (ExperimentState.COMPLETED, 4)
    world.now += 1000
    view = await go_on(world, made.id, config=LONGER)
    assert (view.state, view.ended_at, view.config["searcher"]["max_length"]) == (
        ExperimentState.ACTIVE,
        None,
        {"batches": 8},
    )
    await world.reboot()
    view = await world.finish(made.id)
    [again] = await world.trials(made.id)
    assert (view.state, again.id, again.state, again.steps_completed) == (
        ExperimentState.COMPLETED, trial.id, TrialState.COMPLETED, 8
    )  # fmt: skip
    assert view.took < 1000  # the time between is no part of it
    assert [one.detail for one in (await world.services[Audit].page(ROOT, action="experiment.continue")).items] == [
        "searcher.max_length: {'batches': 8}"
    ]


async def test_its_curve_has_each_step_once_and_goes_on_where_it_ended(world):
    made = await world.submit(config(SINGLE))
    await world.finish(made.id)
    await go_on(world, made.id, config=LONGER)
    await world.finish(made.id)
    [trial] = await world.trials(made.id)
    [series] = await world.services[Trials].metrics(ALICE, trial.id, group="validation", names=["loss"])
    assert series.steps == list(range(1, 9))
    assert trial.run == 2


async def test_a_plain_number_is_in_the_unit_of_before(world):
    made = await world.submit(config(SINGLE))
    await world.finish(made.id)
    view = await go_on(world, made.id, config={"searcher": {"max_length": 6}})
    assert view.config["searcher"]["max_length"] == {"batches": 6}


async def test_as_many_go_on_at_a_time_as_the_search_allows_also_after_a_crash(world):
    made = await world.submit(config(RANDOM))
    await world.finish(made.id)
    before = await world.trials(made.id)
    await go_on(world, made.id, config=LONGER)
    states = [one.state for one in await world.trials(made.id)]
    assert states == [TrialState.ACTIVE, TrialState.PAUSED, TrialState.PAUSED]
    await world.reboot()
    view = await world.finish(made.id)
    after = await world.trials(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert [(one.id, one.hparams) for one in after] == [(one.id, one.hparams) for one in before]
    assert [(one.state, one.steps_completed, one.run) for one in after] == [(TrialState.COMPLETED, 8, 2)] * 3
    replay = await world.services[SearchSteering].replay(ALICE, made.id, None)
    assert replay.over
    assert [one.state for one in replay.trials] == ["ended"] * 3
    acts, _ = await world.services[SearchSteering].journal(ALICE, made.id, 0, 100, acts=True)
    assert [(one.event["type"], one.event["author"], len(one.event["request_ids"])) for one in acts] == [
        ("reopened", "alice", 3)
    ]


@pytest.mark.parametrize("verb", ["cancel", "kill"])
async def test_a_search_that_was_ended_by_a_user_goes_on_with_its_trials_and_the_rest_of_its_budget(world, verb):
    made = await world.submit(config(RANDOM))

    async def second_trains() -> bool:
        trials = await world.trials(made.id)
        return len(trials) == 2 and trials[1].steps_completed >= 2

    await world.until(second_trains)
    await getattr(world.services[Experiments], verb)(ALICE, made.id)
    view = await world.finish(made.id)
    assert view.state is ExperimentState.CANCELED
    assert [one.state for one in await world.trials(made.id)] == [TrialState.COMPLETED, TrialState.CANCELED]
    await go_on(world, made.id)
    await world.reboot()
    view = await world.finish(made.id)
    trials = await world.trials(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert [(one.state, one.steps_completed, one.run) for one in trials] == [
        (TrialState.COMPLETED, 4, 1), (TrialState.COMPLETED, 4, 2), (TrialState.COMPLETED, 4, 1)
    ]  # fmt: skip


async def test_a_failed_trial_goes_on_and_its_failures_count_anew(make_world):
    broken = True

    def failing(launch):
        start = yield ("resume",)
        for step in range(start + 1, 5):
            yield report(step, loss=1.0)
            yield ("save", step)
            if step == 2 and broken:
                yield ("exit", 1)
        yield ("exit", 0)

    world = await make_world(failing)
    await world.add_agent()
    made = await world.submit(config(SINGLE, max_restarts=0))
    assert (await world.finish(made.id)).state is ExperimentState.ERROR
    broken = False
    view = await go_on(world, made.id, config={"max_restarts": 2})
    assert (view.failure, view.state) == (None, ExperimentState.ACTIVE)
    view = await world.finish(made.id)
    [trial] = await world.trials(made.id)
    assert (view.state, view.failure, view.config["max_restarts"]) == (ExperimentState.COMPLETED, None, 2)
    assert (trial.failure, trial.restarts, trial.steps_completed) == (None, 0, 4)


async def test_a_crash_at_any_commit_loses_nothing_and_does_it_once(world):
    made = await world.submit(config(RANDOM))
    await world.finish(made.id)
    length = 4
    for at, after_commit in [(at, after) for at in (1, 2) for after in (False, True)]:
        length += 2
        wanted = {"config": {"searcher": {"max_length": {"batches": length}}}, "idempotency_key": f"{length}"}
        before = world.writes[0]
        world.flaw = Flaw(before + at, after_commit)
        await world.reboot()
        view = None
        while view is None:
            try:
                view = await go_on(world, made.id, **wanted)
            except CrashError:
                await world.reboot()
        view = await go_on(world, made.id, **wanted)
        assert view.config["searcher"]["max_length"] == {"batches": length}
        view = await world.finish(made.id)
        assert view.state is ExperimentState.COMPLETED
        assert {one.steps_completed for one in await world.trials(made.id)} == {length}
    acts, _ = await world.services[SearchSteering].journal(ALICE, made.id, 0, 500, acts=True)
    assert len(acts) == 4
    runs = [one.run for one in await world.trials(made.id)]
    assert min(runs) >= 5


# --- what is refused


async def test_a_collected_checkpoint_is_named_with_the_way_out(world):
    made = await world.submit(config(SINGLE))
    await world.finish(made.id)
    [trial] = await world.trials(made.id)
    saved, _ = await world.services[Trials].checkpoint_page(ALICE, trial.id)
    newest, older = saved[0], saved[1]
    await world.services[Removals].delete(ALICE, newest.uuid)
    with pytest.raises(Conflict, match=f"checkpoint {newest.uuid} .step 4. of trial {trial.id} was collected") as found:
        await go_on(world, made.id, config=LONGER)
    assert found.value.hint == f"restore it from the trash: det checkpoint undelete {newest.uuid}"
    view = await world.view(made.id)
    assert (view.state, view.config["searcher"]["max_length"]) == (ExperimentState.COMPLETED, {"batches": 4})
    await world.store.write(lambda s: s.execute(update(RemovalRow).values(begun_at=world.now)))
    with pytest.raises(Conflict) as found:
        await go_on(world, made.id, config=LONGER)
    assert f"from checkpoint {older.uuid} (step 2) instead" in found.value.hint
    await world.services[Removals].delete(ALICE, older.uuid)
    await world.store.write(lambda s: s.execute(update(RemovalRow).values(begun_at=world.now)))
    with pytest.raises(Conflict) as found:
        await go_on(world, made.id, config=LONGER, from_earlier=True)
    assert found.value.hint == f"train it anew: det experiment fork {made.id}"


async def test_it_goes_on_from_an_earlier_checkpoint_if_that_is_said(world):
    made = await world.submit(config(SINGLE))
    await world.finish(made.id)
    [trial] = await world.trials(made.id)
    saved, _ = await world.services[Trials].checkpoint_page(ALICE, trial.id)
    await world.services[Removals].delete(ALICE, saved[0].uuid)
    await go_on(world, made.id, config=LONGER, from_earlier=True)
    await world.finish(made.id)
    [series] = await world.services[Trials].metrics(ALICE, trial.id, group="validation", names=["loss"])
    assert series.steps == list(range(1, 9))


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"hyperparameters": {"lr": 1.0}}, "hyperparameters.lr"),
        ({"entrypoint": "rm -rf /"}, "entrypoint"),
        ({"environment": {"environment_variables": ["A=1"]}}, "environment.environment_variables"),
        ({"searcher": {"max_trials": 9}}, "searcher.max_trials"),
        ({"searcher": {}}, "searcher"),
        ({"searcher": {"max_length": {"batches": 4}}}, "searcher.max_length"),
        ({"searcher": {"max_length": {"batches": -1}}}, "searcher.max_length"),
        ({"searcher": {"max_length": "long"}}, "searcher.max_length"),
        ({"searcher": {"max_length": None}}, "searcher.max_length"),
        ({"searcher": {"max_time": 9}}, "searcher.max_time"),
        ({"max_restarts": -2}, "max_restarts"),
        ({"max_restarts": "x"}, "max_restarts"),
    ],
)
async def test_what_would_make_it_another_experiment_is_refused(world, changes, path):
    made = await world.submit(config(SINGLE))
    await world.finish(made.id)
    with pytest.raises(ConfigError) as found:
        await go_on(world, made.id, config=changes)
    assert any(one.path.startswith(path) for one in found.value.problems), found.value.problems
    assert (await world.view(made.id)).state is ExperimentState.COMPLETED


async def test_refusals_say_what_to_do_instead(world):
    made = await world.submit(config(SINGLE))
    with pytest.raises(Conflict, match="only one that has ended") as found:
        await go_on(world, made.id)
    assert found.value.hint == f"its search can be extended: det search extend {made.id}"
    await world.finish(made.id)
    with pytest.raises(Conflict, match="trained to their end") as found:
        await go_on(world, made.id)
    assert "--max-length" in found.value.hint
    with pytest.raises(NotFound, match="no trial 999"):
        await go_on(world, made.id, trial_ids=[999])
    await world.services[Edits].edit(ALICE, made.id, EditExperiment(archived=True))
    with pytest.raises(Conflict, match="is archived") as found:
        await go_on(world, made.id, config=LONGER)
    assert found.value.hint == f"first: det experiment unarchive {made.id}"


async def test_a_search_that_compares_equal_lengths_says_to_fork_it(make_world):
    world = await make_world(training(9))
    await world.add_agent()
    made = await world.submit(config(asha(trials=3)))
    await world.finish(made.id)
    for _ in range(2):
        with pytest.raises(Conflict, match="async_halving cannot train on") as found:
            await go_on(world, made.id, config={"searcher": {"max_time": 27}})
        assert "det experiment fork" in found.value.hint
        view = await world.view(made.id)
        assert (view.state, view.max_time) == (ExperimentState.COMPLETED, 9)
        await world.reboot()


@pytest.mark.parametrize("verb", ["cancel", "kill"])
async def test_a_search_that_stops_trials_goes_on_where_a_user_ended_it(make_world, verb):
    world = await make_world(training(9))
    await world.add_agent(slots=2)
    made = await world.submit(config(asha(trials=6)))

    async def third_trains() -> bool:
        return any(one.index >= 2 and one.steps_completed > 1 for one in await world.trials(made.id))

    await world.until(third_trains)
    await getattr(world.services[Experiments], verb)(ALICE, made.id)
    await world.finish(made.id)
    canceled = [one.id for one in await world.trials(made.id) if one.state is TrialState.CANCELED]
    assert canceled
    await go_on(world, made.id)
    await world.reboot()
    view = await world.finish(made.id)
    trials = await world.trials(made.id)
    assert (view.state, len(trials)) == (ExperimentState.COMPLETED, 6)
    assert {one.state for one in trials} == {TrialState.COMPLETED}
    assert (await world.services[SearchSteering].replay(ALICE, made.id, None)).over


async def test_only_those_who_may_change_it_continue_it(world):
    made = await world.submit(config(SINGLE))
    await world.finish(made.id)
    with pytest.raises(NotFound):
        await go_on(world, made.id, BOB, config=LONGER)
    await world.services[Grants].put(ALICE, made.id, GrantRequest(kind="user", name="bob"))
    with pytest.raises(Forbidden):
        await go_on(world, made.id, BOB, config=LONGER)
    await world.services[Grants].put(ALICE, made.id, GrantRequest(kind="user", name="bob", write=True))
    assert (await go_on(world, made.id, BOB, config=LONGER)).owner == "alice"


# --- retry


async def test_what_failed_is_tried_again_after_the_end(make_world):
    broken = True

    def failing(launch):
        yield report(1, loss=1.0)
        yield ("exit", 1 if broken and launch.info.trial_index == 1 else 0)

    world = await make_world(failing)
    await world.add_agent()
    made = await world.submit(config({**RANDOM, "max_concurrent_trials": 3}, max_restarts=0))
    assert (await world.finish(made.id)).state is ExperimentState.COMPLETED
    broken = False
    retry = SteerSearch(act="retry", idempotency_key="k")
    for _ in range(2):
        view = await world.services[SearchSteering].steer(ALICE, made.id, retry)
        assert view.state is ExperimentState.ACTIVE
    await world.reboot()
    view = await world.finish(made.id)
    trials = await world.trials(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert [one.state for one in trials] == [
        TrialState.COMPLETED, TrialState.ERROR, TrialState.COMPLETED, TrialState.COMPLETED
    ]  # fmt: skip
    assert trials[3].hparams == trials[1].hparams
    with pytest.raises(Conflict, match="has not failed"):
        await world.services[SearchSteering].steer(ALICE, made.id, SteerSearch(act="retry", trial_ids=[trials[0].id]))
    assert (await world.view(made.id)).state is ExperimentState.COMPLETED


@pytest.mark.parametrize("searcher", [RANDOM, asha(trials=3, max_time=4), SINGLE])
async def test_a_retry_after_the_end_works_with_methods_of_each_kind(make_world, searcher):
    broken = True

    def failing(launch):
        for step in range(1, 5):
            yield report(step, loss=curve(launch, step), batches=step)
            if broken:
                yield ("exit", 1)
            left = yield ("poll",)
            if left:
                break
        yield ("exit", 0)

    world = await make_world(failing)
    await world.add_agent()
    made = await world.submit(config(searcher, max_restarts=0))
    assert (await world.finish(made.id)).state is ExperimentState.ERROR
    failed = len(await world.trials(made.id))
    broken = False
    await world.services[SearchSteering].steer(ALICE, made.id, SteerSearch(act="retry"))
    view = await world.finish(made.id)
    trials = await world.trials(made.id)
    assert (view.state, len(trials)) == (ExperimentState.COMPLETED, 2 * failed)
    assert {str(one.hparams) for one in trials[failed:]} == {str(one.hparams) for one in trials[:failed]}


async def test_a_canceled_experiment_is_continued_not_retried(world):
    made = await world.submit(config(SINGLE))
    await world.services[Experiments].kill(ALICE, made.id)
    await world.finish(made.id)
    with pytest.raises(Conflict, match="is over: it is CANCELED") as found:
        await world.services[SearchSteering].steer(ALICE, made.id, SteerSearch(act="retry"))
    assert f"det experiment continue {made.id}" in found.value.hint
