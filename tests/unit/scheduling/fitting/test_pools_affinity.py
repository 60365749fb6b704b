"""What tasks require of the labels of agents is always so; what they prefer they get where they can, and never wait."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from plain_pass import plain_schedule, preference
from pool_snapshots import after, over_allocated, passes, placed, pool_of, random_snapshot, reasons
from test_pools_fast import crowded

from detlab_hub.core.scheduling import (
    Agent,
    Constraints,
    Fitting,
    LabelRule,
    Preference,
    Scheduler,
    SchedulerTask,
    Snapshot,
    TaskState,
    schedule,
)
from detlab_hub.core.scheduling.fit.shapes import Shapes
from detlab_hub.services.base.offers import constraints_of

ONE = {"j": {}}


def rule(label: str, *values: str, negated: bool = False) -> LabelRule:
    """A rule for a label."""
    return LabelRule(label, frozenset(values), negated)


def prefers(*likes: tuple[LabelRule, int]) -> Constraints:
    """Constraints of a task that only prefers something."""
    return Constraints(preferred=frozenset(Preference(one, weight) for one, weight in likes))


def labelled(**agents: tuple[int, dict[str, str]]) -> dict[str, int | Agent]:
    """Agents by name, as (slots, labels)."""
    return {name: Agent(name, slots, labels=labels) for name, (slots, labels) in agents.items()}


RULES = [
    rule("zone", "a"),
    rule("zone", "a", "b"),
    rule("zone", "c", negated=True),
    rule("spot"),
    rule("spot", negated=True),
    rule("disk", "nvme"),
]


def choosy(snapshot: Snapshot, seed: int) -> Snapshot:
    """The same with labels on agents and rules for tasks, of which many are alike."""
    draw = random.Random(f"choosy {seed}")
    agents = tuple(replace(agent, labels={**agent.labels, **_some_labels(draw)}) for agent in snapshot.agents)
    wishes = [_some_rules(draw) for _ in range(5)]
    tasks = []
    for task in snapshot.tasks:
        required, preferred = draw.choice([(frozenset(), frozenset()), *wishes])
        wanted = task.constraints._replace(preferred=preferred)
        if task.state is TaskState.PENDING:
            wanted = wanted._replace(required=required)
        tasks.append(replace(task, constraints=wanted))
    return replace(snapshot, agents=agents, tasks=tuple(tasks))


def _some_labels(draw: random.Random) -> dict[str, str]:
    labels = {"zone": draw.choice("abc"), "spot": "yes", "disk": draw.choice(["nvme", "sata"])}
    return {name: value for name, value in labels.items() if draw.random() < 0.7}


def _some_rules(draw: random.Random) -> tuple[frozenset[LabelRule], frozenset[Preference]]:
    required = frozenset(draw.sample(RULES, draw.choice([0, 0, 1, 1, 2])))
    preferred = frozenset(
        Preference(one, draw.choice([1, 1, 10, 100])) for one in draw.sample(RULES, draw.randint(0, 4))
    )
    return required, preferred


# --- examples


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        (rule("zone", "b", "c"), "c"),
        (rule("zone", "a", negated=True), "c b"),
        (rule("spot"), "b"),
        (rule("zone", negated=True), "b"),
    ],
)
def test_a_required_rule_chooses_the_agent(wanted: LabelRule, where: str) -> None:
    agents = labelled(a=(1, {"zone": "a"}), b=(1, {"spot": "yes"}), c=(1, {"zone": "c"}))
    tasks = {
        f"t{n}": SchedulerTask(f"t{n}", "j", 1, constraints=Constraints(required=frozenset({wanted}))) for n in range(3)
    }
    found = placed(schedule(pool_of(agents, ONE, tasks)))
    assert sorted(name for on in found.values() for name in on) == sorted(where.split())


@pytest.mark.parametrize(
    ("required", "said"),
    [
        ([rule("zone", "a", "b")], "no agent has label zone in {a, b}; a1 has zone=c, a2 has zone=d"),
        ([rule("disk", "nvme")], "no agent has label disk in {nvme}"),
        ([rule("gone")], "no agent has label gone"),
        ([rule("zone", negated=True)], "every agent has label zone; a1 has zone=c, a2 has zone=d"),
        (
            [rule("spot", negated=True), rule("zone", "d", negated=True)],
            "every agent has label zone in {d} among those that meet its other demands; a2 has zone=d",
        ),
        # Of a rule with a hundred long values the reason had 20,000 characters.
        (
            [rule("disk", *(f"{n:02d}{'v' * 200}" for n in range(100)))],
            f"no agent has label disk in {{{', '.join(f'{n:02d}' + 'v' * 77 + '…' for n in range(5))}, and 95 more}}",
        ),
    ],
)
def test_a_rule_that_no_agent_follows_is_named_with_what_there_is(required: list[LabelRule], said: str) -> None:
    agents = labelled(a1=(1, {"zone": "c", "spot": "yes"}), a2=(1, {"zone": "d"}))
    task = SchedulerTask("t", "j", 1, constraints=Constraints(required=frozenset(required)))
    waits = schedule(pool_of(agents, ONE, {"t": task})).waiting["t"]
    assert (waits.code.value, waits.detail) == ("no_suitable_agent", said)


@pytest.mark.parametrize("fitting", list(Fitting))
def test_the_preferred_agent_is_taken_before_the_better_fit(fitting: Fitting) -> None:
    agents = labelled(full=(1, {}), liked=(4, {"disk": "nvme"}), empty=(8, {}))
    task = SchedulerTask("t", "j", 1, constraints=prefers((rule("disk", "nvme"), 1)))
    assert placed(schedule(pool_of(agents, ONE, {"t": task}, fitting=fitting))) == {"t": {"liked": 1}}


def test_a_rule_that_is_said_twice_counts_twice() -> None:
    """Only where the weights differed: two equal preferences were one."""
    twice = {"label": "disk", "one_of": ["nvme", "ssd"], "weight": 30}
    likes = [twice, {**twice, "one_of": ["ssd", "nvme"]}, {"label": "zone", "exists": True, "weight": 50}]
    found = constraints_of({"affinity": {"preferred": likes}})
    assert found == prefers((rule("disk", "nvme", "ssd"), 60), (rule("zone"), 50))
    agents = labelled(twice=(1, {"disk": "ssd"}), once=(1, {"zone": "a"}))
    task = SchedulerTask("t", "j", 1, constraints=found)
    assert placed(schedule(pool_of(agents, ONE, {"t": task}))) == {"t": {"twice": 1}}


def test_weights_of_all_rules_that_hold_are_added() -> None:
    agents = labelled(both=(1, {"zone": "a", "disk": "nvme"}), one=(1, {"zone": "b"}))
    wanted = prefers((rule("zone", "a"), 30), (rule("disk", "nvme"), 30), (rule("zone", "b"), 50))
    tasks = {
        name: SchedulerTask(name, "j", 1, requested=n, constraints=wanted) for n, name in enumerate(("first", "second"))
    }
    assert placed(schedule(pool_of(agents, ONE, tasks))) == {"first": {"both": 1}, "second": {"one": 1}}


def test_a_task_does_not_wait_and_nobody_leaves_for_what_it_prefers() -> None:
    agents = labelled(liked=(1, {"disk": "nvme"}), other=(1, {}))
    task = SchedulerTask("t", "high", 1, constraints=prefers((rule("disk", "nvme"), 100)))
    jobs = {"low": {"priority": 90}, "high": {"priority": 1}}
    decision = schedule(pool_of(agents, jobs, {"t": task}, {"r": ("low", {"liked": 1})}, preemption=True))
    assert (placed(decision), decision.release) == ({"t": {"other": 1}}, ())


def test_a_task_stays_on_one_agent_and_a_gang_takes_the_agents_it_prefers() -> None:
    agents = labelled(a=(2, {"rack": "1"}), b=(2, {"rack": "1"}), c=(4, {}), d=(4, {}), e=(4, {}))
    wanted = prefers((rule("rack", "1"), 1))
    four, eight = (SchedulerTask("t", "j", slots, constraints=wanted) for slots in (4, 8))
    whole = placed(schedule(pool_of(agents, ONE, {"t": four})))["t"]
    assert len(whole) == 1, "one agent comes before several that are preferred"
    small = {name: agent for name, agent in agents.items() if name in ("a", "b")} | labelled(c=(3, {}), d=(3, {}))
    assert placed(schedule(pool_of(small, ONE, {"t": four}))) == {"t": {"a": 2, "b": 2}}
    assert set(placed(schedule(pool_of(agents, ONE, {"t": eight})))["t"]) <= {"c", "d", "e"}, (
        "the liked ones are too few"
    )


def test_a_task_without_slots_goes_where_it_prefers() -> None:
    agents = labelled(a=(1, {}), b=(4, {"disk": "nvme"}), c=(8, {}))
    task = SchedulerTask("t", "j", 0, constraints=prefers((rule("disk", "nvme"), 1)))
    assert placed(schedule(pool_of(agents, ONE, {"t": task}))) == {"t": {"b": 0}}


# --- properties


@pytest.mark.slow
def test_a_pass_with_rules_decides_and_says_what_it_would_without_shortcuts() -> None:
    released = 0
    for seed in range(9000, 9120):
        for snapshot in (choosy(crowded(seed), seed), choosy(random_snapshot(seed), seed)):
            fast, plain = schedule(snapshot), plain_schedule(snapshot)
            released += bool(fast.release)
            assert list(fast.allocate.items()) == list(plain.allocate.items()), seed
            assert (fast.release, fast.waiting) == (plain.release, plain.waiting), seed
    assert released > 40


@pytest.mark.slow
def test_what_is_required_holds_of_every_agent_that_is_given() -> None:
    gangs = 0
    for seed in range(500):
        snapshot = crowded(seed) if seed % 2 else random_snapshot(seed)
        pool = replace(snapshot.pool, scheduler=list(Scheduler)[seed // 2 % 3])
        tasks = tuple(task for task in snapshot.tasks if seed % 4 < 2 or task.state is TaskState.PENDING)
        snapshot = choosy(replace(snapshot, pool=pool, tasks=tasks), seed)
        decision = schedule(snapshot)
        assert not over_allocated(snapshot, decision), seed
        agents = {agent.id: agent for agent in snapshot.agents}
        for task in snapshot.tasks:
            on = decision.allocate.get(task.id, {})
            gangs += len(on) > 1 and bool(task.constraints.required)
            for name in on:
                for label, values, negated in task.constraints.required:
                    has = agents[name].labels.get(label)
                    assert (has is not None and (not values or has in values)) is not negated, (seed, task.id)
    assert gangs > 10


def test_no_agent_that_a_task_prefers_more_is_passed_over() -> None:
    """A task on one agent: those with a higher score had no room for it before this pass gave anything away."""
    passed = chosen = 0
    for seed in range(400):
        snapshot = choosy(random_snapshot(seed), seed)
        decision = schedule(snapshot)
        if decision.release or len(decision.allocate) != 1:
            continue  # with several that start it is not seen from outside what was free when each got its place
        ((name, on),) = decision.allocate.items()
        task = next(task for task in snapshot.tasks if task.id == name)
        if len(on) > 1 or not task.constraints.preferred:
            continue
        mine = preference(_agent(snapshot, next(iter(on))), task)
        for agent in snapshot.agents:
            if preference(agent, task) > mine:
                passed += 1
                only = replace(task, constraints=Constraints(), blocked_nodes=_others(snapshot, agent.id))
                narrowed = replace(snapshot, tasks=tuple(only if t.id == name else t for t in snapshot.tasks))
                fits = name in schedule(narrowed).allocate and _suits(task, agent)
                assert not fits or agent.id in task.blocked_nodes, (seed, name, agent.id)
            chosen += preference(agent, task) < mine
    assert passed > 5
    assert chosen > 15


def test_preferences_let_nobody_wait_who_would_start_without_them() -> None:
    """Of one task alone: where it goes is all that changes."""
    for seed in range(300):
        snapshot = choosy(random_snapshot(seed), seed)
        waiting = [task for task in snapshot.tasks if task.state is TaskState.PENDING]
        for task in waiting[:3]:
            others = tuple(one for one in snapshot.tasks if one.state is TaskState.RUNNING)
            plain = replace(task, constraints=task.constraints._replace(preferred=frozenset()))
            with_it, without = (schedule(replace(snapshot, tasks=(*others, one))) for one in (task, plain))
            assert with_it.allocate.keys() == without.allocate.keys(), (seed, task.id)
            assert (with_it.release, reasons(with_it)) == (without.release, reasons(without)), (seed, task.id)


def test_a_pool_with_rules_comes_to_rest() -> None:
    for seed in range(150):
        snapshot = choosy(random_snapshot(seed), seed)
        for decision in passes(snapshot):
            assert not over_allocated(snapshot, decision), seed
            snapshot = after(snapshot, decision)


def test_preferences_that_come_to_the_same_agents_are_looked_up_once() -> None:
    """Everybody may write others: a pass would have lists of agents for each."""
    agents = [Agent(f"a{n}", 4, labels={"disk": ("nvme", "sata")[n % 2]}) for n in range(20)]
    shapes, kinds = Shapes(agents), set()
    for number in range(100):
        wanted = prefers((rule("disk", "nvme", f"x{number}"), 1 + number), (rule(f"other{number}"), 50))
        shape = shapes.of(SchedulerTask(f"t{number}", "j", 1, constraints=wanted))
        kinds |= {each.kind for several in (False, True) for each in shapes.better(shape, several=several)}
    (kind,) = kinds
    assert {agent.id for agent in shapes.suitable(kind)} == {agent.id for agent in agents[::2]}


def _agent(snapshot: Snapshot, name: str) -> Agent:
    return next(agent for agent in snapshot.agents if agent.id == name)


def _others(snapshot: Snapshot, name: str) -> frozenset[str]:
    return frozenset(agent.id for agent in snapshot.agents if agent.id != name)


def _suits(task: SchedulerTask, agent: Agent) -> bool:
    labels: Mapping[str, str] = agent.labels
    return all(
        (label in labels and (not values or labels[label] in values)) != negated
        for label, values, negated in task.constraints.required
    )
