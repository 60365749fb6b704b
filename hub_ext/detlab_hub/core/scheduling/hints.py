"""Changes that would let a pending task start now: each is tried with the scheduler itself, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from detlab_hub.core.scheduling.limits import MEBIBYTE, count_bytes, count_slots
from detlab_hub.core.scheduling.model import Job, PlacementDecision, ReasonCode, SchedulerTask, Snapshot, TaskState

_EVERY = 8
"""Up to this many slots every smaller number is tried."""
_HOPELESS = frozenset({ReasonCode.NO_AGENT, ReasonCode.RELEASING})
"""Nothing here helps, or help is under way."""


class Change(StrEnum):
    """The kinds of changes: a closed set."""

    SLOTS = "slots"
    """Fewer slots."""
    CPUS = "cpus"
    """Fewer CPUs."""
    MEMORY = "memory"
    """Less memory."""
    MAX_SLOTS = "max_slots"
    """Its job without a limit."""
    POOL = "pool"
    """Another pool."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A change with which the task would start now.

    Attributes:
        change: What to change.
        value: The number of slots or CPUs, a size of memory, or the name of the pool; "" where there is none.
        text: For people: `would start now with 4 slots`.
    """

    change: Change
    value: str
    text: str


Schedule = Callable[[Snapshot], PlacementDecision]


def hints(
    snapshot: Snapshot, task_id: str, schedule: Schedule, others: Mapping[str, Snapshot] | None = None
) -> tuple[Hint, ...]:
    """List changes that would let a pending task start now; empty if it starts anyway, or if none that is tried helps.

    Args:
        snapshot: The pool in which it waits.
        task_id: The task.
        schedule: The pass (`scheduling.schedule`).
        others: Other pools that it could be moved to, by name.
    """
    reason = schedule(snapshot).waiting.get(task_id)
    if reason is None or reason.code is ReasonCode.RELEASING:
        return ()
    task = next(task for task in snapshot.tasks if task.id == task_id)
    job = snapshot.jobs[task.job]
    found: list[Hint] = []
    if reason.code not in _HOPELESS:
        most = _most_slots(snapshot, task, schedule)
        if most is not None:
            found.append(Hint(Change.SLOTS, str(most), f"would start now with {count_slots(most)}"))
        found += _less(snapshot, task, schedule)
    if reason.code in (ReasonCode.AT_MAX_SLOTS, ReasonCode.OVER_MAX_SLOTS):
        free = replace(job, max_slots=None)
        if _starts(_with(snapshot, task, free), task_id, schedule):
            text = f"would start now without max_slots {job.max_slots} of its job"
            found.append(Hint(Change.MAX_SLOTS, "", text))
    for name, other in sorted((others or {}).items()):
        if _starts(_moved(other, task, job), task_id, schedule):
            found.append(Hint(Change.POOL, name, f"would start now in the pool {name}"))
    return tuple(found)


def _starts(snapshot: Snapshot, task_id: str, schedule: Schedule) -> bool:
    return task_id in schedule(snapshot).allocate


def _with(snapshot: Snapshot, task: SchedulerTask, job: Job) -> Snapshot:
    tasks = tuple(task if one.id == task.id else one for one in snapshot.tasks)
    return replace(snapshot, tasks=tasks, jobs={**snapshot.jobs, job.id: job})


def _moved(other: Snapshot, task: SchedulerTask, job: Job) -> Snapshot:
    """Return the other pool with the task in it, its job at the place of its submission."""
    if job.id not in other.jobs:
        other = replace(other, jobs={**other.jobs, job.id: replace(job, position=None)})
    return replace(other, tasks=(*other.tasks, task))


def _most_slots(snapshot: Snapshot, task: SchedulerTask, schedule: Schedule) -> int | None:
    job = snapshot.jobs[task.job]
    for slots in _fewer(snapshot, task):
        if _starts(_with(snapshot, replace(task, slots=slots), job), task.id, schedule):
            return slots
    return None


def _less(snapshot: Snapshot, task: SchedulerTask, schedule: Schedule) -> list[Hint]:
    """Find the most CPUs, and the most memory, with which the task would start, each with the other unchanged."""
    job, left = snapshot.jobs[task.job], _left_on(snapshot)
    hints = []
    if task.memory:
        sizes = {memory // MEBIBYTE * MEBIBYTE for _, memory in left}
        size = _most(sizes, task.memory, lambda n: _starts_as(snapshot, replace(task, memory=n), job, schedule))
        if size:
            hints.append(Hint(Change.MEMORY, count_bytes(size), f"would start now with memory {count_bytes(size)}"))
    if task.millicpus:
        counts = {cpus for cpus, _ in left}
        count = _most(counts, task.millicpus, lambda n: _starts_as(snapshot, replace(task, millicpus=n), job, schedule))
        if count:
            hints.append(Hint(Change.CPUS, f"{count / 1000:g}", f"would start now with cpus {count / 1000:g}"))
    return hints


def _starts_as(snapshot: Snapshot, task: SchedulerTask, job: Job, schedule: Schedule) -> bool:
    return _starts(_with(snapshot, task, job), task.id, schedule)


def _left_on(snapshot: Snapshot) -> list[tuple[int, int]]:
    """Unrequested millicpus and bytes of memory of each agent."""
    left = {agent.id: (agent.millicpus, agent.host_memory) for agent in snapshot.agents}
    for one in snapshot.tasks:
        for name in one.on:
            if name in left:
                left[name] = left[name][0] - one.millicpus, left[name][1] - one.memory
    return list(left.values())


def _most(worth: Iterable[int], asked: int, starts: Callable[[int], bool]) -> int | None:
    """Return the largest number below the request with which the task starts; None if there is none.

    Searched by bisection, as less always works if more does.
    """
    rising = sorted(number for number in set(worth) if 0 < number < asked)
    best = None
    while rising:
        middle = len(rising) // 2
        if starts(rising[middle]):
            best, rising = rising[middle], rising[middle + 1 :]
        else:
            rising = rising[:middle]
    return best


def _fewer(snapshot: Snapshot, task: SchedulerTask) -> list[int]:
    """List numbers of slots worth a try, largest first: all small ones, powers of two, and what is free somewhere."""
    worth: set[int] = set(range(1, min(task.slots, _EVERY + 1)))
    worth.update(1 << power for power in range(task.slots.bit_length()))
    free = {agent.id: agent.slots for agent in snapshot.agents}
    running = [one for one in snapshot.tasks if one.state is TaskState.RUNNING]
    for one in running:
        for name, slots in one.on.items():
            free[name] = free.get(name, 0) - slots
    worth.update(free.values())
    worth.add(sum(free.values()))
    worth.update(_left(snapshot, task, running))
    return sorted((slots for slots in worth if 0 < slots < task.slots), reverse=True)


def _left(snapshot: Snapshot, task: SchedulerTask, running: Iterable[SchedulerTask]) -> Iterable[int]:
    """Return what `max_slots` and each quota leave free."""
    held = list(running)
    most = snapshot.jobs[task.job].max_slots
    if most is not None:
        yield most - sum(one.slots for one in held if one.job == task.job)
    for quota in snapshot.quotas:
        if quota.binds(task):
            yield quota.slots - sum(one.slots for one in held if quota.binds(one))
