"""What output may cost the master and others: patterns of policies, and questions with filters."""

from __future__ import annotations

import asyncio
import time

import pytest
from services_scripted import ALICE, World, config

from detlab.errors import Forbidden, StaleAttempt, Unavailable
from detlab.schemas.wire import LogRecord, RecordBatch
from detlab_hub.services import AgentCaller, TaskCaller
from detlab_hub.services.agents.agents import Agents
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.ingest.tasks import Tasks
from detlab_hub.services.lifecycle import log_policies as logpolicies
from detlab_hub.services.logs import matching
from detlab_hub.store.tables import AllocationRow, ExperimentRow

TERRIBLE = r"(a|b)*a(a|b){900}c"
"""RE2 keeps nine hundred places of it in mind: some 25 microseconds for each letter."""
BAIT = "ab" * 2000


def baits(first: int = 1) -> RecordBatch:
    return lines(*[BAIT] * 10, first=first)


def idle(launch):
    while True:
        yield ("wait",)


def lines(*texts: str, first: int = 1) -> RecordBatch:
    return RecordBatch(
        stream="logs", records=[LogRecord(seq=first + n, time=1.0, text=text) for n, text in enumerate(texts)]
    )


async def running(make_world, policies: list[dict], trials: int = 1) -> tuple[World, list[TaskCaller]]:
    """A world in which the trials of an experiment with these policies run and do nothing by themselves."""
    world = await make_world(idle)
    agent = await world.add_agent("node", slots=trials)
    search = {"name": "random", "metric": "loss", "max_trials": trials, "max_length": 1}
    await world.submit(config(search, log_policies=policies))
    await world.steps(2 + trials)
    callers = [task.caller for task in agent.tasks.values()]
    assert len(callers) == trials
    return world, callers


async def trial_of(world: World, caller: TaskCaller):
    return await world.services[Trials].get(ALICE, caller.trial_id)


async def test_a_stranger_takes_nobodys_policy_away(make_world):
    """Any agent, and any task of long ago, could have a pattern tried on a line of its own and given up."""
    world, (caller,) = await running(make_world, [{"name": "slow", "pattern": TERRIBLE}])
    looks = world.services[matching.PolicyMatcher]
    for refused in (
        world.services[Agents].records(AgentCaller("other"), caller.allocation_id, lines(BAIT)),
        world.services[Agents].records(AgentCaller("node"), "1.x.1", lines(BAIT)),
        world.services[Tasks].records(TaskCaller(caller.allocation_id, 1, 1, caller.run + 1), lines(BAIT)),
    ):
        with pytest.raises((Forbidden, StaleAttempt)):
            await refused
    assert looks._given_up == {}, "nothing was tried"
    hit = lines("a" + "b" * 900 + "c")
    assert (await world.services[Agents].records(AgentCaller("node"), caller.allocation_id, hit)).acked == 1
    assert [one.name for one in (await trial_of(world, caller)).policy_matches] == ["slow"]


async def test_a_policy_is_given_up_when_that_is_written_and_each_trial_says_so(make_world, monkeypatch):
    # Ten lines of bait take a second on one machine and 60 milliseconds on another.
    monkeypatch.setattr(matching, "POLICY_SECONDS", 0.01)
    world, (one, other) = await running(make_world, [{"name": "slow", "pattern": TERRIBLE}], trials=2)
    tasks = world.services[Tasks]
    with monkeypatch.context() as broken:

        async def failing(fn):
            raise Unavailable("the disk is full")

        broken.setattr(world.services.context, "write", failing)
        with pytest.raises(Unavailable, match="disk"):
            await tasks.records(one, baits())
    assert not world.services[matching.PolicyMatcher]._given_up, "nobody was told"
    await tasks.records(one, baits())
    assert len(world.services[matching.PolicyMatcher]._given_up) == 1
    for caller in (one, other):
        for first in (11, 21):
            await tasks.records(caller, baits(first))
        (warning,) = (await trial_of(world, caller)).warnings
        assert "log policy 'slow' is not checked any more: the regular expression" in warning


async def test_all_policies_of_an_experiment_share_the_time_of_a_batch(make_world):
    policies = [{"name": f"p{n}", "pattern": rf"x{n}y\d|(a|b)*a(a|b){{900}}c"} for n in range(20)]
    world, (caller,) = await running(make_world, policies)
    began = time.monotonic()
    await world.services[Tasks].records(caller, lines(*[BAIT] * 100, "x19y1"))
    assert time.monotonic() - began < 20 * (matching.BATCH_SECONDS / 20 + 1)
    assert len((await trial_of(world, caller)).warnings) == 20
    world, (caller,) = await running(make_world, [{"name": f"p{n}", "pattern": rf"x{n}y\d"} for n in range(20)])
    await world.services[Tasks].records(caller, lines("x19y1"))
    assert [one.name for one in (await trial_of(world, caller)).policy_matches] == ["p19"]


async def test_a_pattern_of_an_experiment_of_before_that_re2_does_not_take_is_given_up(make_world):
    """Python's engine had taken it; other policies and the output are not held up."""
    policies = [{"name": "old", "pattern": "loss(?=nan)"}, {"name": "good", "pattern": "l.ss"}]
    world, (caller,) = await running(make_world, [])
    allocation = caller.allocation_id

    def before(s):
        row = s.get(ExperimentRow, s.get(AllocationRow, allocation).experiment_id)
        row.config = {**row.config, "log_policies": policies}

    await world.services.context.write(lambda unit: before(unit.session))
    await world.services[Tasks].records(caller, lines("lossnan"))
    trial = await trial_of(world, caller)
    assert [one.name for one in trial.policy_matches] == ["good"]
    (warning,) = trial.warnings
    assert "log policy 'old' is not checked any more: the regular expression is not a regular" in warning


async def test_half_a_character_in_a_line_is_no_end_of_its_policies(make_world):
    world, (caller,) = await running(make_world, [{"name": "p", "pattern": "b[a]d"}])
    await world.services[Tasks].records(caller, lines("\ud800 bad"))
    assert [one.name for one in (await trial_of(world, caller)).policy_matches] == ["p"]


async def test_many_labels_leave_no_action_out(make_world, monkeypatch):
    monkeypatch.setattr(logpolicies, "MOST_MATCHES", 2)
    policies = [{"name": f"p{n}", "pattern": "bad"} for n in range(1)]
    policies += [{"name": f"q{n}", "pattern": f"bad{n}"} for n in range(3)]
    policies += [{"name": "stop", "pattern": "bad2", "action": "cancel_retries"}]
    world, (caller,) = await running(make_world, policies)
    await world.services[Tasks].records(caller, lines("bad0 bad1 bad2"))
    assert [one.name for one in (await trial_of(world, caller)).policy_matches] == ["p0", "q0", "stop"]


async def test_policies_look_at_the_beginning_of_a_line(make_world):
    world, (caller,) = await running(make_world, [])
    await world.services[Tasks].records(caller, lines("x" * 3995 + "CUDA out of memory"))
    assert (await trial_of(world, caller)).policy_matches == []
    await world.services[Tasks].records(caller, lines("x" * 3900 + "CUDA out of memory", first=2))
    assert [one.name for one in (await trial_of(world, caller)).policy_matches] == ["CUDA OOM"]


async def test_searches_wait_for_each_other_and_pages_for_none(make_world):
    """One user's searches held all readers of the database."""
    world, (caller,) = await running(make_world, [])
    await world.services[Tasks].records(caller, lines("one", "two"))
    searching, trials = world.services.context.searching, world.services[Trials]
    async with searching.of("bob"):
        async with searching.of("bob"):
            waiting = asyncio.ensure_future(trials.logs(ALICE, caller.trial_id, search="two"))
            page, _ = await trials.logs(ALICE, caller.trial_id)
            assert [line.text for line in page] == ["one", "two"]
            assert not waiting.done()
        assert [line.text for line in (await waiting)[0]] == ["two"]
