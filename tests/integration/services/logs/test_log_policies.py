"""Log policies: labels, nodes that are not used again, no more restarts; patterns that never come to an end."""

from __future__ import annotations

import asyncio
import time

import pytest
from services_scripted import ALICE, World, config

from detlab_hub.services.logs.matching import Matcher, PatternTooSlow

TERRIBLE = r"(a+)+$"
"""Against many letters `a` and a `b` this takes twice as long for each letter more."""


def says(*lines: str, code: int = 0):
    """Every attempt writes the lines, the first ones fail with `code`."""

    def script(launch):
        for line in lines:
            yield ("log", 0, line)
        yield ("metrics", "validation", 1, {"loss": 1.0})
        yield ("exit", code)

    return script


async def run(world: World, policies: list[dict], **more):
    made = await world.submit(config(log_policies=policies, **more))
    ended = await world.finish(made.id)
    (trial,) = await world.trials(made.id)
    return ended, await world.services.trials.get(ALICE, trial.id)


async def test_a_line_labels_its_trial_once(make_world):
    world = await make_world(says("step 1", "loss is nan", "RuntimeError: CUDA out of memory. Tried", "loss is nan"))
    await world.add_agent()
    world.twice = True
    _, trial = await run(world, [{"name": "diverged", "pattern": r"loss is (nan|inf)\b"}])
    await world.services.policies.close()
    assert sorted((one.name, one.action, one.agent_id, one.run, one.line) for one in trial.policy_matches) == [
        ("CUDA OOM", None, "node", 1, "RuntimeError: CUDA out of memory. Tried"),
        ("diverged", None, "node", 1, "loss is nan"),
    ]
    assert trial.state == "COMPLETED"


async def test_no_more_restarts_and_the_card_names_the_policy(make_world):
    world = await make_world(says("the data is corrupt: give up", code=1))
    await world.add_agent()
    policy = {"name": "bad data", "pattern": ".*data is corrupt.*", "action": "cancel_retries"}
    ended, trial = await run(world, [policy], max_restarts=3)
    assert ended.state == "ERROR"
    assert (trial.run, trial.restarts) == (1, 0)
    assert "not restarted: log policy 'bad data' found: the data is corrupt: give up" in trial.failure.hint
    other = await world.submit(config(max_restarts=2, log_policies=[{"name": "bad data", "pattern": "never said"}]))
    await world.finish(other.id)
    (restarted,) = await world.trials(other.id)
    assert restarted.run == 3


async def test_a_node_is_not_used_again_also_by_the_next_master(make_world):
    world = await make_world(says("uncorrectable ECC error encountered", code=1))
    await world.add_agent("first")
    policy = {"name": "ECC Error", "pattern": ".*uncorrectable ECC error.*", "action": "exclude_node"}
    made = await world.submit(config(log_policies=[policy], max_restarts=1))
    (trial,) = await world.trials(made.id)

    async def waits() -> bool:
        reason = (await world.services.trials.get(ALICE, trial.id)).pending_reason or ""
        return "first blocked for it" in reason

    await world.until(waits)
    await world.reboot()
    await world.steps(5)
    assert await waits(), "as the next master knows, too"
    await world.add_agent("second")
    await world.finish(made.id)
    view = await world.services.trials.get(ALICE, trial.id)
    assert [one.agent_id for one in view.policy_matches] == ["first", "second"]
    assert world.agents["second"].launches, "it went on there"


async def test_where_a_trial_must_not_run_is_forgotten_when_it_has_ended(make_world):
    """Each such trial was remembered until the master's end."""
    world = await make_world(says("uncorrectable ECC error encountered", code=1))
    await world.add_agent("first")
    policy = {"name": "ECC Error", "pattern": ".*uncorrectable ECC error.*", "action": "exclude_node"}
    made = await world.submit(config(log_policies=[policy], max_restarts=1))
    (trial,) = await world.trials(made.id)
    shell, known = world.services.shell, (trial.id, "first")

    async def blocked() -> bool:
        return known in shell.refusals

    await world.until(blocked)
    shell.refusals["a task", "first"] = world.now + 30.0
    await world.services.tidy()
    assert shell.refusals.keys() == {known, ("a task", "first")}
    await world.add_agent("second")
    await world.finish(made.id)
    assert known in shell.refusals
    await world.services.tidy()
    assert not {holder for holder, _ in shell.refusals if holder == trial.id}


async def test_a_terrible_pattern_is_given_up_and_holds_nobody_up(make_world):
    world = await make_world(says("a" * 200 + "b", "CUDA out of memory"))
    await world.add_agent()
    began = time.monotonic()
    _, trial = await run(world, [{"name": "slow", "pattern": TERRIBLE}])
    await world.services.policies.close()
    assert trial.state == "COMPLETED"
    assert [one.name for one in trial.policy_matches] == ["CUDA OOM"]
    assert "log policy 'slow' is not checked any more" in trial.warnings[0]
    assert time.monotonic() - began < 30


async def test_the_loop_runs_on_while_a_terrible_pattern_is_tried():
    matcher, turns = Matcher(), 0
    asked = asyncio.ensure_future(matcher.match(TERRIBLE, ["a" * 5000 + "b"], 0.3))
    while not asked.done():
        turns += 1
        await asyncio.sleep(0.01)
    with pytest.raises(PatternTooSlow, match=r"took more than 0\.3 s"):
        await asked
    assert turns > 5
    assert await matcher.match(r"^x\d", ["x", "x1", "yx2", "x3\u20ac"], 0.3) == [1, 3], "the next one has a new process"
    await matcher.close()


async def test_all_bad_patterns_are_refused_at_submit(make_world):
    world = await make_world()
    policies = [
        {"name": "one", "pattern": "("},
        {"name": "two", "pattern": "[z-a]"},
        {"name": "3", "pattern": "x" * 1001},
    ]
    with pytest.raises(Exception, match="log_policies") as refused:
        await world.submit(config(log_policies=policies))
    assert sorted(problem.path for problem in refused.value.problems) == [
        f"log_policies[{n}].pattern" for n in range(3)
    ]
