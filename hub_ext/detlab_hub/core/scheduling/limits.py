"""Limits of jobs and users: `max_slots`, quotas and tasks without slots, counted during a pass."""

from __future__ import annotations

from collections import Counter

from detlab_hub.core.scheduling.model import UNBOUNDED, Quota, Reason, ReasonCode, SchedulerTask, Snapshot, TaskState

MEBIBYTE, GIBIBYTE = 2**20, 2**30


def count_slots(slots: int) -> str:
    """`1 slot`, `4 slots`."""
    return f"{slots} slot" if slots == 1 else f"{slots} slots"


def count_cpus(millicpus: int) -> str:
    """`1 CPU`, `1.5 CPUs`."""
    return (
        "any number of CPUs"
        if millicpus > UNBOUNDED // 2
        else f"{millicpus / 1000:g} CPU{'' if millicpus == 1000 else 's'}"
    )


def count_bytes(size: int) -> str:
    """`8 GiB`, `512 MiB`, `100 bytes`: rounded down, so that a request of the printed amount fits."""
    if size > UNBOUNDED // 2:
        return "any amount of memory"
    if 0 < size < MEBIBYTE:
        return f"{size} byte{'' if size == 1 else 's'}"
    return f"{size // GIBIBYTE} GiB" if size % GIBIBYTE < MEBIBYTE else f"{size // MEBIBYTE} MiB"


def demanded(task: SchedulerTask) -> str:
    """`4 CPUs and 8 GiB of memory`."""
    parts = [
        *([count_cpus(task.millicpus)] if task.millicpus else []),
        *([f"{_rounded_up(task.memory)} of memory"] if task.memory else []),
    ]
    return " and ".join(parts)


def _rounded_up(size: int) -> str:
    return count_bytes(-(-size // MEBIBYTE) * MEBIBYTE)


class SlotLimits:
    """Slots held by each job and under each quota. Slots released in a pass count as held until its end."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._jobs = snapshot.jobs
        self._users: dict[str, list[Quota]] = {}
        self._groups: dict[str, list[Quota]] = {}
        self._workspaces: dict[int, list[Quota]] = {}
        for quota in snapshot.quotas:
            if quota.workspace is not None:
                self._workspaces.setdefault(quota.workspace, []).append(quota)
                continue
            holders = self._groups if quota.user is None else self._users
            holders.setdefault(quota.user or quota.group or "", []).append(quota)
        self._bounded = {name for name, job in snapshot.jobs.items() if job.max_slots is not None}
        self._no_quotas = not snapshot.quotas
        self._most_zero_slot, self._unbound = _most_zero_slot(snapshot), snapshot.unbound
        self._zero_slot: Counter[str] = Counter()
        self.none = self._no_quotas and not self._bounded and self._most_zero_slot is None
        """Whether no limit is set."""
        self.by_job: Counter[str] = Counter()
        self.by_job.update({name: job.elsewhere for name, job in snapshot.jobs.items() if job.elsewhere})
        self._by_quota: Counter[Quota] = Counter({quota: quota.elsewhere for quota in snapshot.quotas})
        runs = TaskState.RUNNING
        for task in snapshot.tasks:
            if task.state is runs:
                self.hold(task)

    def hold(self, task: SchedulerTask) -> None:
        """Count a task's slots as held."""
        if not task.slots:
            self._zero_slot[task.user] += 1
            return
        self.by_job[task.job] += task.slots
        if not self._no_quotas:
            for quota in self._of(task):
                self._by_quota[quota] += task.slots

    def most_of(self, user: str) -> int | None:
        """Return how many slots the quotas of a user allow in this pool; None: any number."""
        most = [max(0, quota.slots - quota.elsewhere) for quota in self._users.get(user, ())]
        return min(most, default=None)

    def _of(self, task: SchedulerTask) -> list[Quota]:
        if self._no_quotas:
            return []
        found = list(self._users.get(task.user, ()))
        for group in task.groups if self._groups else ():
            found += self._groups.get(group, ())
        if self._workspaces and task.workspace is not None:
            found += self._workspaces.get(task.workspace, ())
        return found

    def never(self, task: SchedulerTask) -> Reason | None:
        """Explain why the task may never start: it alone needs more than it may hold."""
        if self._no_quotas and task.job not in self._bounded:
            return None
        most = self._jobs[task.job].max_slots
        if most is not None and task.slots > most:
            detail = f"needs {count_slots(task.slots)}, more than max_slots {most} of {task.job}"
            return Reason(ReasonCode.OVER_MAX_SLOTS, detail)
        for quota in self._of(task):
            if task.slots > quota.slots:
                detail = f"needs {count_slots(task.slots)}, more than the quota of {quota.whose}: {quota.slots}"
                return Reason(ReasonCode.OVER_QUOTA, detail)
        return None

    def now(self, task: SchedulerTask) -> Reason | None:
        """Explain why the task may not start now, whatever is free."""
        if task.slots == 0:
            return self._without_slots(task)
        if self._no_quotas and task.job not in self._bounded:
            return None
        most, held = self._jobs[task.job].max_slots, self.by_job[task.job]
        if most is not None and held + task.slots > most:
            detail = f"{task.job} holds {held} of its max_slots {most}, this needs {task.slots}"
            return Reason(ReasonCode.AT_MAX_SLOTS, detail)
        for quota in self._of(task):
            held = self._by_quota[quota]
            if held + task.slots > quota.slots:
                return Reason(
                    ReasonCode.AT_QUOTA,
                    f"{quota.whose} holds {held} of a quota of {count_slots(quota.slots)}, this needs {task.slots}"
                    "; see det quota list",
                )
        return None

    def _without_slots(self, task: SchedulerTask) -> Reason | None:
        most = self._most_zero_slot
        if most is None or self._zero_slot[task.user] < most or task.user in self._unbound:
            return None
        detail = f"user {task.user} runs {most} tasks without slots, as many as one user may"
        return Reason(ReasonCode.AT_ZERO_SLOT_TASKS, detail)


def _most_zero_slot(snapshot: Snapshot) -> int | None:
    """Return how many tasks without slots a user may run; None if the pool has too few to reach that."""
    most = snapshot.zero_slot_tasks
    if most is None or sum(1 for task in snapshot.tasks if task.slots == 0) <= most:
        return None
    return most
