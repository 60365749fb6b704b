"""The queue's order: by where a job was moved to or when it was submitted, then by the requests of its own tasks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from operator import attrgetter
from typing import TypeAlias

from detlab_hub.core.scheduling.model import Job, SchedulerTask

Place: TypeAlias = tuple[float, float, float, str]
"""Comparable: less is further ahead."""
_BY_REQUEST = attrgetter("requested", "id")


def position_of(job: Job) -> float:
    """Return the position of a job in the queue."""
    return job.submitted if job.position is None else job.position


def place_of_job(job: Job) -> tuple[float, float, str]:
    """Return the sort key of a job."""
    return position_of(job), job.submitted, job.id


def place_of(task: SchedulerTask, jobs: Mapping[str, Job]) -> Place:
    """Return the sort key of a task."""
    job = jobs[task.job]
    return position_of(job), job.submitted, task.requested, task.id


def in_order(tasks: Iterable[SchedulerTask], jobs: Mapping[str, Job]) -> list[SchedulerTask]:
    """Sort tasks in queue order."""
    by_job: defaultdict[str, list[SchedulerTask]] = defaultdict(list)
    for task in tasks:
        by_job[task.job].append(task)
    together: dict[tuple[float, float], list[SchedulerTask]] = {}
    for name, own in by_job.items():
        job = jobs[name]
        together.setdefault((position_of(job), job.submitted), []).extend(own)
    ordered: list[SchedulerTask] = []
    for place in sorted(together):
        ordered += sorted(together[place], key=_BY_REQUEST)
    return ordered


def of_one_weight(tasks: Iterable[SchedulerTask], jobs: Mapping[str, Job]) -> bool:
    """Whether the tasks' jobs all have the same weight."""
    return len({jobs[task.job].weight for task in tasks}) <= 1


def by_weight(
    ordered: list[SchedulerTask], jobs: Mapping[str, Job], held: Mapping[str, int]
) -> Iterator[tuple[SchedulerTask, Callable[[bool], None]]]:
    """Yield the tasks of jobs of one rank in turn, each with a function that takes whether it was started.

    If all weights are the same, jobs come in queue order. As soon as two weights differ, the job that holds the fewest
    slots for its weight comes next. Of the jobs that hold none, the one whose task is aged and has waited longest comes
    first: else small jobs ahead in the queue, each with its next task as soon as it holds none, would keep a task from
    starting that needs more slots than one of them releases.

    Args:
        ordered: In queue order.
        jobs: By name.
        held: Slots that each job holds now.
    """
    if of_one_weight(ordered, jobs):
        for task in ordered:
            yield task, _nothing
        return
    waiting: dict[str, list[SchedulerTask]] = {}
    for task in ordered:
        waiting.setdefault(task.job, []).append(task)
    heap = []
    for place, (name, tasks) in enumerate(waiting.items()):
        since = tasks[0].since if tasks[0].aged and not held.get(name) else math.inf
        heap.append((held.get(name, 0) / jobs[name].weight, since, place, name))
    heapify(heap)
    for tasks in waiting.values():
        tasks.reverse()
    while heap:
        used, since, place, name = heap[0]
        task = waiting[name].pop()
        started: list[bool] = []
        yield task, started.append
        if started and started[0] and task.slots:
            used += task.slots / jobs[name].weight
        if waiting[name]:
            heapreplace(heap, (used, since, place, name))
        else:
            heappop(heap)


def _nothing(_started: bool) -> None:
    return None
