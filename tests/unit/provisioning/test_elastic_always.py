"""What holds for every elastic pool, whatever its tasks, its agents and its provider do."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from elastic_scenes import NOW, SLOTS, TEMPLATE, World
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab_hub.core.provisioning import (
    Instance,
    InstanceEndReason,
    InstanceState,
    PoolHistory,
    PoolLimits,
    ProvisioningDecision,
    Situation,
    decide,
)
from detlab_hub.core.provisioning.model import InstanceHistory
from detlab_hub.core.scheduling import AgentState, Job, Pool, SchedulerTask, Snapshot, TaskState

NAMES = [f"i{n}" for n in range(6)]
TIMES = st.sampled_from([0.0, NOW - 5000, NOW - 1300, NOW - 700, NOW - 10, NOW])


@st.composite
def bounds(draw: st.DrawFn) -> PoolLimits:
    most = draw(st.integers(0, 6))
    return PoolLimits(draw(st.integers(0, most)), most, launch_rate=draw(st.integers(1, 8)))


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Any pool: instances in any state, agents with and without one, tasks on some."""
    there = [
        Instance(name, name, draw(st.sampled_from(list(InstanceState))), draw(TIMES), draw(st.booleans()))
        for name in draw(st.lists(st.sampled_from(NAMES), unique=True))
    ]
    agents = [
        replace(TEMPLATE, id=name, state=draw(st.sampled_from(list(AgentState))))
        for name in draw(st.lists(st.sampled_from([*NAMES, "static"]), unique=True))
    ]
    tasks = [
        SchedulerTask(f"p{n}", "j", slots, requested=float(n), single_node=draw(st.booleans()))
        for n, slots in enumerate(draw(st.lists(st.integers(0, 3 * SLOTS), max_size=8)))
    ]
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3)):
        slots = draw(st.integers(0, SLOTS))
        tasks.append(SchedulerTask(f"r{name}", "j", slots, TaskState.RUNNING, on={name: slots}))
    return Situation(Snapshot(Pool(), tuple(agents), {"j": Job("j")}, tuple(tasks)), TEMPLATE, tuple(there), NOW)


@st.composite
def histories(draw: st.DrawFn) -> PoolHistory:
    known = {
        name: InstanceHistory(draw(st.booleans()), draw(st.none() | TIMES), draw(st.none() | TIMES))
        for name in draw(st.lists(st.sampled_from(NAMES), unique=True))
    }
    return PoolHistory(known, tuple(draw(st.lists(TIMES, max_size=4))), draw(st.integers(0, 3)), draw(TIMES))


def alive_after(seen: Situation, decision: ProvisioningDecision) -> list[str]:
    gone = {ending.id for ending in decision.endings}
    alive = (InstanceState.PENDING, InstanceState.RUNNING)
    return [i.id for i in seen.instances if i.state in alive and i.id not in gone]


@settings(max_examples=200, deadline=None)
@given(situations(), histories(), bounds())
def test_never_over_max_never_below_min_never_a_busy_one(
    seen: Situation, history: PoolHistory, limits: PoolLimits
) -> None:
    decision = decide(seen, history, limits)
    known = {i.id: i for i in seen.instances}
    busy = {name for task in seen.pool.tasks for name in task.on}
    left = alive_after(seen, decision)
    assert not [e for e in decision.endings if known[e.id].agent_id in busy]
    assert len({e.id for e in decision.endings}) == len(decision.endings)
    assert not decision.launch or len(left) + decision.launch <= limits.max_instances
    assert len(left) <= limits.max_instances or all(known[name].agent_id in busy for name in left)
    by_choice = [e for e in decision.endings if e.reason in {InstanceEndReason.IDLE, InstanceEndReason.OVER_MAX}]
    assert not by_choice or len(left) >= limits.min_instances
    wanted = min(max(decision.wanted, 0), max(0, limits.max_instances - len(left)))
    assert decision.launch == wanted or decision.held_back is not None
    assert decide(seen, history, limits) == decision


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(situations(), histories(), bounds())
def test_nothing_is_ended_for_idleness_that_a_launch_then_replaces(
    seen: Situation, history: PoolHistory, limits: PoolLimits
) -> None:
    """When what was decided has been carried out and the agents are there, nothing more is wanted."""
    first = decide(seen, history, limits)
    idle = {e.id for e in first.endings if e.reason is InstanceEndReason.IDLE}
    enabled = {agent.id for agent in seen.pool.agents if agent.state is AgentState.ENABLED}
    kept = tuple(i for i in seen.instances if i.id not in {e.id for e in first.endings})
    gone_agents = {i.agent_id for i in seen.instances} - {i.agent_id for i in kept}
    pool = replace(seen.pool, agents=tuple(a for a in seen.pool.agents if a.id not in gone_agents))
    again = decide(replace(seen, instances=kept, pool=pool), first.history, limits)
    if idle & enabled:
        assert again.wanted <= max(first.wanted, limits.min_instances - len(kept))
    assert not {e.id for e in again.endings} & {e.id for e in first.endings}


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 2, 3, 4, 6, 8]), st.integers(1, 900), st.integers(0, 600)), max_size=12),
    st.integers(0, 2),
    st.integers(0, 2**32),
)
def test_demand_is_satisfied_and_then_everything_goes(work: list[tuple[int, int, int]], least: int, seed: int) -> None:
    """Tasks come at any time; agents get lost; launches fail for a while. In the end all has run and min is left."""
    limits = PoolLimits(least, 3, max_idle_agent_period=300, max_agent_starting_period=200, max_disconnected_period=100)
    world = World(limits, seed)
    waits = sorted(work, key=lambda item: item[2])
    begin = world.now
    for _ in range(700):
        while waits and begin + waits[0][2] <= world.now:
            world.submit(waits[0][0], float(waits[0][1]))
            waits.pop(0)
        early = world.now < begin + 600
        world.failing = early and world.draw.random() < 0.3
        if early and world.instances and world.draw.random() < 0.02:
            world.lost.add(world.draw.choice(sorted(world.instances)))
        if early and world.instances and world.draw.random() < 0.02:
            del world.instances[world.draw.choice(sorted(world.instances))]  # spot: taken back
        world.step(20.0)
        assert len(world.instances) <= limits.max_instances
        if not waits and not world.tasks and world.now > begin + 600:
            break
    assert not waits
    assert not world.tasks, "a task never ran"
    for _ in range(50):
        world.step(20.0)
    assert len(world.instances) == least


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 3 * SLOTS), min_size=1, max_size=6), st.integers(1, 4))
def test_under_the_same_demand_nothing_flaps(slots: list[int], most: int) -> None:
    """Tasks that run for hours: what is launched for them stays, and nothing more is launched."""
    world = World(PoolLimits(0, most, max_idle_agent_period=60, launch_rate=50))
    for need in slots:
        world.submit(need, 1e9)
    for _ in range(20):
        world.step(20.0)
    launches, endings = len(world.launches), len(world.endings)
    for _ in range(50):
        world.step(20.0)
    assert (len(world.launches), len(world.endings)) == (launches, endings)
    assert launches <= most + endings
    assert not endings


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.integers(1, 40), st.integers(1, 5))
def test_a_provider_that_always_fails_is_asked_ever_more_rarely(tasks: int, rate: int) -> None:
    world = World(PoolLimits(0, 10, launch_rate=rate), failing=True)
    for _ in range(tasks):
        world.submit(SLOTS, 10.0)
    for _ in range(300):
        world.step(30.0)
    gaps = [after - before for before, after in pairwise(world.tries)]
    assert all(later >= sooner for sooner, later in pairwise(gaps))
    assert gaps[-1] >= 600
    assert not world.instances
