"""What is handed over to who places itself: the order of the queue, within what jobs and users may hold."""

from __future__ import annotations

from dataclasses import replace

from detlab_hub.core.scheduling import (
    Agent,
    Job,
    Pool,
    Quota,
    Scheduler,
    SchedulerTask,
    Snapshot,
    TaskState,
    divide,
    hand_over,
)


def pool_of(
    *tasks: SchedulerTask, jobs: tuple[Job, ...], quotas: tuple[Quota, ...] = (), pool: Pool | None = None
) -> Snapshot:
    return Snapshot(pool or Pool(), (), {job.id: job for job in jobs}, tasks, quotas)


def test_all_goes_over_by_priority_then_in_the_order_of_the_queue_whatever_its_size() -> None:
    jobs = (Job("late", submitted=3), Job("early", submitted=1), Job("urgent", priority=1, submitted=9))
    tasks = [SchedulerTask(f"{job.id}.{n}", job.id, slots=10_000 * n, requested=n) for job in jobs for n in (2, 1, 0)]
    decision = hand_over(pool_of(*tasks, jobs=jobs), "slurm")
    names = [f"{job}.{n}" for job in ("urgent", "early", "late") for n in (0, 1, 2)]
    assert list(decision.allocate) == names
    assert decision.allocate["late.2"] == {"slurm": 20_000}
    assert (decision.waiting, decision.release) == ({}, ())
    turns = hand_over(pool_of(*tasks, jobs=jobs, pool=Pool(Scheduler.ROUND_ROBIN)), "slurm")
    assert list(turns.allocate)[:3] == ["early.0", "early.1", "early.2"], "priorities count for that scheduler only"


def test_what_may_not_be_held_waits_with_its_reason_and_is_in_nobodys_way() -> None:
    jobs = (Job("a", submitted=1), Job("b", submitted=2, max_slots=2))
    held = SchedulerTask("held", "a", slots=3, state=TaskState.RUNNING, on={"slurm": 0}, user="ada")
    tasks = (
        held,
        SchedulerTask("over", "a", slots=2, user="ada"),
        SchedulerTask("fits", "a", slots=1, user="ada", requested=1),
        SchedulerTask("large", "b", slots=3, user="bob"),
        SchedulerTask("first", "b", slots=2, user="bob", requested=1),
        SchedulerTask("second", "b", slots=1, user="bob", requested=2),
        SchedulerTask("none", "a", slots=0, user="ada", requested=9),
    )
    decision = hand_over(pool_of(*tasks, jobs=jobs, quotas=(Quota(4, user="ada"),)), "slurm")
    assert decision.allocate == {"fits": {"slurm": 1}, "none": {"slurm": 0}, "first": {"slurm": 2}}
    assert {name: reason.code for name, reason in decision.waiting.items()} == {
        "over": "at_quota",
        "large": "over_max_slots",
        "second": "at_max_slots",
    }


def test_a_task_that_was_refused_a_moment_ago_is_not_handed_over_again_at_once() -> None:
    tasks = (
        SchedulerTask("refused", "a", slots=1, blocked_nodes=frozenset({"slurm"})),
        SchedulerTask("next", "a", slots=1, requested=1),
    )
    decision = hand_over(pool_of(*tasks, jobs=(Job("a"),)), "slurm")
    assert decision.allocate == {"next": {"slurm": 1}}
    assert "slurm refused it a moment ago" in decision.waiting["refused"].detail


def test_who_serves_one_user_gets_the_tasks_of_no_other() -> None:
    tasks = (
        SchedulerTask("adas", "a", slots=1, user="ada"),
        SchedulerTask("bobs", "a", slots=1, user="bob", requested=1),
    )
    of_ada = Agent("slurm", 0, serves_user="ada")
    for agents in ((of_ada,), (of_ada, Agent("slurm", 0)), (Agent("slurm", 0), of_ada)):
        decision = hand_over(replace(pool_of(*tasks, jobs=(Job("a"),)), agents=agents), "slurm")
        assert decision.allocate == {"adas": {"slurm": 1}}
        assert decision.waiting["bobs"].detail == "slurm, which takes the tasks of this pool, serves another user"
    everyones = hand_over(replace(pool_of(*tasks, jobs=(Job("a"),)), agents=(Agent("slurm", 0),)), "slurm")
    assert set(everyones.allocate) == {"adas", "bobs"}


def test_slots_are_divided_into_nodes_that_are_alike() -> None:
    assert divide(2, None, 4) == [2]
    assert divide(0, None, 4) == [0]
    assert divide(8, None, 4) == [4, 4]
    assert divide(6, None, 4) == [3, 3], "not four and two"
    assert divide(8, 2, 4) == [2, 2, 2, 2]
    assert divide(1, 2, 4) == [1]
    assert divide(300, None, 0) == [300], "its largest node is not known"
    assert divide(5, 2, 4) == [5], "whoever places it refuses it"
