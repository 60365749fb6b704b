"""Determined's rules of an elastic pool, one after the other, and where ours differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
from elastic_scenes import NOW, SLOTS, TEMPLATE, ended, instances, running, situation, waiting

from detlab_hub.core.provisioning import (
    Awaited,
    HoldReason,
    InstanceState,
    PoolHistory,
    PoolLimits,
    ProvisioningDecision,
    decide,
    launch_failed,
    launched,
)
from detlab_hub.core.provisioning.model import InstanceHistory
from detlab_hub.core.scheduling import AgentState, Constraints, Job, LabelRule, Preference, Quota, SchedulerTask

NONE = PoolHistory()


def remember(**known: InstanceHistory) -> PoolHistory:
    return PoolHistory(instances=known)


@pytest.mark.parametrize(
    ("slots", "launch"),
    [
        ((), 0),
        ((1,), 1),
        ((4,), 1),
        ((2, 2), 1),
        ((1, 1, 1, 1, 1), 2),
        ((3, 3, 3, 3, 3), 4),  # the last one has a slot of each of three
        ((8,), 2),  # two whole instances
        ((6,), 2),  # three slots of each of two
        ((4, 4, 4), 3),
        ((0,) * 10, 1),
        ((0,) * 11, 2),  # ten without slots at a time
        ((0, 4), 1),  # both on one
    ],
)
def test_demand_is_what_would_pack(slots: tuple[int, ...], launch: int) -> None:
    decision = decide(situation(tasks=waiting(*slots)), NONE, PoolLimits(max_instances=10))
    assert decision.launch == launch
    assert decision.held_back is None
    assert not decision.endings


def test_tasks_that_do_not_pack_need_more_than_their_sum_says() -> None:
    decision = decide(situation(tasks=waiting(3, 3, 3, 3, 3, single_node=True)), NONE, PoolLimits(max_instances=10))
    assert decision.launch == 5  # 15 slots


def test_a_task_on_one_node_that_is_larger_than_an_instance_is_hopeless_and_launches_nothing() -> None:
    decision = decide(situation(tasks=waiting(5, single_node=True)), NONE, PoolLimits())
    assert (decision.launch, decision.infeasible) == (0, ("p0",))


def test_a_task_for_more_than_max_instances_is_hopeless_and_launches_nothing() -> None:
    decision = decide(situation(tasks=waiting(3 * SLOTS)), NONE, PoolLimits(max_instances=2))
    assert (decision.launch, decision.infeasible) == (0, ("p0",))


def test_constraints_that_an_instance_does_not_meet_launch_nothing() -> None:
    decision = decide(situation(tasks=waiting(1, constraints=Constraints(gpu="H100"))), NONE, PoolLimits())
    assert (decision.launch, decision.infeasible) == (0, ("p0",))


def test_max_slots_of_a_job_and_quotas_bound_the_demand() -> None:
    jobs = {"j": Job("j", max_slots=5)}
    assert decide(situation(tasks=waiting(4, 4, 4), jobs=jobs), NONE, PoolLimits()).launch == 1
    held = (*running(a=4), *waiting(4))
    assert decide(situation(instances("a"), held, jobs=jobs), NONE, PoolLimits()).launch == 0
    quota = (Quota(4, user="ada"),)
    assert decide(situation(tasks=waiting(4, 4, user="ada"), quotas=quota), NONE, PoolLimits()).launch == 1


def test_what_is_free_and_what_is_starting_is_used_first() -> None:
    there = (*instances("a"), *instances("b", launched_at=NOW - 5))
    tasks = waiting(4, 4, 4)
    assert decide(situation(there, tasks, agents=("a",)), NONE, PoolLimits()).launch == 1


def test_an_idle_agent_is_a_part_of_a_task_on_several() -> None:
    assert decide(situation(instances("a"), waiting(8)), NONE, PoolLimits()).launch == 1


@pytest.mark.parametrize("state", [AgentState.DISABLED, AgentState.DRAINING, AgentState.SUSPECT])
def test_an_agent_that_takes_no_work_is_no_room_but_counts(state: AgentState) -> None:
    agents = (replace(TEMPLATE, id="a", state=state),)
    decision = decide(situation(instances("a"), waiting(4, 4), agents=agents), NONE, PoolLimits(max_instances=2))
    assert decision.launch == 1
    assert decision.held_back is not None
    assert decision.held_back[0] is HoldReason.MAX_INSTANCES


def test_min_instances_are_launched_without_demand_and_max_is_never_passed() -> None:
    assert decide(situation(), NONE, PoolLimits(min_instances=3)).launch == 3
    decision = decide(situation(instances("a"), waiting(*[4] * 9)), NONE, PoolLimits(max_instances=4))
    assert (decision.launch, decision.held_back and decision.held_back[0]) == (3, HoldReason.MAX_INSTANCES)


def test_an_agent_that_does_not_come_in_time_is_not_waited_for() -> None:
    limits = PoolLimits(max_agent_starting_period=100)
    late = situation(instances("a", launched_at=NOW - 101), waiting(4), agents=())
    in_time = situation(instances("a", launched_at=NOW - 99), waiting(4), agents=())
    assert decide(in_time, NONE, limits).launch == 0
    assert decide(late, NONE, limits).launch == 1


def test_an_instance_whose_agent_never_came_ends_after_the_disconnected_period() -> None:
    limits = PoolLimits(max_agent_starting_period=100, max_disconnected_period=50)
    there = instances("a", launched_at=NOW - 101)
    first = decide(situation(there, agents=()), NONE, limits)
    assert not first.endings
    at_the_end = decide(situation(there, agents=(), now=NOW + 50), first.history, limits)
    assert not at_the_end.endings
    after = decide(situation(there, agents=(), now=NOW + 51), at_the_end.history, limits)
    assert ended(after) == {"a": "never_connected"}


def test_a_disconnected_instance_ends_after_ten_minutes_and_not_if_it_comes_back() -> None:
    there = instances("a")
    history = decide(situation(there), NONE, PoolLimits()).history
    away = decide(situation(there, agents=(), now=NOW + 5), history, PoolLimits())
    assert away.history.instances["a"].away_since == NOW + 5
    assert not decide(situation(there, agents=(), now=NOW + 605), away.history, PoolLimits()).endings
    gone = decide(situation(there, agents=(), now=NOW + 606), away.history, PoolLimits())
    assert ended(gone) == {"a": "disconnected"}
    back = decide(situation(there, now=NOW + 600), away.history, PoolLimits())
    assert back.history.instances["a"].away_since is None


def test_a_disconnected_instance_is_no_room() -> None:
    history = remember(a=InstanceHistory(connected_once=True))
    assert decide(situation(instances("a"), waiting(4), agents=()), history, PoolLimits()).launch == 1


def test_an_idle_instance_ends_after_twenty_minutes_and_min_instances_stay() -> None:
    there = instances("a", "b", "c")
    history = remember(
        a=InstanceHistory(True, NOW - 1201), b=InstanceHistory(True, NOW - 1300), c=InstanceHistory(True, NOW - 1200)
    )
    assert ended(decide(situation(there), history, PoolLimits())) == {"a": "idle", "b": "idle"}
    assert ended(decide(situation(there), history, PoolLimits(min_instances=2))) == {"b": "idle"}
    assert not decide(situation(there), history, PoolLimits(min_instances=3)).endings


def test_a_busy_instance_never_ends_and_its_idle_time_begins_anew() -> None:
    history = remember(a=InstanceHistory(True, 0.0))
    decision = decide(situation(instances("a"), running(a=1)), history, PoolLimits())
    assert not decision.endings
    assert decision.history.instances["a"].idle_since is None
    stopped = situation(instances("a", state=InstanceState.STOPPED), running(a=1))
    assert not decide(stopped, history, PoolLimits()).endings
    assert not decide(situation(instances("a", "b"), running(a=1, b=1)), NONE, PoolLimits(max_instances=1)).endings


def test_a_task_without_slots_keeps_an_instance() -> None:
    history = remember(a=InstanceHistory(True, 0.0))
    assert not decide(situation(instances("a"), running(a=0)), history, PoolLimits()).endings


def test_an_idle_instance_stays_while_waiting_tasks_would_use_it() -> None:
    history = remember(a=InstanceHistory(True, 0.0), b=InstanceHistory(True, 0.0))
    decision = decide(situation(instances("a", "b"), waiting(4)), history, PoolLimits())
    assert len(decision.endings) == 1


def test_an_idle_instance_stays_while_a_task_waits_for_more_than_there_may_be_but_not_a_disabled_one() -> None:
    there = instances("a", "b", "c")
    history = remember(a=InstanceHistory(True, 0.0), c=InstanceHistory(True, 0.0))
    agents = ("a", "b", replace(TEMPLATE, id="c", state=AgentState.DISABLED))
    tasks = (*running(b=4), *waiting(12))
    decision = decide(situation(there, tasks, agents=agents), history, PoolLimits(max_instances=3))
    assert ended(decision) == {"c": "idle"}


def test_stopped_and_preempted_instances_are_removed_and_replaced() -> None:
    there = (*instances("a", state=InstanceState.STOPPED, spot=True), *instances("b", state=InstanceState.ENDING))
    history = remember(a=InstanceHistory(connected_once=True))
    decision = decide(situation(there, waiting(4)), history, PoolLimits(max_instances=1))
    assert ended(decision) == {"a": "stopped"}
    assert decision.launch == 1
    assert not decision.history.duds
    gone = decide(situation((), waiting(4)), decision.history, PoolLimits(max_instances=1))
    assert gone.launch == 1
    assert not gone.history.instances


def test_over_max_ends_pending_spot_then_idle_then_disconnected_then_newest() -> None:
    there = (
        *instances("new", launched_at=NOW - 1),
        *instances("newer", launched_at=NOW),
        *instances("away", "idle", "busy"),
        *instances("spot", state=InstanceState.PENDING, spot=True, launched_at=NOW - 2),
    )
    history = remember(away=InstanceHistory(True), idle=InstanceHistory(True, NOW - 1), busy=InstanceHistory(True))
    case = situation(there, running(busy=4), agents=("idle", "busy"))
    order = [set(ended(decide(case, history, PoolLimits(max_instances=most)))) for most in (5, 4, 3, 2, 1, 0)]
    assert order[0] == {"spot"}
    assert order[1] - order[0] == {"idle"}
    assert order[2] - order[1] == {"away"}
    assert order[3] - order[2] == {"newer"}
    assert order[4] - order[3] == {"new"}
    assert order[5] == order[4]  # it runs something
    assert set(ended(decide(case, history, PoolLimits(max_instances=0))).values()) == {"over_max"}


def test_after_a_failed_launch_the_next_waits_twice_as_long_each_time_and_begins_with_one() -> None:
    limits = PoolLimits(retry_after=10, retry_at_most=25)
    case = situation(tasks=waiting(4, 4))
    history = NONE
    for wait in (10, 20, 25, 25):
        history = launch_failed(history, NOW)
        early = decide(replace(case, now=NOW + wait - 1), history, limits)
        assert (early.launch, early.held_back and early.held_back[0]) == (0, HoldReason.BACK_OFF)
        again = decide(replace(case, now=NOW + wait), history, limits)
        assert (again.launch, again.held_back and again.held_back[0]) == (1, HoldReason.BACK_OFF)
    assert decide(replace(case, now=NOW + 25), launched(history, 1, NOW + 25), limits).launch == 2


def test_instances_that_die_before_their_agents_come_are_failures_until_one_comes() -> None:
    dead = situation(instances("a", "b", state=InstanceState.STOPPED), waiting(4))
    first = decide(dead, NONE, PoolLimits())
    assert (first.launch, first.history.duds, first.history.failed_at) == (0, 2, NOW)
    tried = launched(first.history, 1, NOW + 20)
    assert decide(situation(tasks=waiting(4), now=NOW + 19), tried, PoolLimits()).launch == 0
    assert decide(situation(tasks=waiting(4), now=NOW + 20), tried, PoolLimits()).launch == 1
    assert decide(situation(instances("c")), tried, PoolLimits()).history.duds == 0


def test_so_many_launches_in_a_while_and_no_more() -> None:
    limits = PoolLimits(max_instances=50, launch_rate=3, launch_window=60)
    case = situation(tasks=waiting(*[4] * 9))
    first = decide(case, NONE, limits)
    assert (first.launch, first.held_back and first.held_back[0]) == (3, HoldReason.RATE)
    history = launched(first.history, 3, NOW)
    assert decide(replace(case, now=NOW + 59), history, limits).launch == 0
    assert decide(replace(case, now=NOW + 60), history, limits).launch == 3


def test_a_clock_that_is_set_back_holds_nothing_up_for_long() -> None:
    history = launch_failed(NONE, NOW + 1e6)
    assert decide(situation(tasks=waiting(4)), history, PoolLimits()).launch == 1
    idle = remember(a=InstanceHistory(True, NOW + 1e6))
    assert decide(situation(instances("a")), idle, PoolLimits()).history.instances["a"].idle_since == NOW


def test_a_clock_that_is_set_back_waits_for_no_agent_for_longer_than_for_a_new_one() -> None:
    """An instance that was listed, and whose agent never came, stayed until the clock had come to its launch again."""
    there = instances("a", launched_at=NOW + 3600)
    limits = PoolLimits(max_agent_starting_period=40, max_disconnected_period=20)
    history = decide(situation(there, agents=()), NONE, limits).history
    for later, away_since in ((39, None), (40, NOW + 40), (60, NOW + 40)):
        look = decide(situation(there, agents=(), now=NOW + later), history, limits)
        history = look.history
        assert (history.instances["a"].away_since, look.endings) == (away_since, ())
    assert ended(decide(situation(there, agents=(), now=NOW + 61), history, limits)) == {"a": "never_connected"}


def test_higher_priority_comes_first_under_a_quota() -> None:
    jobs = {"j": Job("j", priority=50), "k": Job("k", priority=1, submitted=9.0)}
    large, small = waiting(8, job="j", user="ada")[0], replace(waiting(4, job="k", user="ada")[0], id="k0")
    case = situation(tasks=(large, small), jobs=jobs, quotas=(Quota(8, user="ada"),))
    assert decide(case, NONE, PoolLimits()).launch == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_instances": 6},
        {"min_instances": -1},
        {"launch_rate": 0},
        {"max_idle_agent_period": -1.0},
        {"launch_window": float("nan")},
    ],
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PoolLimits(**wrong)  # type: ignore[arg-type]  (one of them is an int)


# --- tasks over several instances


def test_a_gang_asks_for_as_many_as_it_needs_and_says_for_which_it_waits() -> None:
    wanted = waiting(2 * SLOTS)
    decision = decide(situation((), wanted), PoolHistory(), PoolLimits())
    assert (decision.launch, decision.awaited) == (2, {"p0": Awaited((), 2)})
    one = instances("i1", launched_at=NOW, state=InstanceState.PENDING)
    decision = decide(situation(one, wanted), PoolHistory(), PoolLimits())
    assert (decision.launch, decision.awaited) == (1, {"p0": Awaited(("i1",), 1)})
    both = instances("i1", "i2", launched_at=NOW, state=InstanceState.PENDING)
    decision = decide(situation(both, wanted), PoolHistory(), PoolLimits())
    assert (decision.launch, decision.awaited) == (0, {"p0": Awaited(("i1", "i2"), 0)})
    assert decide(situation(instances("i1", "i2"), wanted), PoolHistory(), PoolLimits()).awaited == {}, "they are there"


def test_a_gang_for_more_than_there_may_be_now_has_none_beyond_max() -> None:
    busy = instances("i1", "i2")
    decision = decide(
        situation(busy, running(i1=SLOTS, i2=SLOTS) + waiting(2 * SLOTS)), PoolHistory(), PoolLimits(max_instances=3)
    )
    assert decision.launch == 1, "the rest is waited for"
    assert decision.infeasible == ()


@pytest.mark.parametrize(
    "constraints",
    [
        Constraints(slot_type="cuda"),
        Constraints(gpu="H100"),
        Constraints(memory=2**40),
        Constraints(labels=frozenset({("zone", "b")})),
        Constraints(required=frozenset({LabelRule("zone", frozenset({"b", "c"}))})),
    ],
    ids=["slot_type", "gpu", "memory", "labels", "required"],
)
def test_a_gang_whose_constraints_an_instance_does_not_meet_brings_none(constraints: Constraints) -> None:
    decision = decide(situation((), waiting(2 * SLOTS, constraints=constraints)), PoolHistory(), PoolLimits())
    assert (decision.launch, decision.infeasible, decision.awaited) == (0, ("p0",), {})


def test_a_gang_whose_constraints_an_instance_meets_brings_its_instances() -> None:
    template = replace(TEMPLATE, slot_type="cuda", gpu="NVIDIA H100", memory=80 * 2**30, labels={"zone": "b"})
    wanted = Constraints(slot_type="cuda", gpu="H100", memory=2**30, labels=frozenset({("zone", "b")}))
    seen = replace(situation((), waiting(2 * SLOTS, constraints=wanted)), template=template)
    assert decide(seen, PoolHistory(), PoolLimits()).launch == 2


def test_an_instance_comes_where_its_labels_are_as_required_and_none_for_what_is_preferred() -> None:
    zone = LabelRule("zone", frozenset({"b", "c"}))
    seen = replace(situation((), ()), template=replace(TEMPLATE, labels={"zone": "b"}))
    required, preferred = (
        Constraints(required=frozenset({zone})),
        Constraints(preferred=frozenset({Preference(zone, 9)})),
    )
    for wanted, launch in ((required, 1), (preferred, 0)):
        pool = replace(seen.pool, agents=(replace(TEMPLATE, id="fixed"),), tasks=waiting(1, constraints=wanted))
        decision = decide(replace(seen, pool=pool), PoolHistory(), PoolLimits())
        assert (decision.launch, decision.awaited.keys()) == (launch, {"p0"} if launch else set())


def test_instances_come_for_cpus_and_memory_only_if_they_have_as_many() -> None:
    template = replace(TEMPLATE, millicpus=4000, host_memory=2**30)

    def look(*tasks: SchedulerTask) -> ProvisioningDecision:
        return decide(replace(situation((), tasks), template=template), PoolHistory(), PoolLimits())

    three = waiting(1, 1, 1, millicpus=3000)
    assert look(*three).launch == 3, "their slots would be on one instance, their CPUs are not"
    assert look(*waiting(2 * SLOTS, millicpus=4000, memory=2**30)).launch == 2, "on each node of a gang"
    for too_much in ({"millicpus": 5000}, {"memory": 2**31}):
        decision = look(*waiting(1, **too_much))
        assert (decision.launch, decision.infeasible) == (0, ("p0",))


def test_what_cannot_be_ended_yet_counts_so_that_none_is_launched_above_max() -> None:
    """One that no list has yet was left out of the count as if it had ended: another came beside it."""
    limits = PoolLimits(max_instances=1, max_agent_starting_period=20.0, max_disconnected_period=20.0)
    seen = situation(instances("a", launched_at=NOW - 60), waiting(4), agents=())
    gone = remember(a=InstanceHistory(connected_once=True, away_since=NOW - 30))
    listed = decide(seen, gone, limits)
    assert (ended(listed), listed.launch) == ({"a": "disconnected"}, 1)
    unlisted = decide(replace(seen, unlisted=frozenset({"a"})), gone, limits)
    assert (ended(unlisted), unlisted.launch) == ({}, 0)
    assert unlisted.held_back is not None
    assert unlisted.held_back[0] is HoldReason.MAX_INSTANCES


def test_what_cannot_be_ended_yet_ends_neither_for_idleness_nor_as_too_much() -> None:
    seen = situation(instances("a", "b"))
    idle = remember(a=InstanceHistory(True, idle_since=NOW - 5000), b=InstanceHistory(True, idle_since=NOW - 5000))
    assert set(ended(decide(seen, idle, PoolLimits()))) == {"a", "b"}
    assert set(ended(decide(replace(seen, unlisted=frozenset({"a"})), idle, PoolLimits()))) == {"b"}
    busy = replace(seen, unlisted=frozenset({"a"}), held=frozenset({"b"}))
    assert ended(decide(busy, NONE, PoolLimits(max_instances=1))) == {}
