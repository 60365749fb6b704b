"""What the owner of a task is told: never the name of somebody else's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pool_snapshots import pool_of, random_snapshot, reasons

from detlab_hub.core.scheduling import Job, Quota, ReasonCode, Scheduler, SchedulerTask, Snapshot, TaskState, schedule

SECRET = "secret"


def hidden(snapshot: Snapshot) -> Snapshot:
    """The same where each task and each job is called after its owner, as a secret."""
    of = {task.id: f"{SECRET}-{task.user}-{task.id}" for task in snapshot.tasks}
    job_of = {task.id: f"{SECRET}-{task.user}-{task.job}" for task in snapshot.tasks}
    jobs = {job_of[task.id]: replace(snapshot.jobs[task.job], id=job_of[task.id]) for task in snapshot.tasks}
    tasks = tuple(replace(task, id=of[task.id], job=job_of[task.id]) for task in snapshot.tasks)
    return replace(snapshot, jobs=jobs, tasks=tasks, private=True)


def test_I9_no_reason_of_a_private_pool_names_a_task_of_somebody_else() -> None:
    told = 0
    for seed in range(800):
        snapshot = hidden(random_snapshot(seed))
        users = {task.id: task.user for task in snapshot.tasks}
        for name, reason in schedule(snapshot).waiting.items():
            for other in {"ada", "bob"} - {users[name]}:
                assert f"{SECRET}-{other}" not in reason.detail, reason
            told += SECRET in reason.detail
    assert told > 20, "one's own are named"


@pytest.mark.parametrize(("owner", "said"), [("ada", "victim"), ("bob", "another user's task")])
def test_I9_who_gives_slots_back_is_named_to_its_owner(owner: str, said: str) -> None:
    pool = pool_of(
        {"a": 2},
        {"low": {"priority": 90}, "high": {"priority": 1}},
        {"t": SchedulerTask("t", "high", 2, user="ada")},
        {"victim": SchedulerTask("victim", "low", 2, TaskState.RUNNING, on={"a": 2}, user=owner)},
        preemption=True,
    )
    decision = schedule(replace(pool, private=True))
    assert decision.release == ("victim",)
    assert decision.waiting["t"].detail == f"waits for {said} to release their slots"
    assert decision.waiting["t"].code is ReasonCode.RELEASING
    assert schedule(pool).waiting["t"].detail == "waits for victim to release their slots"


@pytest.mark.parametrize("scheduler", list(Scheduler))
def test_what_is_held_in_other_pools_counts_towards_max_slots_and_quotas(scheduler: Scheduler) -> None:
    pool = pool_of(
        {"a": 8},
        {"j": {"max_slots": 3, "elsewhere": 2}, "k": {}},
        {"t": ("j", 2), "one": ("j", 1), "u": SchedulerTask("u", "k", 2, user="ada", groups=frozenset({"g"}))},
        quotas=(Quota(4, group="g", elsewhere=3),),
        scheduler=scheduler,
    )
    decision = schedule(pool)
    assert reasons(decision) == {"t": "at_max_slots", "u": "at_quota"}
    assert decision.waiting["t"].detail == "j holds 2 of its max_slots 3, this needs 2"
    assert decision.waiting["u"].detail == "group g holds 3 of a quota of 4 slots, this needs 2; see det quota list"


def test_a_job_is_what_it_was_without_a_place_elsewhere() -> None:
    assert Job("j") == Job("j", elsewhere=0)
