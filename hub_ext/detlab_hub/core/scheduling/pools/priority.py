"""The priority scheduler: lower numbers first, and what may pass by a task that waits.

The pass of Determined, level by level: the tasks of a priority that fit start; once one did not, lower priorities only
fill what it leaves. With preemption those that can be preempted may do so, and a task that did not fit takes slots from
running tasks of lower priorities, and from those of its own that are behind it in the queue. When slots are released,
nothing of lower priority starts in the same pass.

Different here, on purpose: `max_slots`, quotas and weights count; a task that could not run whatever the others do is
in nobody's way; victims that are not needed keep their slots; and without preemption, where Determined lets nothing
pass, a task of lower priority does if its maximum time ends before the first that waits can start, or if it runs where
none that waits ever could.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby

from detlab_hub.core.scheduling.pools.fitting import Placement, Rooms, kind_of, suits
from detlab_hub.core.scheduling.pools.limits import count_slots
from detlab_hub.core.scheduling.pools.model import Reason, ReasonCode, Task
from detlab_hub.core.scheduling.pools.order import Place, by_weight, place_of
from detlab_hub.core.scheduling.pools.planner import Planner, releasing
from detlab_hub.core.scheduling.pools.victims import Victims


def by_priority(planner: Planner) -> None:
    """Schedule a pool by priority; tasks without slots apart, as they are in nobody's way."""
    _Pass(planner, [task for task in planner.pending if task.slots == 0]).run()
    _Pass(planner, [task for task in planner.pending if task.slots > 0]).run()


class _Pass:
    """One pass over some pending tasks, in queue order."""

    def __init__(self, planner: Planner, pending: Sequence[Task]) -> None:
        self._planner = planner
        self._jobs = planner.jobs
        self._preempts = planner.pool.preemption
        self._pending = sorted(pending, key=self._priority)  # stable: in queue order within a priority
        candidates = [task for task in planner.running if task.preemptible and task.slots > 0] if self._preempts else []
        candidates.sort(key=self._rank)
        self._ranks = [self._rank(task) for task in candidates]
        self._victims = Victims(planner.rooms, candidates[::-1])
        self._heads: list[Task] = []
        """Tasks that did not fit and that others may not keep from starting."""
        self._usable: frozenset[str] = frozenset()
        """Agents on which any of them could run."""
        self._earliest: float | None = None
        """In so many seconds the first of them can start, as far as is known."""

    def _priority(self, task: Task) -> int:
        return self._jobs[task.job].priority

    def _rank(self, task: Task) -> tuple[int, Place]:
        return self._priority(task), place_of(task, self._jobs)

    def run(self) -> None:
        """Level by level."""
        for _, level in groupby(self._pending, self._priority):
            failed: list[Task] = []
            for task, tell in by_weight(list(level), self._jobs, self._planner.limits.by_job):
                if not self._planner.allowed(task):
                    tell(False)
                    continue
                tell(self._try(task, failed))
                if task.overdue and failed and failed[-1] is task:
                    self._add_heads([task])
            self._add_heads([task for task in failed if not task.overdue])
            for task in failed:
                self._make_room(task)

    def _try(self, task: Task, failed: list[Task]) -> bool:
        """Start the task if it fits and may; whether it did."""
        planner = self._planner
        placement = planner.rooms.fit(task)
        if placement is None:
            failed.append(task)
        elif not self._heads or (self._preempts and task.preemptible and not planner.release):
            planner.start(task, placement)
            return True
        elif self._preempts:
            # It keeps its place: what comes after it must not take that.
            planner.reserve(task, placement, self._behind(task))
        elif (passing := self._passing(task, placement)) is not None:
            planner.start(task, passing)
            return True
        else:
            planner.wait(task, self._behind(task))
        return False

    def _behind(self, task: Task) -> Reason:
        head = self._heads[0]
        detail = f"comes after {head.id}, which waits for {count_slots(head.slots)}"
        if not self._preempts and task.max_time is None:
            detail += "; with a maximum time that ends before that starts it could run now"
        return Reason(ReasonCode.BEHIND, detail, behind=head.id)

    # --- what passes by those that wait, without preemption

    def _add_heads(self, tasks: Sequence[Task]) -> None:
        if not tasks or self._preempts:
            self._heads += tasks
            return
        if not self._heads:
            self._earliest = earliest_start(self._planner, tasks[0])
        self._heads += tasks
        kinds = {kind_of(task) for task in tasks}
        agents = (agent for agent in self._planner.agents if any(suits(kind, agent) for kind in kinds))
        self._usable |= {agent.id for agent in agents}

    def _passing(self, task: Task, placement: Placement) -> Placement | None:
        """Where the task may start though others wait, None if nowhere."""
        if self._earliest is not None and task.max_time is not None and task.max_time <= self._earliest:
            return placement
        return self._planner.rooms.fit(task, avoid=self._usable)

    # --- preemption

    def _make_room(self, task: Task) -> None:
        planner = self._planner
        if not planner.allowed(task):
            return  # what was started and reserved since it failed counts
        if not self._preempts:
            planner.wait(task)
            return
        placement, victims = planner.rooms.fit(task), list[Task]()
        if placement is None:
            behind = len(self._ranks) - bisect_right(self._ranks, self._rank(task))
            placement, victims = self._victims.make_room(task, behind)
        if placement is None:
            planner.wait(task)
            return
        planner.release += victims
        planner.reserve(task, placement, releasing(victims))


def earliest_start(planner: Planner, head: Task) -> float | None:
    """In how many seconds the task has room at the latest, if those that run take their maximum times.

    None if that is not known: it waits for one whose maximum time is not.
    """
    rooms = Rooms(planner.pool, planner.agents)
    holding = [(task, task.on) for task in planner.running]
    holding += planner.started.values()
    for task, placement in holding:
        rooms.place(task, placement)
    ending = [(task.max_time, task.id, task, placement) for task, placement in holding if task.max_time is not None]
    for seconds, _, task, placement in sorted(ending, key=lambda one: one[:2]):
        rooms.remove(task, placement)
        if rooms.fit(head) is not None:
            return seconds
    return None
