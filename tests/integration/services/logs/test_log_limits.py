"""What output may cost the master and others: patterns of policies, and questions with filters."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from services_scripted import ALICE, World, config

from detlab.errors import Forbidden, StaleAttempt, Unavailable
from detlab.schemas.wire import LogRecord, RecordBatch
from detlab_hub.services import AgentCaller, TaskCaller
from detlab_hub.services.lifecycle import log_policies as logpolicies
from detlab_hub.services.logs import matching
from detlab_hub.services.logs.matching import Matcher, PatternTooSlow

TERRIBLE = r"(a+)+$"
BAIT = "a" * 200 + "b"


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
    return await world.services.trials.get(ALICE, caller.trial_id)


async def test_a_process_that_was_ended_from_outside_is_asked_anew():
    """One that had died idle cost the experiment its policy for ever."""
    matcher = Matcher()
    assert await matcher.match("fo+", ["foo", "bar"], 0.25) == [0]
    os.kill(matcher._process.pid, signal.SIGKILL)
    assert await matcher.match("fo+", ["foo", "bar"], 0.25) == [0]
    with pytest.raises(PatternTooSlow, match="or is invalid"):
        await matcher.match("(", ["foo"], 0.25)
    assert await matcher.match("ba", ["foo", "bar"], 0.25) == [1]
    await matcher.close()


async def test_what_is_not_the_patterns_fault_gives_no_policy_up(make_world, monkeypatch):
    """A machine without processes, memory or descriptors for a moment took all policies away."""
    world, (caller,) = await running(make_world, [{"name": "diverged", "pattern": "loss is (nan|inf)"}])
    records = world.services.tasks.records
    with monkeypatch.context() as broken:
        broken.setattr(matching, "_WORKER", Path("/nowhere/worker.py"))
        with pytest.raises(Unavailable, match="gave no answer"):
            await Matcher().match("x", ["x"], 0.25)
        assert (await records(caller, lines("loss is nan"))).acked == 1
    trial = await trial_of(world, caller)
    assert (trial.policy_matches, trial.warnings) == ([], [])
    await records(caller, lines("loss is inf", first=2))
    assert [one.line for one in (await trial_of(world, caller)).policy_matches] == ["loss is inf"]


async def test_a_stranger_takes_nobodys_policy_away(make_world):
    """Any agent, and any task of long ago, could have a pattern tried on a line of its own and given up."""
    world, (caller,) = await running(make_world, [{"name": "slow", "pattern": TERRIBLE}])
    looks = world.services.policies
    for refused in (
        world.services.agents.records(AgentCaller("other"), caller.allocation_id, lines(BAIT)),
        world.services.agents.records(AgentCaller("node"), "1.x.1", lines(BAIT)),
        world.services.tasks.records(TaskCaller(caller.allocation_id, 1, 1, caller.run + 1), lines(BAIT)),
    ):
        with pytest.raises((Forbidden, StaleAttempt)):
            await refused
    assert (looks._matcher._process, looks._given_up) == (None, {}), "nothing was tried"
    assert (await world.services.agents.records(AgentCaller("node"), caller.allocation_id, lines("aaa"))).acked == 1
    assert [one.name for one in (await trial_of(world, caller)).policy_matches] == ["slow"]


async def test_a_policy_is_given_up_when_that_is_written_and_each_trial_says_so(make_world, monkeypatch):
    world, (one, other) = await running(make_world, [{"name": "slow", "pattern": TERRIBLE}], trials=2)
    tasks = world.services.tasks
    with monkeypatch.context() as broken:

        async def failing(fn):
            raise Unavailable("the disk is full")

        broken.setattr(world.services.shell, "write", failing)
        with pytest.raises(Unavailable, match="disk"):
            await tasks.records(one, lines(BAIT))
    assert not world.services.policies._given_up, "nobody was told"
    await tasks.records(one, lines(BAIT))
    assert len(world.services.policies._given_up) == 1
    for caller in (one, other):
        for first in (2, 3):
            await tasks.records(caller, lines(BAIT, first=first))
        (warning,) = (await trial_of(world, caller)).warnings
        assert "log policy 'slow' is not checked any more: the regular expression" in warning


async def test_all_policies_of_an_experiment_share_the_time_of_a_batch(make_world, monkeypatch):
    policies = [{"name": f"p{n}", "pattern": rf"x{n}y\d"} for n in range(20)]
    world, (caller,) = await running(make_world, policies)
    given: list[float] = []
    match = Matcher.match

    async def noted(self, pattern, texts, seconds):
        given.append(seconds)
        return await match(self, pattern, texts, seconds)

    monkeypatch.setattr(Matcher, "match", noted)
    await world.services.tasks.records(caller, lines("x19y1"))
    assert len(given) == 20
    assert sum(given) <= matching.BATCH_SECONDS + 1e-9
    assert [one.name for one in (await trial_of(world, caller)).policy_matches] == ["p19"]


async def test_closing_waits_for_no_question():
    """A master that stopped waited for each batch that waited for the process."""
    matcher = Matcher()
    asked = [asyncio.ensure_future(matcher.match(TERRIBLE, [BAIT], 10.0)) for _ in range(3)]
    while matcher._process is None:
        await asyncio.sleep(0.01)
    began = time.monotonic()
    await matcher.close()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert time.monotonic() - began < 5
    assert {type(answer) for answer in answers} == {Unavailable}
    assert matcher._process is None


async def test_many_labels_leave_no_action_out(make_world, monkeypatch):
    monkeypatch.setattr(logpolicies, "MOST_MATCHES", 2)
    policies = [{"name": f"p{n}", "pattern": "bad"} for n in range(1)]
    policies += [{"name": f"q{n}", "pattern": f"bad{n}"} for n in range(3)]
    policies += [{"name": "stop", "pattern": "bad2", "action": "cancel_retries"}]
    world, (caller,) = await running(make_world, policies)
    await world.services.tasks.records(caller, lines("bad0 bad1 bad2"))
    assert [one.name for one in (await trial_of(world, caller)).policy_matches] == ["p0", "q0", "stop"]


async def test_policies_look_at_the_beginning_of_a_line(make_world):
    world, (caller,) = await running(make_world, [])
    await world.services.tasks.records(caller, lines("x" * 3995 + "CUDA out of memory"))
    assert (await trial_of(world, caller)).policy_matches == []
    await world.services.tasks.records(caller, lines("x" * 3900 + "CUDA out of memory", first=2))
    assert [one.name for one in (await trial_of(world, caller)).policy_matches] == ["CUDA OOM"]


async def test_searches_wait_for_each_other_and_pages_for_none(make_world):
    """One user's searches held all readers of the database."""
    world, (caller,) = await running(make_world, [])
    await world.services.tasks.records(caller, lines("one", "two"))
    searching, trials = world.services.shell.searching, world.services.trials
    async with searching.of("bob"):
        async with searching.of("bob"):
            waiting = asyncio.ensure_future(trials.logs(ALICE, caller.trial_id, search="two"))
            page, _ = await trials.logs(ALICE, caller.trial_id)
            assert [line.text for line in page] == ["one", "two"]
            assert not waiting.done()
        assert [line.text for line in (await waiting)[0]] == ["two"]
