"""Log policies: labels, nodes that are not used again, no more restarts; patterns that never come to an end."""

from __future__ import annotations

import asyncio

import pytest
from services_scripted import ALICE, World, config

from detlab_hub.services.experiments.trials import Trials
from detlab_hub.services.logs.matching import search_lines

TERRIBLE = r"(a+)+$"
"""Against many letters `a` and a `b` this takes Python's engine twice as long for each letter more."""


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
    return ended, await world.services[Trials].get(ALICE, trial.id)


async def test_a_line_labels_its_trial_once(make_world):
    world = await make_world(says("step 1", "loss is nan", "RuntimeError: CUDA out of memory. Tried", "loss is nan"))
    await world.add_agent()
    world.twice = True
    _, trial = await run(world, [{"name": "diverged", "pattern": r"loss is (nan|inf)\b"}])
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
        reason = (await world.services[Trials].get(ALICE, trial.id)).pending_reason or ""
        return "first blocked for it" in reason

    await world.until(waits)
    await world.reboot()
    await world.steps(5)
    assert await waits(), "as the next master knows, too"
    await world.add_agent("second")
    await world.finish(made.id)
    view = await world.services[Trials].get(ALICE, trial.id)
    assert [one.agent_id for one in view.policy_matches] == ["first", "second"]
    assert world.agents["second"].launches, "it went on there"


async def test_where_a_trial_must_not_run_is_forgotten_when_it_has_ended(make_world):
    """Each such trial was remembered until the master's end."""
    world = await make_world(says("uncorrectable ECC error encountered", code=1))
    await world.add_agent("first")
    policy = {"name": "ECC Error", "pattern": ".*uncorrectable ECC error.*", "action": "exclude_node"}
    made = await world.submit(config(log_policies=[policy], max_restarts=1))
    (trial,) = await world.trials(made.id)
    context, known = world.services.context, (trial.id, "first")

    async def blocked() -> bool:
        return known in context.refusals

    await world.until(blocked)
    context.refusals["a task", "first"] = world.now + 30.0
    await world.services.tidy()
    assert context.refusals.keys() == {known, ("a task", "first")}
    await world.add_agent("second")
    await world.finish(made.id)
    assert known in context.refusals
    await world.services.tidy()
    assert not {holder for holder, _ in context.refusals if holder == trial.id}


async def test_a_pattern_that_never_ends_in_pythons_engine_is_one_like_others(make_world):
    world = await make_world(says("a" * 200 + "b", "CUDA out of memory", "a" * 200))
    await world.add_agent()
    _, trial = await run(world, [{"name": "quick", "pattern": TERRIBLE}])
    assert trial.state == "COMPLETED"
    assert sorted(one.name for one in trial.policy_matches) == ["CUDA OOM", "quick"]
    assert not trial.warnings


async def test_the_loop_runs_on_while_an_expensive_pattern_is_tried():
    """RE2 gives the interpreter's lock away; it takes tenths of a second for each of these lines."""
    texts, turns = ["ab" * 2000] * 50, 0
    work = asyncio.ensure_future(asyncio.to_thread(search_lines, r"(a|b)*a(a|b){900}c", texts, 0.3))
    while not work.done():
        turns += 1
        await asyncio.sleep(0.01)
    hits, looked = await work
    assert not hits
    assert 1 <= looked < 50
    assert turns > 5
    assert search_lines(r"^x\d", ["x", "x1", "yx2", "x3\u20ac"], 0.3) == ([1, 3], 4)


async def test_all_bad_patterns_are_refused_at_submit(make_world):
    world = await make_world()
    policies = [
        {"name": "one", "pattern": "("},
        {"name": "two", "pattern": "[z-a]"},
        {"name": "3", "pattern": "x" * 1001},
        {"name": "4", "pattern": "loss(?!=0)"},
    ]
    with pytest.raises(Exception, match="log_policies") as refused:
        await world.submit(config(log_policies=policies))
    assert sorted(problem.path for problem in refused.value.problems) == [
        f"log_policies[{n}].pattern" for n in range(4)
    ]
    assert refused.value.problems[3].hint.startswith("there is no lookahead")
