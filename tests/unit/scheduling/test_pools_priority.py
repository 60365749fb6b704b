"""The priority scheduler: order, what passes by, preemption."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pool_snapshots import after, passes, placed, pool_of, reasons

from detlab_hub.core.scheduling import Agent, Quota, ReasonCode, Scheduler, SchedulerTask, TaskState, schedule

HIGH, LOW = {"priority": 10}, {"priority": 90}


def test_lower_numbers_go_first_then_submission_then_request() -> None:
    jobs = {"late": {"priority": 42}, "early": {"priority": 42, "submitted": -1.0}, "low": LOW}
    pending = {"l": ("low", 1), "b": ("late", 1), "e2": ("early", 1), "e3": ("early", 1)}
    assert set(placed(schedule(pool_of({"a": 2}, jobs, pending)))) == {"e2", "e3"}


def test_a_job_that_was_moved_ahead_goes_first() -> None:
    jobs = {"first": {}, "second": {"position": -5.0}}
    pool = pool_of({"a": 1}, jobs, {"t": ("first", 1), "u": ("second", 1)})
    assert set(placed(schedule(pool))) == {"u"}


def test_within_a_priority_what_fits_starts() -> None:
    pool = pool_of({"a": 4}, {"j": {}}, {"big": ("j", 4), "small": ("j", 2)}, {"r": ("j", {"a": 2})})
    decision = schedule(pool)
    assert placed(decision) == {"small": {"a": 2}}
    assert reasons(decision) == {"big": "no_free_slots"}


def test_within_a_priority_nothing_overtakes_what_has_waited_too_long() -> None:
    big = SchedulerTask("big", "j", 4, aged=True)
    decision = schedule(pool_of({"a": 4}, {"j": {}}, {"big": big, "small": ("j", 2)}, {"r": ("j", {"a": 2})}))
    assert placed(decision) == {}
    assert reasons(decision) == {"big": "no_free_slots", "small": "behind"}
    assert decision.waiting["small"].behind == "big"


def test_without_preemption_a_task_that_waits_stops_lower_priorities() -> None:
    jobs = {"h": HIGH, "l": LOW}
    decision = schedule(pool_of({"a": 4}, jobs, {"big": ("h", 4), "small": ("l", 1)}, {"r": ("h", {"a": 2})}))
    assert placed(decision) == {}
    assert reasons(decision) == {"big": "no_free_slots", "small": "behind"}


def test_without_preemption_a_task_passes_that_ends_before_the_head_can_start() -> None:
    jobs = {"h": HIGH, "l": LOW}
    running = {
        "r": SchedulerTask("r", "h", 2, TaskState.RUNNING, on={"a": 2}, max_time=100),
        "s": SchedulerTask("s", "h", 1, TaskState.RUNNING, on={"a": 1}, max_time=60),
    }
    pending = {
        "big": ("h", 4),
        "long": SchedulerTask("long", "l", 1, max_time=101),
        "endless": SchedulerTask("endless", "l", 1),
        "just": SchedulerTask("just", "l", 1, max_time=100),
        "short": SchedulerTask("short", "l", 1, max_time=99),
    }
    decision = schedule(pool_of({"a": 4}, jobs, pending, running))
    assert placed(decision) == {"short": {"a": 1}}
    assert reasons(decision) == {"big": "no_free_slots", "long": "behind", "endless": "behind", "just": "behind"}


def test_nothing_passes_while_nobody_knows_when_the_head_can_start() -> None:
    jobs = {"h": HIGH, "l": LOW}
    pending = {"big": ("h", 4), "short": SchedulerTask("short", "l", 1, max_time=1)}
    decision = schedule(pool_of({"a": 4}, jobs, pending, {"r": ("h", {"a": 2})}))
    assert placed(decision) == {}


def test_a_task_starts_where_none_that_waits_ever_could() -> None:
    jobs = {"h": HIGH, "l": LOW}
    big = SchedulerTask("big", "h", 4, blocked_nodes=frozenset({"b"}))
    decision = schedule(pool_of({"a": 4, "b": 4}, jobs, {"big": big, "small": ("l", 1)}, {"r": ("h", {"a": 3})}))
    assert placed(decision) == {"small": {"b": 1}}


def test_with_preemption_lower_priorities_fill_what_is_left_if_they_can_be_preempted() -> None:
    jobs = {"h": HIGH, "l": LOW}
    pending = {
        "big": ("h", 4),
        "kept": SchedulerTask("kept", "l", 1, preemptible=False),
        "small": SchedulerTask("small", "l", 1),
    }
    fixed = SchedulerTask("r", "h", 2, TaskState.RUNNING, on={"a": 2}, preemptible=False)
    decision = schedule(pool_of({"a": 4}, jobs, pending, {"r": fixed}, preemption=True))
    assert placed(decision) == {"small": {"a": 1}}
    assert reasons(decision) == {"big": "no_free_slots", "kept": "behind"}


def test_the_lowest_priority_and_there_the_newest_gives_its_slots_back() -> None:
    jobs = {"h": HIGH, "m": {"priority": 50}, "l": LOW}
    running = {"m1": ("m", {"a": 1}), "l1": ("l", {"a": 1}), "l2": ("l", {"a": 1}), "m2": ("m", {"a": 1})}
    pool = pool_of({"a": 4}, jobs, {"t": ("h", 1)}, running, preemption=True)
    decision = schedule(pool)
    assert decision.release == ("l2",)
    assert reasons(decision) == {"t": "releasing"}
    assert "l2" in decision.waiting["t"].detail
    second = schedule(after(pool, decision))
    assert placed(second) == {"t": {"a": 1}}
    assert reasons(second) == {"l2": "no_free_slots"}


def test_who_is_not_needed_is_spared() -> None:
    jobs = {"h": HIGH, "l": LOW}
    running = {"big": ("l", {"a": 3}), "small": ("l", {"a": 1})}
    decision = schedule(pool_of({"a": 4}, jobs, {"t": ("h", 3)}, running, preemption=True))
    assert decision.release == ("big",), "Determined would release both"


def test_nobody_leaves_for_a_task_that_would_find_room_in_what_is_kept_for_one_that_waits_as_well() -> None:
    """It could not start before that one anyway; the simulation found it (seed 999)."""
    jobs = {"first": HIGH, "early": {"priority": 45}, "late": {"priority": 45}, "l": LOW}
    tasks = {"big": SchedulerTask("big", "first", 2, single_node=True)}
    tasks |= {name: SchedulerTask(name, job, 1, preemptible=False) for name, job in (("kept", "early"), ("t", "late"))}
    running = {"r": ("l", {"b": 1}), "k": SchedulerTask("k", "l", 1, TaskState.RUNNING, on={"b": 1}, preemptible=False)}
    decision = schedule(pool_of({"a": 1, "b": 2}, jobs, tasks, running, preemption=True))
    assert placed(decision) == {}
    assert decision.release == ()
    assert reasons(decision) == {"big": "no_free_slots", "kept": "behind", "t": "behind"}


def test_nobody_gives_back_what_does_not_help() -> None:
    jobs = {"h": HIGH, "l": LOW}
    running = {"r": ("l", {"a": 1}), "k": SchedulerTask("k", "l", 3, TaskState.RUNNING, on={"a": 3}, preemptible=False)}
    decision = schedule(pool_of({"a": 4}, jobs, {"t": ("h", 2)}, running, preemption=True))
    assert decision.release == ()
    assert reasons(decision) == {"t": "no_free_slots"}


def test_within_a_priority_only_who_is_behind_in_the_queue_gives_slots_back() -> None:
    jobs = {"early": {}, "late": {}}
    pool = pool_of({"a": 2}, jobs, {"t": ("early", 1)}, {"r": ("late", {"a": 2})}, preemption=True)
    assert schedule(pool).release == ("r",)
    pool = pool_of({"a": 2}, jobs, {"t": ("late", 1)}, {"r": ("early", {"a": 2})}, preemption=True)
    assert schedule(pool).release == ()


def test_when_slots_are_released_nothing_of_lower_priority_starts_in_the_same_pass() -> None:
    jobs = {"h": HIGH, "m": {"priority": 50}, "l": LOW}
    pool = pool_of({"a": 4, "b": 1}, jobs, {"t": ("h", 4), "u": ("m", 1)}, {"r": ("l", {"a": 4})}, preemption=True)
    decision = schedule(pool)
    assert decision.release == ("r",)
    assert placed(decision) == {}
    assert reasons(decision) == {"t": "releasing", "u": "behind"}
    assert set(placed(schedule(after(pool, decision)))) == {"t", "u"}


def test_max_slots_holds_a_job_back_and_nobody_else() -> None:
    jobs = {"h": {**HIGH, "max_slots": 2}, "l": LOW}
    pending = {"t1": ("h", 1), "t2": ("h", 1), "huge": ("h", 3), "u": ("l", 1)}
    decision = schedule(pool_of({"a": 4}, jobs, pending, {"r": ("h", {"a": 1})}))
    assert set(placed(decision)) == {"t1", "u"}
    assert reasons(decision) == {"t2": "at_max_slots", "huge": "over_max_slots"}


def test_a_quota_holds_its_user_back_and_nobody_else() -> None:
    mine = {f"t{n}": SchedulerTask(f"t{n}", "j", 1, user="ada", groups=frozenset({"vision"})) for n in range(3)}
    theirs = {"u": SchedulerTask("u", "k", 1, user="bob", groups=frozenset({"vision"}))}
    jobs: dict[str, dict[str, object]] = {"j": {}, "k": {}}
    decision = schedule(pool_of({"a": 8}, jobs, {**mine, **theirs}, quotas=(Quota(2, user="ada"),)))
    assert set(placed(decision)) == {"t0", "t1", "u"}
    assert reasons(decision) == {"t2": "at_quota"}
    decision = schedule(pool_of({"a": 8}, jobs, {**mine, **theirs}, quotas=(Quota(2, group="vision"),)))
    assert set(placed(decision)) == {"t0", "t1"}
    huge = {"t": replace(mine["t0"], id="t", slots=3)}
    assert reasons(schedule(pool_of({"a": 8}, jobs, huge, quotas=(Quota(2, user="ada"),)))) == {"t": "over_quota"}


@pytest.mark.parametrize("scheduler", list(Scheduler))
def test_a_workspaces_quota_holds_back_what_lies_in_it_whosever_it_is(scheduler: Scheduler) -> None:
    inside = {
        f"t{n}": SchedulerTask(f"t{n}", f"j{n}", 1, user=user, workspace=7)
        for n, user in enumerate(("ada", "bob", "ada"))
    }
    outside = {
        name: SchedulerTask(name, "k", 1, user="ada", workspace=place) for name, place in (("u", None), ("v", 8))
    }
    jobs: dict[str, dict[str, object]] = {"j0": {}, "j1": {}, "j2": {}, "k": {}}
    quotas = (Quota(3, workspace=7, named="ada/lab", elsewhere=1), Quota(9, user="ada"))
    pool = pool_of({"a": 8}, jobs, {**inside, **outside}, quotas=quotas, scheduler=scheduler)
    decision = schedule(pool)
    assert set(placed(decision)) == {"t0", "t1", "u", "v"}
    assert reasons(decision) == {"t2": "at_quota"}
    assert (
        decision.waiting["t2"].detail
        == "workspace ada/lab holds 3 of a quota of 3 slots, this needs 1; see det quota list"
    )
    huge = {"t": replace(inside["t0"], id="t", slots=4)}
    never = schedule(pool_of({"a": 8}, jobs, huge, quotas=quotas, scheduler=scheduler)).waiting["t"]
    assert never.code is ReasonCode.OVER_QUOTA
    assert never.detail == "needs 4 slots, more than the quota of workspace ada/lab: 3"


@pytest.mark.parametrize("scheduler", list(Scheduler))
def test_a_task_held_back_by_its_quota_is_told_so_where_no_agent_is_connected_either(scheduler: Scheduler) -> None:
    quotas = (Quota(slots=4, user="ada", elsewhere=4),)
    pending = {name: SchedulerTask(name, name, 1, user=name) for name in ("ada", "ben")}
    snapshot = pool_of({}, {"ada": {}, "ben": {}}, pending, quotas=quotas, scheduler=scheduler)
    why = schedule(snapshot).waiting
    assert why["ada"].code is ReasonCode.AT_QUOTA
    assert why["ada"].detail == "user ada holds 4 of a quota of 4 slots, this needs 1; see det quota list"
    assert why["ben"].code is ReasonCode.NO_AGENT


def test_jobs_of_different_weights_take_turns_in_proportion() -> None:
    jobs = {"one": {"weight": 1.0}, "three": {"weight": 3.0}}
    pending = {f"{job}{n}": (job, 1) for job in jobs for n in range(8)}
    started = placed(schedule(pool_of({"a": 8}, jobs, pending)))
    assert sorted(name[:-1] for name in started) == ["one"] * 2 + ["three"] * 6
    equal = {"one": {"weight": 3.0}, "three": {"weight": 3.0}}
    started = placed(schedule(pool_of({"a": 8}, equal, pending)))
    assert {name[:-1] for name in started} == {"one"}, "equal weights keep the order of the queue"


def test_a_task_that_could_never_run_stops_nobody() -> None:
    decision = schedule(pool_of({"a": 4}, {"h": HIGH, "l": LOW}, {"huge": ("h", 100), "t": ("l", 1)}))
    assert placed(decision) == {"t": {"a": 1}}
    assert reasons(decision) == {"huge": "too_large"}


def test_tasks_without_slots_wait_for_nobody_with_slots() -> None:
    decision = schedule(
        pool_of({"a": 4}, {"h": HIGH, "l": LOW}, {"t": ("h", 4), "z": ("l", 0)}, {"r": ("h", {"a": 1})})
    )
    assert placed(decision) == {"z": {"a": 0}}


def test_an_agent_of_one_user_runs_only_theirs() -> None:
    agents: dict[str, int | Agent] = {"a": Agent("a", 4, serves_user="ada")}
    jobs: dict[str, dict[str, object]] = {"j": {}}
    pending = {"t": SchedulerTask("t", "j", 1, user="ada"), "u": SchedulerTask("u", "j", 1, user="bob")}
    decision = schedule(pool_of(agents, jobs, pending))
    assert set(placed(decision)) == {"t"}
    assert decision.waiting["u"].detail == "no agent runs tasks of user bob: agent a serves only user ada"


def test_i9_whom_agents_serve_is_told_as_a_count_where_reasons_are_private() -> None:
    jobs: dict[str, dict[str, object]] = {"j": {}}
    pending = {"u": SchedulerTask("u", "j", 1, user="bob")}
    one: dict[str, int | Agent] = {"a": Agent("a", 4, serves_user="ada")}
    two: dict[str, int | Agent] = {**one, "eve": Agent("eve", 4, serves_user="eve")}
    for agents, said in ((one, "the only agent serves another user"), (two, "all 2 serve other users")):
        decision = schedule(replace(pool_of(agents, jobs, pending), private=True))
        assert decision.waiting["u"].detail == f"no agent runs tasks of user bob: {said}"


def test_jobs_of_different_weights_do_not_take_each_others_slots_for_ever() -> None:
    jobs = {"j0": {}, "j3": {"weight": 3.0}}
    pool = pool_of({"a": 4}, jobs, {"t5": ("j0", 3), "t6": ("j0", 1)}, {"t4": ("j3", {"a": 3})}, preemption=True)
    decisions = passes(pool)
    assert all(not decision.release for decision in decisions)
    assert set(placed(decisions[0])) == {"t6"}


def test_a_job_does_not_take_its_own_slots_nor_those_of_one_in_the_same_place() -> None:
    late = SchedulerTask("r", "j", 1, TaskState.RUNNING, on={"a": 1}, requested=5.0)
    assert schedule(pool_of({"a": 1}, {"j": {}}, {"t": ("j", 1)}, {"r": late}, preemption=True)).release == ()
    jobs = {"i": {"submitted": 1.0}, "j": {"submitted": 2.0, "position": 1.0}}
    assert schedule(pool_of({"a": 1}, jobs, {"t": ("i", 1)}, {"r": late}, preemption=True)).release == ()


def test_who_is_not_needed_for_a_task_on_several_agents_is_spared() -> None:
    jobs = {"h": HIGH, "m": {"priority": 80}, "l": LOW}
    fixed = SchedulerTask("f", "l", 1, TaskState.RUNNING, on={"a": 1}, preemptible=False)
    running = {"f": fixed, "v1": ("l", {"b": 1}), "v2": ("m", {"b": 1})}
    decision = schedule(pool_of({"a": 2, "b": 2}, jobs, {"t": ("h", 2)}, running, preemption=True))
    assert decision.release == ("v1",)
    running = {"r1": ("m", {"a": 8}), "r2": ("l", {"b": 4}), "r3": ("l", {"c": 4})}
    decision = schedule(pool_of({"a": 8, "b": 4, "c": 4}, jobs, {"t": ("h", 8)}, running, preemption=True))
    assert sorted(decision.release) == ["r2", "r3"], "the less valuable ones"


def test_one_victim_that_does_for_two_is_enough() -> None:
    jobs = {"h": HIGH, "m": {"priority": 50}, "l": LOW}
    running = {"v1": ("l", {"a": 1}), "v2": ("m", {"b": 3})}
    pool = pool_of({"a": 1, "b": 3}, jobs, {"t1": ("h", 1), "t2": ("h", 2)}, running, preemption=True)
    decision = schedule(pool)
    assert decision.release == ("v2",)
    assert reasons(decision) == {"t1": "releasing", "t2": "releasing"}
    assert set(placed(schedule(after(pool, decision)))) == {"t1", "t2"}


def test_of_jobs_submitted_at_once_the_first_request_goes_first() -> None:
    jobs = {"jb": {"submitted": 1.0}, "ja": {"submitted": 1.0}}
    assert set(placed(schedule(pool_of({"a": 1}, jobs, {"t1": ("jb", 1), "t2": ("ja", 1)})))) == {"t1"}


@pytest.mark.parametrize("single_node", [False, True])
def test_tasks_without_slots_take_each_others_places_too(single_node: bool) -> None:
    """Those of users are on a single node, too: they took nobody's place."""
    agents: dict[str, int | Agent] = {"a": Agent("a", 4, max_zero_slot_tasks=1)}
    running = {"z": SchedulerTask("z", "l", 0, TaskState.RUNNING, on={"a": 0})}
    pending = {"t": SchedulerTask("t", "h", 0, single_node=single_node), "u": ("l", 1)}
    pool = pool_of(agents, {"h": HIGH, "l": LOW}, pending, running, preemption=True)
    decision = schedule(pool)
    assert decision.release == ("z",)
    assert placed(decision) == {"u": {"a": 1}}, "tasks with slots go on"
    assert placed(schedule(after(pool, decision))) == {"t": {"a": 0}}


def test_slots_that_are_gathered_for_a_task_do_not_go_back_to_those_that_gave_them() -> None:
    """Of two victims of the same priority the first is out and waits again, the second is still on its way."""
    jobs = {"ahead": {"position": -1.0}, "behind": {}}
    leaving = SchedulerTask("s2", "behind", 1, TaskState.RUNNING, on={"a": 1}, leaving=True)
    big = SchedulerTask("big", "ahead", 2, single_node=True)
    pool = pool_of({"a": 2}, jobs, {"big": big, "s1": ("behind", 1)}, {"s2": leaving}, preemption=True)
    decision = schedule(pool)
    assert placed(decision) == {}
    assert not decision.release
    assert reasons(decision) == {"big": "releasing", "s1": "behind"}
    assert placed(schedule(after(pool, decision))) == {"big": {"a": 2}}


def test_nobody_is_told_to_leave_twice_for_the_same_task() -> None:
    """A storm: four victims leave one after the other, and each waits again as soon as it is out."""
    jobs = {"ahead": {"position": -1.0}, "behind": {}}
    running = {f"s{n}": ("behind", {"a": 1}) for n in range(4)}
    now = pool_of({"a": 4}, jobs, {"big": SchedulerTask("big", "ahead", 4, single_node=True)}, running, preemption=True)
    told: list[str] = []
    for _ in range(10):
        decision = schedule(now)
        told += decision.release
        if "big" in decision.allocate:
            break
        assert not decision.allocate
        tasks = [replace(task, leaving=task.leaving or task.id in decision.release) for task in now.tasks]
        first = next(task for task in tasks if task.leaving)
        out = replace(first, state=TaskState.PENDING, on={}, leaving=False)
        now = replace(now, tasks=tuple(out if task is first else task for task in tasks))
    assert sorted(told) == ["s0", "s1", "s2", "s3"]
    assert placed(decision) == {"big": {"a": 4}}
