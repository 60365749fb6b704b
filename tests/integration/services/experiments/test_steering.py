"""Users steer searches: each act is journaled with its author; the replay says why trials were stopped."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import ValidationError
from services_scripted import ALICE, BOB, World, asha, config, report, training
from sqlalchemy import update

from detlab.errors import ConfigError, Conflict, NotFound
from detlab.schemas.wire import AskTrial, ExperimentState, GrantRequest, SteerSearch, TellTrial
from detlab_hub.services.experiments.grants import Grants
from detlab_hub.services.experiments.steering import SearchSteering
from detlab_hub.store.tables import SearcherJournal

RANDOM = {"name": "random", "metric": "loss", "max_trials": 2, "max_concurrent_trials": 1}


async def steer(world: World, experiment_id: int, **wanted):
    return await world.services[SearchSteering].steer(ALICE, experiment_id, SteerSearch(**wanted))


async def finished(world: World, experiment_id: int):
    async def ended() -> bool:
        return (await world.view(experiment_id)).state.terminal

    await world.until(ended)
    return await world.view(experiment_id)


async def test_a_search_is_extended_and_given_a_point_and_its_journal_names_who_did(make_world):
    world = await make_world(training(2))
    await world.add_agent()
    made = await world.submit(config(RANDOM))
    await steer(world, made.id, act="extend", trials=1)
    await steer(world, made.id, act="add", points=[{"lr": 0.05}])
    assert (await world.view(made.id)).trials_total == 4
    await world.reboot()  # the acts are replayed
    view = await finished(world, made.id)
    assert view.state is ExperimentState.COMPLETED
    rates = [trial.hparams["lr"] for trial in await world.trials(made.id)]
    assert len(rates) == 4
    assert rates[1] == 0.05
    entries = (await world.services[SearchSteering].journal(ALICE, made.id, 0, 100))[0]
    acts = [(one.event["type"], one.event["author"]) for one in entries if "author" in one.event]
    assert acts == [("extended", "alice"), ("points_added", "alice")]
    only = (await world.services[SearchSteering].journal(ALICE, made.id, 0, 100, acts=True))[0]
    assert [one.event for one in only] == [one.event for one in entries if "author" in one.event]
    assert (await world.services[SearchSteering].journal(ALICE, made.id, only[0].seq, 1, acts=True))[0] == only[1:]


async def test_the_same_act_sent_twice_happens_once(make_world):
    world = await make_world(training(1))
    made = await world.submit(config(RANDOM))
    for _ in range(2):
        await steer(world, made.id, act="extend", trials=3, idempotency_key="once")
    assert (await world.services[SearchSteering].replay(ALICE, made.id, None)).trials_total == 5


async def test_a_trial_stopped_by_hand_says_who_did_and_the_search_continues(make_world):
    world = await make_world(training(50))
    await world.add_agent()
    made = await world.submit(config({**RANDOM, "max_trials": 1}))
    [trial] = await world.trials(made.id)
    await steer(world, made.id, act="stop", trial_ids=[trial.id])
    view = await finished(world, made.id)
    [trial] = await world.trials(made.id)
    assert view.state is ExperimentState.COMPLETED
    assert trial.stop_evidence == "stopped by alice"


async def test_refused_acts_change_nothing_and_say_why(make_world):
    world = await make_world(training(1))
    made = await world.submit(config(RANDOM))
    before = (await world.services[SearchSteering].journal(ALICE, made.id, 0, 100))[0]
    with pytest.raises(Conflict, match="lr"):
        await steer(world, made.id, act="add", points=[{"lr": 99.0}])
    with pytest.raises(ConfigError) as twice:
        await steer(world, made.id, act="add", points=[{"lr": 0.01}, {"lr": 0.02}, {"lr": 0.01}])
    [wrong] = twice.value.problems
    assert (wrong.path, wrong.message) == ("points[2]", "is the same point as number 0")
    with pytest.raises(Conflict, match="has no rungs"):
        await steer(world, made.id, act="promote", trial_ids=[(await world.trials(made.id))[0].id])
    with pytest.raises(Conflict, match="no failed trial"):
        await steer(world, made.id, act="retry")
    with pytest.raises(ConfigError, match="minval"):
        await steer(world, made.id, act="bounds", hyperparameters={"lr": {"type": "double", "minval": 2, "maxval": 1}})
    with pytest.raises(NotFound, match="has no trial 999"):
        await steer(world, made.id, act="stop", trial_ids=[999])
    with pytest.raises(ConfigError, match="must be above 0"):
        await steer(world, made.id, act="extend")
    assert (await world.services[SearchSteering].journal(ALICE, made.id, 0, 100))[0] == before


async def test_edited_bounds_hold_for_further_trials(make_world):
    world = await make_world(training(1))
    await world.add_agent()
    made = await world.submit(config({**RANDOM, "max_trials": 6}))
    narrow = {"lr": {"type": "double", "minval": 5.0, "maxval": 6.0}}
    await steer(world, made.id, act="bounds", hyperparameters=narrow)
    await finished(world, made.id)
    rates = [trial.hparams["lr"] for trial in await world.trials(made.id)]
    assert not 5.0 <= rates[0] <= 6.0
    assert all(5.0 <= rate <= 6.0 for rate in rates[1:])


@pytest.mark.parametrize(
    "block",
    [
        {"lr": {"type": "double", "minval": "a", "maxval": 3}},
        {"lr": {"type": [], "minval": 1, "maxval": 3}},
        {"lr": {"type": "double", "minval": 1, "maxval": 3, "count": "many"}},
        {"lr": {"type": "int", "minval": 1.5, "maxval": 3}},
        {"lr": {"type": "categorical", "vals": 5}},
        {"lr": {"type": "double", "minval": 1, "maxval": 3, "step": [1]}},
        {"lr": {"type": "double", "minval": float("nan"), "maxval": 3}},
        {"lr": {"type": "double", "minval": 1, "maxval": 3, "prior": 5}},
        {"lr": {"type": "double", "minval": 1, "maxval": 3, "when": {"lr": 1}}},
        {"lr": {"type": "log", "base": -1, "minval": 1, "maxval": 3}},
    ],
    ids=str,
)
async def test_bounds_are_checked_as_those_of_a_config(make_world, block):
    """What is accepted is drawn from in the middle of other transactions, where nobody could be told."""
    world = await make_world(training(1))
    await world.add_agent()
    made = await world.submit(config({**RANDOM, "max_trials": 3}))
    with pytest.raises(ConfigError, match="lr"):
        await steer(world, made.id, act="bounds", hyperparameters=block)
    assert (await finished(world, made.id)).state is ExperimentState.COMPLETED


@pytest.mark.parametrize("number", [2**63, 10**400, 0, -1])
async def test_numbers_that_no_trial_can_have_are_refused(number):
    for act in ("stop", "promote", "retry"):
        with pytest.raises(ValidationError, match="trial_ids"):
            SteerSearch(act=act, trial_ids=[number])
    for wire in (AskTrial, TellTrial):
        with pytest.raises(ValidationError, match="trial_id"):
            wire(trial_id=number)


async def test_bounds_that_the_code_cannot_read_are_refused_by_name(make_world):
    world = await make_world(training(1))
    made = await world.submit(config(RANDOM))
    block = {"lr": {"min": 0.1, "max": 3.0}, "batch": 16}
    with pytest.raises(ConfigError) as refused:
        await steer(world, made.id, act="bounds", hyperparameters=block)
    said = {one.path: one.message for one in refused.value.problems}
    assert said["hyperparameters.lr"] == "is not in the new block, and the code reads it"
    assert said["hyperparameters.lr.min"].startswith("is new")
    assert said["hyperparameters.batch"].startswith("is new")


async def test_hostile_points_are_refused(make_world):
    world = await make_world(training(1))
    made = await world.submit(config(RANDOM))
    deep: dict[str, object] = {}
    for _ in range(200):
        deep = {"lr": deep}
    for point in (
        {"lr": float("nan")},
        {"lr": float("inf")},
        {"lr": True},
        {"lr": "0.05"},
        {"lr": 10**400},
        {"lr": [0.05]},
        {"lr": None},
        {"LR": 0.05},
        {"lr": 0.05, "\x00": 1},
        deep,
    ):
        with pytest.raises(Conflict, match="point 0: "):
            await steer(world, made.id, act="add", points=[point])
    assert (await world.services[SearchSteering].replay(ALICE, made.id, None)).trials_total == 2


async def test_no_act_makes_more_trials_than_a_submit_could(make_world):
    world = await make_world(training(1))
    made = await world.submit(config({**RANDOM, "max_trials": 10_100}))
    with pytest.raises(Conflict, match="10,099 trials are left"):
        await steer(world, made.id, act="concurrency", limit=0)
    assert len(await world.trials(made.id)) == 1


async def test_two_people_steer_at_once_and_both_acts_count(make_world):
    """Also while trials end, and with the same key: a key is its owner's."""
    world = await make_world(training(2))
    await world.add_agent()
    made = await world.submit(config(RANDOM))
    await world.services[Grants].put(ALICE, made.id, GrantRequest(kind="user", name="bob", write=True))
    acts = [
        world.services[SearchSteering].steer(who, made.id, SteerSearch(act="extend", trials=1, idempotency_key="same"))
        for who in (ALICE, BOB)
        for _ in range(3)
    ]
    await asyncio.gather(*acts, steer(world, made.id, act="add", points=[{"lr": 0.05}]))
    view = await finished(world, made.id)
    assert view.state is ExperimentState.COMPLETED
    assert len(await world.trials(made.id)) == 5
    entries = (await world.services[SearchSteering].journal(ALICE, made.id, 0, 100))[0]
    assert sorted(one.event["author"] for one in entries if "author" in one.event) == ["alice", "alice", "bob"]


async def test_acts_that_come_too_late_for_a_trial_are_refused_whatever_order_they_have(make_world):
    world = await make_world(training(50))
    await world.add_agent()
    made = await world.submit(config(RANDOM))
    [trial] = await world.trials(made.id)
    told = await asyncio.gather(
        *(steer(world, made.id, act="stop", trial_ids=[trial.id]) for _ in range(4)), return_exceptions=True
    )
    refused = [one for one in told if isinstance(one, Conflict)]
    assert len(refused) == 3
    assert all("has ended or is about to end" in str(one) for one in refused), refused
    assert (await finished(world, made.id)).state is ExperimentState.COMPLETED


async def test_a_search_that_is_over_takes_no_act(make_world):
    world = await make_world(training(1))
    await world.add_agent()
    made = await world.submit(config(RANDOM))
    await finished(world, made.id)
    with pytest.raises(Conflict, match="is over"):
        await steer(world, made.id, act="extend", trials=1)


async def test_a_replay_says_at_every_event_what_trials_did_and_why_they_were_stopped(make_world):
    world = await make_world(training(9))
    await world.add_agent()
    made = await world.submit(config(asha(6)))
    await finished(world, made.id)
    last = await world.services[SearchSteering].replay(ALICE, made.id, None)
    assert last.over
    assert last.at == last.events
    ended = last.standing[0].counts
    assert (ended["running"], ended["promoted"] + ended["stopped"]) == (0, 6)
    stopped = [one.why for one in last.trials if "place" in one.why]
    assert stopped, [one.why for one in last.trials]
    assert {one.state for one in last.trials} == {"ended"}
    made_until = [
        len((await world.services[SearchSteering].replay(ALICE, made.id, at)).trials) for at in range(last.events + 1)
    ]
    assert made_until[0] == 0
    assert made_until == sorted(made_until)
    assert made_until[-1] == 6
    with pytest.raises(NotFound, match="has no event"):
        await world.services[SearchSteering].replay(ALICE, made.id, last.events + 1)


async def test_a_replay_says_what_was_best_what_waited_and_what_was_left_of_the_budget(make_world):
    world = await make_world(training(9))
    await world.add_agent(slots=2)
    searcher = {**asha(6, concurrent=4), "budget": {"slot_hours": 2.0}}
    made = await world.submit(config(searcher))
    await finished(world, made.id)
    last = await world.services[SearchSteering].replay(ALICE, made.id, None)
    view = await world.view(made.id)
    assert last.best is not None
    assert view.best is not None
    assert (last.best.trial_id, last.best.value) == (view.best.trial_id, view.best.value)
    assert [(one.name, one.used) for one in last.budgets] == [(one.name, one.used) for one in view.budgets]
    course = [await world.services[SearchSteering].replay(ALICE, made.id, at) for at in range(last.events)]
    assert course[0].best is None
    assert [one.state for one in course[1].trials] == ["running", "running", "waiting", "waiting"]
    values = [one.best.value for one in course if one.best]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) > 1
    used = [one.budgets[0].used for one in course]
    assert used == sorted(used)
    assert 0 == used[0] < used[-1] <= last.budgets[0].used


async def test_a_replay_says_that_the_best_trial_keeps_the_constraints_and_how_trials_ended(make_world):
    def script(launch):
        yield report(1, batches=1, loss=1.0 - launch.info.trial_index / 10, size=launch.info.trial_index)
        yield ("exit", 0 if launch.info.trial_index < 2 else 3)

    world = await make_world(script)
    await world.add_agent()
    searcher = {**RANDOM, "max_trials": 3, "constraints": {"size": {"max": 0.5}}}
    made = await world.submit(config(searcher, max_restarts=0))
    await finished(world, made.id)
    last = await world.services[SearchSteering].replay(ALICE, made.id, None)
    before = await world.services[SearchSteering].replay(ALICE, made.id, last.events - 1)
    for then in (before, last):
        assert then.best is not None
        assert (then.best.trial_index, then.best.value) == (0, 1.0)
    assert [one.why for one in last.trials[:2]] == ["ended by itself"] * 2
    assert last.trials[2].why.startswith("failed: ")
    assert "3" in last.trials[2].why


# --- faults that were found by reading


async def test_a_replay_by_another_algorithm_than_decided_is_refused(make_world):
    world = await make_world(training(9))
    await world.add_agent()
    made = await world.submit(config(asha(6)))
    await finished(world, made.id)
    [first, *_] = (await world.services[SearchSteering].journal(ALICE, made.id, 0, 1))[0]
    place = SearcherJournal.experiment_id == made.id, SearcherJournal.seq == first.seq
    fewer = update(SearcherJournal).where(*place).values(decisions=first.decisions[:-1])
    world.store.write_sync(lambda s: s.execute(fewer))
    with pytest.raises(Conflict, match="this version of detlab cannot replay"):
        await world.services[SearchSteering].replay(ALICE, made.id, None)


async def test_the_key_of_a_submit_or_of_an_act_on_another_experiment_is_not_that_of_an_act(make_world):
    world = await make_world(training(1))
    first = await world.submit(config(RANDOM), idempotency_key="same")
    second = await world.submit(config(RANDOM))
    for made in (first, second):
        await steer(world, made.id, act="extend", trials=1, idempotency_key="same")
    totals = [
        (await world.services[SearchSteering].replay(ALICE, made.id, None)).trials_total for made in (first, second)
    ]
    assert totals == [3, 3]


async def test_a_search_that_waits_for_another_version_refuses_acts_and_journals_none(make_world):
    world = await make_world(training(9))
    await world.add_agent()
    made = await world.submit(config(asha(4, concurrent=1)))
    await world.steps(20)
    place = SearcherJournal.experiment_id == made.id, SearcherJournal.seq == 1
    world.store.write_sync(lambda s: s.execute(update(SearcherJournal).where(*place).values(decisions=[])))
    await world.reboot()

    async def paused() -> bool:
        return (await world.view(made.id)).state is ExperimentState.PAUSED

    await world.until(paused)
    with pytest.raises(Conflict, match="waits"):
        await steer(world, made.id, act="extend", trials=1)
    entries = (await world.services[SearchSteering].journal(ALICE, made.id, 0, 1000))[0]
    assert not [one for one in entries if one.event["type"] == "extended"]


async def test_a_trial_is_promoted_to_one_rung_which_the_answer_names(make_world):
    world = await make_world(training(1))
    made = await world.submit(config(asha(max_concurrent_trials=1)))
    [trial] = await world.trials(made.id)
    done = await steer(world, made.id, act="promote", trial_ids=[trial.id])
    assert isinstance(done.promoted_to, int)
    said = f"trial {trial.id} is promoted to {done.promoted_to} {done.time_metric} already"
    with pytest.raises(Conflict, match=said):
        await steer(world, made.id, act="promote", trial_ids=[trial.id])
    [act] = (await world.services[SearchSteering].journal(ALICE, made.id, 0, 100, acts=True))[0]
    assert act.event == {
        "type": "promotion_requested",
        "request_id": trial.request_id,
        "author": "alice",
        "to": done.promoted_to,
    }


async def test_an_extended_search_shows_its_length_and_tells_it_to_tasks_that_start(make_world):
    seen: list[int] = []

    def script(launch):
        seen.append(launch.info.config["searcher"]["max_time"])
        return training(1)(launch)

    world = await make_world(script)
    made = await world.submit(config(asha(trials=1, max_time=9)))
    assert (await world.view(made.id)).max_time == 9
    for units in (3, 6):
        await steer(world, made.id, act="extend", units=units)
    await world.reboot()
    view = await world.view(made.id)
    assert view.max_time == 18
    assert view.config["searcher"]["max_time"] == 9, "the config stays as it was submitted"
    await world.add_agent()
    await finished(world, made.id)
    assert seen == [18]
