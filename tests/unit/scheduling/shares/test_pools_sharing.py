"""Fair share and round robin."""

from __future__ import annotations

from pool_snapshots import after, passes, placed, pool_of, reasons

from detlab_hub.core.scheduling import Quota, Scheduler, SchedulerTask, Snapshot, TaskState, schedule

FAIR, TURNS = Scheduler.FAIR_SHARE, Scheduler.ROUND_ROBIN


def many(jobs: dict[str, int], slots: int = 1) -> dict[str, tuple[str, int] | SchedulerTask]:
    """So many pending tasks of each job."""
    return {f"{job}{n}": (job, slots) for job, count in jobs.items() for n in range(count)}


def started_by_job(pool: Snapshot) -> dict[str, int]:
    """Slots that each job gets when the pool has come to rest."""
    for decision in passes(pool):
        pool = after(pool, decision)
    found: dict[str, int] = {}
    for task in pool.tasks:
        if task.state is TaskState.RUNNING:
            found[task.job] = found.get(task.job, 0) + task.slots
    return found


def test_shares_go_by_weight() -> None:
    pool = pool_of({"a": 8}, {"x": {}, "y": {"weight": 3.0}}, many({"x": 9, "y": 9}), scheduler=FAIR)
    assert started_by_job(pool) == {"x": 2, "y": 6}


def test_what_one_job_does_not_want_goes_to_the_others() -> None:
    pool = pool_of({"a": 9}, {"x": {}, "y": {}, "z": {}}, many({"x": 1, "y": 9, "z": 9}), scheduler=FAIR)
    assert started_by_job(pool) == {"x": 1, "y": 4, "z": 4}


def test_max_slots_caps_what_a_job_is_offered() -> None:
    pool = pool_of({"a": 8}, {"x": {"max_slots": 2}, "y": {}}, many({"x": 9, "y": 9}), scheduler=FAIR)
    assert started_by_job(pool) == {"x": 2, "y": 6}


def test_a_job_that_holds_more_than_its_share_gives_back_in_queue_order() -> None:
    running = {f"x{n}": ("x", {"a": 1}) for n in range(4)}
    pool = pool_of({"a": 4}, {"x": {}, "y": {}}, many({"y": 4}), running, scheduler=FAIR)
    decision = schedule(pool)
    assert decision.release == ("x0", "x1")
    assert placed(decision) == {}
    assert sorted(reasons(decision).items()) == [
        ("y0", "releasing"),
        ("y1", "releasing"),
        ("y2", "fair_share"),
        ("y3", "fair_share"),
    ]
    assert decision.waiting["y2"].detail == "y holds or gets 2 slots; its share of 4 is 2"
    assert started_by_job(pool) == {"x": 2, "y": 2}


def test_slots_that_cannot_be_taken_count_towards_the_share() -> None:
    fixed = SchedulerTask("r", "x", 3, TaskState.RUNNING, on={"a": 3}, preemptible=False)
    pool = pool_of({"a": 4}, {"x": {}, "y": {}}, many({"x": 4, "y": 4}), {"r": fixed}, scheduler=FAIR)
    assert started_by_job(pool) == {"x": 3, "y": 1}


def test_the_youngest_job_whose_share_is_too_small_for_its_tasks_stands_back() -> None:
    jobs = {"x": {}, "y": {}, "z": {}}
    pool = pool_of({"a": 4}, jobs, many({"x": 2, "y": 2, "z": 2}, slots=2), scheduler=FAIR)
    assert started_by_job(pool) == {"x": 2, "y": 2}


def test_nothing_is_taken_where_nobody_could_use_it() -> None:
    running = {"x0": ("x", {"a": 1}), "x1": ("x", {"b": 1}), "x2": ("x", {"c": 1}), "x3": ("x", {"d": 1})}
    task = SchedulerTask("t", "y", 2, single_node=True)
    agents: dict[str, int] = dict.fromkeys("abcd", 1)
    decision = schedule(pool_of({**agents, "e": 2}, {"x": {}, "y": {}}, {"t": task}, running, scheduler=FAIR))
    assert placed(decision) == {"t": {"e": 2}}
    assert decision.release == ()


def test_turns_go_round_and_those_that_hold_least_first() -> None:
    pending = many({"x": 4, "y": 4, "z": 1})
    jobs = {"x": {}, "y": {}, "z": {}}
    assert sorted(placed(schedule(pool_of({"a": 5}, jobs, pending, scheduler=TURNS)))) == [
        "x0",
        "x1",
        "y0",
        "y1",
        "z0",
    ]
    decision = schedule(pool_of({"a": 5}, jobs, pending, {"r": ("x", {"a": 1})}, scheduler=TURNS))
    assert sorted(placed(decision)) == ["x0", "y0", "y1", "z0"]


def test_a_job_of_weight_two_has_two_turns() -> None:
    jobs = {"x": {"weight": 2.0}, "y": {}}
    pool = pool_of({"a": 6}, jobs, many({"x": 6, "y": 6}), scheduler=TURNS)
    assert started_by_job(pool) == {"x": 4, "y": 2}


def test_a_job_whose_next_task_does_not_fit_lets_the_others_go_on() -> None:
    pending = {"x0": ("x", 4), "x1": ("x", 1), "y0": ("y", 1), "y1": ("y", 1)}
    decision = schedule(pool_of({"a": 4}, {"x": {}, "y": {}}, pending, {"r": ("y", {"a": 1})}, scheduler=TURNS))
    assert sorted(placed(decision)) == ["y0", "y1"]
    assert reasons(decision) == {"x0": "no_free_slots", "x1": "behind"}


def test_round_robin_takes_nothing_away() -> None:
    pool = pool_of(
        {"a": 1}, {"x": {}, "y": {}}, {"t": ("y", 1)}, {"r": ("x", {"a": 1})}, scheduler=TURNS, preemption=True
    )
    assert schedule(pool).release == ()


def test_what_a_task_cannot_have_its_job_gets_otherwise() -> None:
    fixed = {
        name: SchedulerTask(f"f{name}", "x", 1, TaskState.RUNNING, on={name: 1}, preemptible=False) for name in "ab"
    }
    pending = {"t1": SchedulerTask("t1", "y", 2, single_node=True), "t2": ("y", 1)}
    running = {task.id: task for task in fixed.values()}
    decision = schedule(pool_of({"a": 2, "b": 2}, {"x": {}, "y": {}}, pending, running, scheduler=FAIR))
    assert set(placed(decision)) == {"t2"}


def test_what_a_job_cannot_have_goes_to_the_others() -> None:
    running = {
        "f": SchedulerTask("f", "w", 3, TaskState.RUNNING, on={"a": 3}, preemptible=False),
        "g": SchedulerTask("g", "w", 4, TaskState.RUNNING, on={"b": 4}, preemptible=False),
    }
    pending = {"x0": SchedulerTask("x0", "x", 5, single_node=True), "y0": ("y", 3), "y1": ("y", 3)}
    pool = pool_of({"a": 6, "b": 6}, {"w": {}, "x": {}, "y": {}}, pending, running, scheduler=FAIR)
    assert set(placed(schedule(pool))) == {"y0"}


def test_what_a_quota_forbids_goes_to_the_others() -> None:
    mine = {f"x{n}": SchedulerTask(f"x{n}", "x", 1, user="ada") for n in range(3)}
    pool = pool_of(
        {"a": 4}, {"x": {}, "y": {}}, {**mine, "y0": ("y", 3)}, quotas=(Quota(1, user="ada"),), scheduler=FAIR
    )
    assert set(placed(schedule(pool))) == {"x0", "y0"}


def test_round_robin_waits_for_what_has_waited_too_long() -> None:
    big = SchedulerTask("big", "x", 4, aged=True)
    decision = schedule(
        pool_of({"a": 4}, {"x": {}, "y": {}}, {"big": big, "y0": ("y", 1)}, {"r": ("y", {"a": 1})}, scheduler=TURNS)
    )
    assert reasons(decision) == {"big": "no_free_slots", "y0": "behind"}


def test_in_round_robin_a_users_quota_does_not_stop_the_jobs_other_users() -> None:
    tasks = {
        "t1": SchedulerTask("t1", "x", 1, user="ada"),
        "t2": SchedulerTask("t2", "x", 1, user="ada"),
        "t3": SchedulerTask("t3", "x", 1, user="bob"),
    }
    decision = schedule(pool_of({"a": 4}, {"x": {}}, tasks, quotas=(Quota(1, user="ada"),), scheduler=TURNS))
    assert set(placed(decision)) == {"t1", "t3"}
    assert reasons(decision) == {"t2": "at_quota"}
