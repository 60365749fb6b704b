"""The priority scheduler: lower numbers first, with backfill.

The pass of Determined, level by level: the tasks of a priority that fit start; once one did not, lower priorities only
backfill. With preemption only preemptible tasks may do so, and a task that did not fit takes slots from running tasks
of lower priorities, and from those of its own priority behind it in the queue. When slots are released, nothing of
lower priority starts in the same pass.

Different here, on purpose: `max_slots`, quotas and weights count; a task that could not run whatever the others do
blocks none; redundant victims keep their slots; slots that are being gathered for a task are not given to one
behind it of the same priority; and without preemption, where Determined allows no backfill, a task of lower priority
backfills if its maximum time ends before any pending task ahead of it can start, or if it runs where those never could.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from detlab_hub.core.scheduling.backfill import Ahead
from detlab_hub.core.scheduling.fit.multi_node import Placement
from detlab_hub.core.scheduling.fit.shapes import TaskShape
from detlab_hub.core.scheduling.limits import count_slots
from detlab_hub.core.scheduling.model import Job, Reason, ReasonCode, SchedulerTask
from detlab_hub.core.scheduling.order import Place, by_weight, place_of, position_of
from detlab_hub.core.scheduling.planner import Planner
from detlab_hub.core.scheduling.preemption.redundant import redundant_victims
from detlab_hub.core.scheduling.preemption.victims import Victims
from detlab_hub.core.scheduling.reservation import reserve_place_beside

_Waiting: TypeAlias = tuple[SchedulerTask, TaskShape]
_Failed: TypeAlias = tuple[SchedulerTask, TaskShape, bool]
"""A task that did not fit, and whether it was the first: with fewer slots it would have started."""


def by_priority(planner: Planner) -> None:
    """Schedule a pool by priority; tasks that request no slots, CPUs or memory separately, as they block no other."""
    waiting = list(zip(planner.pending, planner.shapes, strict=True))
    if any(shape.aside for shape in set(planner.shapes)):
        _Pass(planner, [one for one in waiting if one[1].aside], zero=True).run()
        waiting = [one for one in waiting if not one[1].aside]
    _Pass(planner, waiting, zero=False).run()


class _Pass:
    """One pass over the tasks that request something, or over those that do not."""

    def __init__(self, planner: Planner, waiting: Sequence[_Waiting], *, zero: bool) -> None:
        self._planner = planner
        self._jobs = planner.jobs
        self._preempts = planner.pool.preemption
        self._levels: defaultdict[int, list[_Waiting]] = defaultdict(list)
        """Pending tasks, by priority and in queue order."""
        jobs = self._jobs
        for one in waiting:
            self._levels[jobs[one[0].job].priority].append(one)
        kept = [task for task in planner.running if task.aside is zero] if self._preempts else []
        candidates = [task for task in kept if task.preemptible and not task.leaving]
        candidates.sort(key=self._priority)  # those of one priority are in queue order, and stay so
        candidates.reverse()
        # Tasks that are leaving already cost nothing more: they come first, whichever task waits.
        self._leaving = [task for task in kept if task.leaving]
        ahead = (jobs[task.job] for task in reversed(candidates))
        self._bounds = [(job.priority, position_of(job)) for job in ahead]
        self._victims = Victims(planner.capacity, [*self._leaving, *candidates])
        self._released: list[SchedulerTask] = []
        self._for_whom: list[tuple[SchedulerTask, list[SchedulerTask]]] = []
        """Tasks that wait for released slots, each with its preemption victims."""
        self._unequal = _unequal(planner)
        self._awaiting: set[str] = set()
        """Tasks that did not fit, and will when leaving tasks have ended."""
        self._infeasible: dict[TaskShape, tuple[int, int]] = {}
        """(how often slots had become free, number of candidates) when no room could be made for a shape."""
        self._limits: dict[str, int] = {}
        """How many of the candidates may have to leave for a task of each job."""
        self._looked = 0
        """Number of tasks of a priority that did not fit for which making room was tried."""
        self._heads: list[SchedulerTask] = []
        """Tasks that did not fit and that others may not delay."""
        self._ahead = Ahead(planner)
        """The same, without preemption."""

    def _priority(self, task: SchedulerTask) -> int:
        return self._jobs[task.job].priority

    def _rank(self, task: SchedulerTask) -> tuple[int, Place]:
        return self._priority(task), place_of(task, self._jobs)

    def run(self) -> None:
        """Schedule level by level."""
        for priority in sorted(self._levels):
            failed = self._start_level(self._levels[priority], priority)
            if not (self._preempts and self._heads):  # with preemption the first one says it all
                self._add_heads([task for task, _, _ in failed if not task.aged])
            self._make_rooms(failed[self._looked :])
        self._spare()

    def _start_level(self, level: list[_Waiting], priority: int) -> list[_Failed]:
        """Start the tasks of one priority that fit; return those that did not."""
        failed: list[_Failed] = []
        self._looked = 0
        if priority not in self._unequal:
            self._start_in_order(level, failed)
        else:
            tasks, shapes = [task for task, _ in level], self._planner.capacity.known
            for task, tell in by_weight(tasks, self._jobs, self._planner.limits.by_job):
                tell(self._start_in_order([(task, shapes[task.id])], failed))
        return failed

    def _start_in_order(self, level: Sequence[_Waiting], failed: list[_Failed]) -> bool:
        """Start the tasks that fit, one after the other; return whether the last one started."""
        planner, capacity = self._planner, self._planner.capacity
        full, unlimited, leaving = capacity.failed, planner.limits.none, self._leaving
        started = False
        for task, shape in level:
            started = False
            if not (unlimited or planner.allowed(task)):
                continue
            # As `fit` would find: thousands wait, and few are alike.
            placement = None if full.get(shape) == capacity.widened else capacity.fit(task)
            if placement is not None:
                started = self._try(task, placement)
                continue
            failed.append((task, shape, not self._heads))
            if leaving:
                self._await(task)
            if task.aged:
                self._add_heads([task])
                if self._preempts:
                    # Before those behind it start, as they do in each pass: they are nobody's victims in their first.
                    self._make_rooms(failed[self._looked :])
                    self._looked = len(failed)
                    self._reserve_place(task)
        return started

    def _try(self, task: SchedulerTask, placement: Placement) -> bool:
        """Start the task where it fits if it may; return whether it started."""
        planner = self._planner
        if (now := self._at_once(task, placement)) is not None:
            planner.start(task, now)
            return True
        elif self._preempts:
            # It keeps its place: what comes after it must not take that.
            planner.reserve(task, placement)
            planner.wait(task, self._behind(task))
        elif (backfill := self._ahead.fit(task, placement)) is not None:
            planner.start(task, backfill)
            return True
        else:
            planner.wait(task, self._behind(task))
        return False

    def _at_once(self, task: SchedulerTask, placement: Placement) -> Placement | None:
        """Return where the task may start immediately: none is pending ahead of it, or those may preempt it."""
        if not self._heads:
            # What is being gathered for others may leave more than they need: that is free only when it is left.
            return self._planner.now(task, placement) if self._awaiting else placement
        if self._preempts and task.preemptible and not self._released:
            return self._planner.now(task, placement)
        return None

    def _behind(self, task: SchedulerTask) -> Reason:
        head = self._heads[0] if self._heads else self._for_whom[0][0]
        detail = f"comes after {self._planner.name_for(head, task)}, which waits for {count_slots(head.slots)}"
        if not self._preempts and task.max_time is None:
            detail += "; with a maximum time that ends before that starts it could run now"
        return Reason(ReasonCode.BEHIND, detail, behind=head.id)

    def _add_heads(self, tasks: Sequence[SchedulerTask]) -> None:
        if not self._preempts:
            self._ahead.add(tasks)
        self._heads += tasks

    # --- preemption

    def _reserve_place(self, task: SchedulerTask) -> None:
        """Reserve what becomes free for the first aged task, where its priority gives it no slots.

        Where jobs take turns, no task behind it does: those would start on each slot that it needs, without end.
        """
        planner, priority = self._planner, self._priority(task)
        served = task.id in self._awaiting or (self._for_whom and self._for_whom[-1][0] is task)
        if priority in self._unequal and not (served or task.aside) and planner.reserved_for is None:
            kept = reserve_place_beside(planner, task, lambda one: one.preemptible and self._priority(one) > priority)
            self._victims.leave_out(kept)

    def _await(self, task: SchedulerTask) -> None:
        """Reserve what is free for the task, if it has room as soon as the leaving tasks have ended.

        This happens at its turn, before any task behind it is considered: else the first that left would come back
        immediately on the very slots that are being gathered, and be told to leave again.
        """
        placement, gone = self._victims.make_room(task, len(self._leaving))
        if placement is not None:
            self._awaiting.add(task.id)
            self._for_whom.append((task, gone))
            self._planner.reserve(task, placement)

    def _make_rooms(self, failed: Sequence[_Failed]) -> None:
        """Take slots for tasks that did not fit, one after the other; a task without enough victims waits for room."""
        planner, capacity, infeasible = self._planner, self._planner.capacity, self._infeasible
        awaiting, unlimited, preempts = self._awaiting, planner.limits.none, self._preempts
        limit_of, wait_for_room = self._limits, planner.wait_for_room
        for task, shape, first in failed:
            if task.id in awaiting or not (unlimited or planner.allowed(task)):
                continue  # what was started and reserved since it failed counts
            if preempts:
                candidates = limit_of.get(task.job)
                if candidates is None:
                    candidates = limit_of[task.job] = self._behind_in_queue(self._jobs[task.job])
                # Where more who might leave were too few, fewer are.
                known = infeasible.get(shape)
                if known is None or known[0] != capacity.widened or known[1] < candidates:
                    if self._make_room(task, candidates):
                        continue
                    infeasible[shape] = capacity.widened, candidates
            wait_for_room((task, shape, first and not self._released))

    def _make_room(self, task: SchedulerTask, candidates: int) -> bool:
        """Find room for the task, if need be by preempting some of the first candidates; return whether it has room."""
        placement, victims = self._planner.capacity.fit(task), list[SchedulerTask]()
        if placement is None:
            placement, victims = self._victims.make_room(task, candidates)
        if placement is None:
            return False
        self._released += [victim for victim in victims if not victim.leaving]
        self._for_whom.append((task, victims))
        self._planner.reserve(task, placement)  # why it waits is said when it is known who leaves
        return True

    def _behind_in_queue(self, job: Job) -> int:
        """Count the candidates that may have to leave for a task of the job.

        Of its own priority only tasks of jobs that are behind its own in the queue; none where jobs of different
        weights take turns, as whose turn it is changes with every start.
        """
        position = math.inf if job.priority in self._unequal else position_of(job)
        ahead = bisect_right(self._bounds, (job.priority, position))
        return len(self._leaving) + len(self._bounds) - ahead

    def _spare(self) -> None:
        """Let redundant victims keep their slots: all tasks that wait for slots fit without them, too."""
        kept = redundant_victims(
            self._planner, sorted(self._released, key=self._rank), [task for task, _ in self._for_whom]
        )
        released = {task.id: task for task in self._released if task.id not in kept}
        self._planner.release += released.values()
        for task, victims in self._for_whom:
            gone = [victim for victim in victims if victim.leaving or victim.id in released]
            # Nobody leaves if all who wait would find room: then it is room that is kept for the first of them all.
            for_room = victims and not gone and not self._planner.release
            self._planner.wait(task, self._behind(task) if for_room else self._planner.wait_for_release(task, gone))


def _unequal(planner: Planner) -> frozenset[int]:
    """Return the priorities whose jobs have different weights."""
    jobs = planner.jobs
    if len({job.weight for job in jobs.values()}) <= 1:
        return frozenset()
    names = {task.job for tasks in (planner.running, planner.pending) for task in tasks}
    weights = Counter(priority for priority, _ in {(jobs[name].priority, jobs[name].weight) for name in names})
    return frozenset(priority for priority, count in weights.items() if count > 1)
