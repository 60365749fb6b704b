"""Shares of users (`share_by: user`): how many tasks or jobs somebody submits does not change what they get.

Each user who wants slots has a share of the pool: by weight, and by what they used of late (`decayed_usage`). Who is
within it goes first, those first who hold least of theirs; what is left goes to whom it brings least beyond, so that no
slot is idle. A task within its owner's share that has waited for a while takes slots from users beyond theirs, who
never fall below it. Of their tasks those whose last checkpoint is the freshest leave first, as least is lost; none does
before its minimum run has ended.

Where groups have weights (`group_weights`), the members of one divide its share: how many of them want slots does not
change what others get.

The oldest task that has waited for too long goes first if its owner holds nothing: see `SchedulerTask.aged`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

from detlab_hub.core.scheduling.decayed_usage import adjusted_weights, shares_of
from detlab_hub.core.scheduling.fair_share import (
    capacity_of,
    start_later,
    start_or_reserve,
    start_zero_slot_tasks,
    take_from,
)
from detlab_hub.core.scheduling.limits import count_slots
from detlab_hub.core.scheduling.model import Pool, Reason, ReasonCode, SchedulerTask
from detlab_hub.core.scheduling.planner import Planner
from detlab_hub.core.scheduling.preemption.victims import Victims
from detlab_hub.core.scheduling.reservation import serve_aged

_ROUNDING = 1e-9
"""Of a slot: what sums of fractions may lack."""
_Gathered = list[tuple[SchedulerTask, list[SchedulerTask]]]


@dataclass(eq=False, slots=True)
class UserShare:
    """What a user holds and wants in a pool.

    Attributes:
        user: The name.
        pending: Tasks that wait, in queue order.
        running: Tasks that hold slots.
        held: Slots that they hold or get in this pass.
        weight: As adjusted by use.
        share: Slots that are the user's now.
        used: Slot-seconds, faded to now.
        group: The group whose share the user's is a part of; empty: none.
    """

    user: str
    pending: list[SchedulerTask] = field(default_factory=list)
    running: list[SchedulerTask] = field(default_factory=list)
    held: int = 0
    weight: float = 1.0
    share: float = 0.0
    used: float = 0.0
    group: str = ""

    def is_in(self, group: str) -> bool:
        """Whether the user is in a group of the Hub, as far as is known from the tasks."""
        return any(group in task.groups for task in (*self.running, *self.pending))

    def within(self, task: SchedulerTask) -> bool:
        """Whether the user would be within the share with this task."""
        return self.held + task.slots <= self.share + _ROUNDING

    def filled(self, slots: int = 0) -> float:
        """Return how much of the share is held, or would be with so many slots more."""
        return (self.held + slots) / self.weight


def user_shares(planner: Planner) -> dict[str, UserShare]:
    """Return the share of each user who holds or wants slots."""
    people: dict[str, UserShare] = {}
    for task in (*planner.running, *planner.pending):
        if task.slots == 0 or task.leaving:
            continue  # what leaves is as good as gone
        one = people.get(task.user)
        if one is None:
            one = people[task.user] = UserShare(task.user)
        if task.on:
            one.running.append(task)
            one.held += task.slots
        else:
            one.pending.append(task)
    pool, capacity = planner.pool, capacity_of(planner)
    weights = _weights(pool, people)
    adjusted = adjusted_weights(weights, planner.usage, capacity, pool.half_life)
    demands = {name: _demand(planner, one) for name, one in people.items()}
    groups = {name: one.group for name, one in people.items() if one.group}
    shares = shares_of(demands, adjusted, capacity, groups)
    for name, one in people.items():
        one.weight, one.share = adjusted[name], shares[name]
        one.used = planner.usage.get(name, 0.0)
    return people


def _weights(pool: Pool, people: dict[str, UserShare]) -> dict[str, float]:
    """Return the weight of each user; note the group whose weight the user's is a part of.

    Who is in several such groups counts in the one that the pool names first.
    """
    weights = {name: pool.weights.get(name, 1.0) for name in people}
    for group, weight in pool.groups.items():
        members = [name for name, one in people.items() if not one.group and one.is_in(group)]
        total = sum(weights[name] for name in members)
        for name in members:
            people[name].group = group
            weights[name] *= weight / total
    return weights


def _demand(planner: Planner, one: UserShare) -> int:
    """Return how many slots a user could hold: no more than quotas and the `max_slots` of each job allow."""
    if planner.limits.none:
        return one.held + sum(task.slots for task in one.pending)
    by_job: dict[str, int] = {}
    held: dict[str, int] = {}
    for task in one.running:
        held[task.job] = by_job[task.job] = held.get(task.job, 0) + task.slots
    for task in one.pending:
        by_job[task.job] = by_job.get(task.job, 0) + task.slots
    wanted = 0
    for name, slots in by_job.items():
        most = planner.jobs[name].max_slots
        wanted += slots if most is None else max(held.get(name, 0), min(slots, most))
    most = planner.limits.most_of(one.user)
    return wanted if most is None else max(one.held, min(wanted, most))


def by_user_share(planner: Planner) -> None:
    """Schedule a pool by shares of users."""
    put_off = start_zero_slot_tasks(planner)
    people = user_shares(planner)
    gathered: _Gathered = []
    kept, served = _serve_aged(planner, people, gathered)
    for one in people.values() if served else ():
        one.pending = [task for task in one.pending if task.id not in served]
    victims, leaving = _victims(planner, people, kept)
    later: dict[str, list[SchedulerTask]] = {}

    def within(one: UserShare, task: SchedulerTask) -> None:
        if not one.within(task):
            later.setdefault(one.user, []).append(task)
        elif planner.allowed(task):
            _start(planner, one, task, victims, victims.count if task.evicts else leaving, gathered)

    def beyond(one: UserShare, task: SchedulerTask) -> None:
        if planner.allowed(task):
            _start_if_free(planner, one, task)

    _in_turn([one for one in people.values() if one.pending], within, _held)
    for name, one in people.items():
        one.pending = later.get(name, [])  # those that stayed within it have had their turn
    _in_turn([one for one in people.values() if one.pending], beyond, _with_next)
    _explain(planner, people)
    take_from(planner, gathered)
    start_later(planner, put_off)


def _in_turn(
    people: Sequence[UserShare],
    turn: Callable[[UserShare, SchedulerTask], None],
    rank: Callable[[UserShare, SchedulerTask], float],
) -> None:
    """Give each user's next task a turn, the user first who ranks lowest; of equal ones who used least."""
    queues = {one.user: one.pending[::-1] for one in people}
    heap = [(rank(one, one.pending[0]), one.used, number, one) for number, one in enumerate(people)]
    heapify(heap)
    while heap:
        _, _, number, one = heap[0]
        waiting = queues[one.user]
        turn(one, waiting.pop())
        if waiting:
            heapreplace(heap, (rank(one, waiting[-1]), one.used, number, one))
        else:
            heappop(heap)


def _held(one: UserShare, task: SchedulerTask) -> float:
    return one.filled()


def _with_next(one: UserShare, task: SchedulerTask) -> float:
    """Return the rank by which what is left goes to whom it brings least beyond the share."""
    return one.filled(task.slots)


def _start(
    planner: Planner, one: UserShare, task: SchedulerTask, victims: Victims, limit: int, gathered: _Gathered
) -> bool:
    """Start a task or have slots released for it, and count them as held; whether it gets any."""
    taken = start_or_reserve(planner, task, victims, gathered, limit)
    if taken:
        one.held += task.slots
    return taken


def _start_if_free(planner: Planner, one: UserShare, task: SchedulerTask) -> None:
    """Start a task where that takes nothing from anybody, not even what is being released; else `_explain` says why."""
    placement = planner.capacity.fit(task)
    now = None if placement is None else planner.now(task, placement)
    if now is not None:
        planner.start(task, now)
        one.held += task.slots


def _serve_aged(planner: Planner, people: dict[str, UserShare], gathered: _Gathered) -> tuple[frozenset[str], set[str]]:
    """Start aged tasks, or make a reservation for the oldest; return its agents, and the tasks that had their turn."""
    served: set[str] = set()
    if not any(task.aged for one in people.values() for task in one.pending):
        return frozenset(), served
    victims, leaving = _victims(planner, people)

    def entitled(task: SchedulerTask) -> bool:
        one = people[task.user]
        return one.held == 0 or one.within(task)

    def take(task: SchedulerTask) -> bool:
        served.add(task.id)
        return _start(planner, people[task.user], task, victims, victims.count if task.evicts else leaving, gathered)

    return serve_aged(planner, entitled, take), served


def _victims(planner: Planner, people: dict[str, UserShare], kept: frozenset[str] = frozenset()) -> tuple[Victims, int]:
    """Return the tasks that may have to leave, and how many of the first are leaving already.

    Whichever of them leave, no user falls below the share. Tasks on agents that are kept are left out: the slots they
    give back are not for others.
    """
    released = {task.id for task in planner.release}
    leaving = [task for task in planner.running if task.leaving and not task.aside and kept.isdisjoint(task.on)]
    found: list[SchedulerTask] = []
    for one in people.values():
        # What it gets in this pass is no reason to take what it holds.
        held = sum(task.slots for task in one.running if task.id not in released)
        spare = held - one.share + _ROUNDING
        for task in sorted(one.running, key=_lost) if spare >= 1.0 else ():
            if may_go(task) and task.id not in released and task.slots <= spare and kept.isdisjoint(task.on):
                found.append(task)
                spare -= task.slots
    found.sort(key=_lost)
    return Victims(planner.capacity, [*leaving, *found]), len(leaving)


def may_go(task: SchedulerTask) -> bool:
    """Whether slots can be taken from it: not during the minimum run, nor soon after it had waited for too long."""
    return task.preemptible and not task.aged and not task.protected


def _lost(task: SchedulerTask) -> tuple[float, str]:
    """Return a sort key: first the tasks that lose least, as their last checkpoint, or their start, is the newest."""
    times = [at for at in (task.saved, task.began) if at is not None]
    return -max(times, default=math.inf), task.id


def _explain(planner: Planner, people: dict[str, UserShare]) -> None:
    """Note why what is beyond its owner's share waits."""
    total = capacity_of(planner)
    for one in people.values():
        waits = [task for task in one.pending if task.id not in planner.started and planner.allowed(task)]
        if not waits:
            continue
        detail = (
            f"{one.user} holds or gets {count_slots(one.held)}; the user's share of {total} is {one.share:.1f} now"
            f"{f', within that of group {one.group}' if one.group else ''}"
            f", with {one.used / 3600:.1f} slot-hours used of late"
        )
        reason = Reason(ReasonCode.FAIR_SHARE, detail)
        for task in waits:
            planner.wait(task, reason)
