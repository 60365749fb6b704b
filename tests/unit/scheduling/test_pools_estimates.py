"""When waiting tasks start: told where maximum times say it, unknown else."""

from __future__ import annotations

from dataclasses import replace

from pool_snapshots import pool_of

from detlab_hub.core.scheduling import SchedulerTask, Snapshot, TaskState, schedule
from detlab_hub.core.scheduling.estimates import estimated_starts


def running(name: str, job: str, slots: int, agent: str, max_time: float | None) -> SchedulerTask:
    return SchedulerTask(name, job, slots, TaskState.RUNNING, on={agent: slots}, max_time=max_time)


def starts(snapshot: Snapshot) -> dict[str, float | None]:
    return dict(estimated_starts(snapshot, schedule))


def test_at_the_end_of_who_runs() -> None:
    snapshot = pool_of({"a1": 4}, {"j1": {}, "j2": {}}, {"t2": ("j2", 4)}, {"t1": running("t1", "j1", 4, "a1", 600.0)})
    assert starts(snapshot) == {"t2": 600.0}


def test_unknown_behind_one_of_unknown_time() -> None:
    snapshot = pool_of({"a1": 4}, {"j1": {}, "j2": {}}, {"t2": ("j2", 4)}, {"t1": running("t1", "j1", 4, "a1", None)})
    assert starts(snapshot) == {"t2": None}


def test_one_after_the_other() -> None:
    snapshot = pool_of(
        {"a1": 4},
        {"j1": {}, "j2": {}, "j3": {}, "j4": {}},
        {
            "t2": SchedulerTask("t2", "j2", 4, requested=1, max_time=50.0),
            "t3": SchedulerTask("t3", "j3", 4, requested=2),
            "t4": SchedulerTask("t4", "j4", 4, requested=3),
        },
        {"t1": running("t1", "j1", 4, "a1", 100.0)},
    )
    assert starts(snapshot) == {"t2": 100.0, "t3": 150.0, "t4": None}


def test_now_for_one_that_fits_and_after_a_preemption_for_one_that_comes_first() -> None:
    snapshot = pool_of(
        {"a1": 4},
        {"low": {"priority": 60}, "high": {"priority": 1}},
        {"t2": ("high", 3)},
        {"t1": ("low", {"a1": 2})},
        preemption=True,
    )
    assert starts(pool_of({"a1": 4}, {"j1": {}}, {"t1": ("j1", 2)})) == {"t1": 0.0}
    assert starts(snapshot) == {"t2": 0.0}


def test_a_passed_maximum_time_is_now_and_a_task_that_never_fits_is_unknown() -> None:
    snapshot = pool_of(
        {"a1": 4}, {"j1": {}, "j2": {}, "j3": {}}, {"t2": ("j2", 4), "t3": ("j3", 9)},
        {"t1": running("t1", "j1", 4, "a1", -5.0)},
    )  # fmt: skip
    assert starts(snapshot) == {"t2": 0.0, "t3": None}


def test_much_waiting_is_given_up_and_not_waited_for() -> None:
    tasks = tuple(SchedulerTask(f"p{n}", "j1", 1, requested=n, max_time=10.0) for n in range(400))
    snapshot = replace(pool_of({"a1": 1}, {"j1": {}}, {}), tasks=tasks)
    told = starts(snapshot)
    assert told["p0"] == 0.0
    assert told["p1"] == 10.0
    assert told["p399"] is None


def test_without_limits_it_goes_by_how_long_others_of_the_job_took() -> None:
    running = SchedulerTask("r", "a", 1, TaskState.RUNNING, on={"n": 1}, began=100.0)
    snapshot = pool_of({"n": 1}, {"a": {}, "b": {}}, {"w": ("b", 1), "x": ("b", 1)}, {"r": running})
    assert dict(estimated_starts(snapshot, schedule)) == {"w": None, "x": None}
    observed = {"a": 50.0, "b": 10.0}
    assert dict(estimated_starts(snapshot, schedule, observed, 120.0)) == {"w": 30.0, "x": 40.0}
    late = dict(estimated_starts(snapshot, schedule, observed, 1100.0))
    assert late == {"w": 100.0, "x": 110.0}  # it takes longer than the others did
