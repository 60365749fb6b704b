"""Schedulers that go by what each job holds: fair share and round robin.

Fair share is Determined's: every job is offered slots in proportion to its weight, up to what it asks for, in rounds
until all are offered; jobs that hold more than that give slots back, the others start tasks within their offer. Where
Determined's code and its purpose differ, this follows the purpose: slots that cannot be preempted count towards their
job's offer; of the jobs whose offer is too small for their smallest task the youngest yields, and the others get
what it could not use; and slots are only taken where a pending task can then start.

Round robin gives each job a turn, those that hold least first; a job of weight two gets twice as many turns.
It never takes slots away.

Under both, the oldest task that has waited for too long goes first if its job holds nothing, or has a share that it
cannot use: what it needs is kept for it as it becomes free, see `SchedulerTask.aged`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from operator import attrgetter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from detlab_hub.core.scheduling.limits import count_slots
from detlab_hub.core.scheduling.model import AgentState, Job, Reason, ReasonCode, SchedulerTask
from detlab_hub.core.scheduling.order import place_of_job
from detlab_hub.core.scheduling.planner import Planner
from detlab_hub.core.scheduling.preemption.redundant import redundant_victims
from detlab_hub.core.scheduling.preemption.victims import Victims
from detlab_hub.core.scheduling.reservation import reserve_place, serve_aged

_Numbers: TypeAlias = NDArray[np.int64]


@dataclass(eq=False, slots=True)
class _Share:
    """A job in the filling.

    Attributes:
        job: The job.
        pending: Its pending tasks, in queue order; `keep` changes them.
        running: Its tasks that hold slots.
        held: Slots that it holds.
        fixed: Those of them that cannot be taken away.
        given: What the rounds have offered it so far.
        place: Position in the order of jobs; this and the next as of the start of a filling.
        demand: Slots that it could use.
        smallest: Slots of its smallest pending task, as of their last change.
    """

    job: Job
    pending: list[SchedulerTask] = field(default_factory=list)
    running: list[SchedulerTask] = field(default_factory=list)
    held: int = 0
    fixed: int = 0
    given: int = 0
    place: int = 0
    demand: int = 0
    smallest: int = 0
    _asked: int = 0

    def keep(self, pending: list[SchedulerTask]) -> None:
        """Set the pending tasks. The sums are made here, as each filling reads them often, for many jobs."""
        self.pending = pending
        self._asked = sum(task.slots for task in pending)
        self.smallest = min((task.slots for task in pending), default=0)

    def begin(self, place: int) -> None:
        """Start a filling."""
        self.place = place
        wanted, most = self.held + self._asked, self.job.max_slots
        self.demand = wanted if most is None else max(self.fixed, min(wanted, most))
        self.given = 0

    @property
    def offered(self) -> int:
        """Slots that the job may hold."""
        return max(self.fixed, self.given)


def by_fair_share(planner: Planner) -> None:
    """Schedule a pool by shares."""
    put_off = start_zero_slot_tasks(planner)
    shares = _shares(planner)
    capacity = capacity_of(planner)
    gathered: list[tuple[SchedulerTask, list[SchedulerTask]]] = []
    kept = _serve_aged(planner, shares, capacity, gathered)
    repeat = True
    while repeat:
        fill(shares, capacity)
        victims = Victims(planner.capacity, _beyond_offers(planner, shares, kept))
        repeat = False
        for share in shares:
            still = []
            for task in share.pending:
                if share.held + task.slots > share.offered:
                    still.append(task)
                    continue
                # Whether it gets slots or cannot: what it does not take is offered to the others in the next round.
                if planner.allowed(task) and start_or_reserve(planner, task, victims, gathered):
                    share.held += task.slots
                    share.fixed += task.slots
            if len(still) < len(share.pending):
                repeat = True
                share.keep(still)
    for share in shares:
        for task in share.pending:
            detail = (
                f"{share.job.id} holds or gets {count_slots(share.held)}; its share of {capacity} is {share.offered}"
            )
            planner.wait(task, Reason(ReasonCode.FAIR_SHARE, detail))
    take_from(planner, gathered)
    start_later(planner, put_off)


def capacity_of(planner: Planner) -> int:
    """Return the slots that there are to share, including those that are held."""
    enabled = {agent.id for agent in planner.agents if agent.state is AgentState.ENABLED}
    capacity = sum(agent.slots for agent in planner.agents if agent.id in enabled)
    # What runs on agents that take no new work is held, too.
    staying = [task for task in planner.running if not task.leaving]
    return capacity + sum(n for task in staying for name, n in task.on.items() if name not in enabled)


def _serve_aged(
    planner: Planner, shares: Sequence[_Share], capacity: int, gathered: list[tuple[SchedulerTask, list[SchedulerTask]]]
) -> frozenset[str]:
    """Start aged tasks, or make a reservation for the oldest; return the agents of the reservation.

    A job that holds slots gets only what is within its share: else the jobs with the most pending tasks would get most.
    Slots are not taken for them from jobs that hold no more than their share: jobs that hold one task each would take
    turns at the cost of checkpoints, for ever.
    """
    if not any(task.aged for share in shares for task in share.pending):
        return frozenset()
    fill(shares, capacity)
    by_job, served = {share.job.id: share for share in shares}, set[str]()
    victims = Victims(planner.capacity, _beyond_offers(planner, shares))

    def entitled(task: SchedulerTask) -> bool:
        share = by_job[task.job]
        return share.held == 0 or share.held + task.slots <= share.offered

    def take(task: SchedulerTask) -> bool:
        share = by_job[task.job]
        served.add(task.id)
        taken = start_or_reserve(planner, task, victims, gathered)
        if taken:
            share.held += task.slots
            share.fixed += task.slots
        return taken

    kept = serve_aged(planner, entitled, take)
    for share in shares if served else ():
        share.keep([task for task in share.pending if task.id not in served])
    return kept


def start_or_reserve(
    planner: Planner,
    task: SchedulerTask,
    victims: Victims,
    gathered: list[tuple[SchedulerTask, list[SchedulerTask]]],
    limit: int | None = None,
) -> bool:
    """Start the task, or have slots released for it and note from whom; whether it gets any.

    Args:
        planner: The pass.
        task: The task.
        victims: Who may have to leave.
        gathered: Which tasks get what others release, so far.
        limit: How many of the victims may have to leave; None: all.
    """
    placement, chosen = planner.capacity.fit(task), list[SchedulerTask]()
    if placement is not None and (now := planner.now(task, placement)) is not None:
        planner.start(task, now)
        return True
    if placement is None:
        placement, chosen = victims.make_room(task, victims.count if limit is None else limit)
    if placement is None:
        planner.wait(task)
        return False
    planner.release += [victim for victim in chosen if not victim.leaving]
    planner.reserve(task, placement)
    gathered.append((task, chosen))
    return True


def take_from(planner: Planner, gathered: Sequence[tuple[SchedulerTask, list[SchedulerTask]]]) -> None:
    """Let redundant victims keep their slots, and note which task waits for which victims."""
    kept = redundant_victims(planner, planner.release[::-1], [task for task, _ in gathered])
    planner.release = [victim for victim in planner.release if victim.id not in kept]
    for task, chosen in gathered:
        gone = [victim for victim in chosen if victim.id not in kept]
        first = planner.reserved_for
        if first is not None and chosen and not gone:
            detail = f"comes after {planner.name_for(first, task)}, which holds a reservation"
            planner.wait(task, Reason(ReasonCode.BEHIND, detail, behind=first.id))
        else:
            planner.wait(task, planner.wait_for_release(task, gone))


def _beyond_offers(
    planner: Planner, shares: Sequence[_Share], kept: frozenset[str] = frozenset()
) -> list[SchedulerTask]:
    """List the running tasks of jobs beyond their offers, youngest job first, after the tasks that are leaving.

    Tasks on agents that are kept are left out: the slots they give back are not for others.
    """
    released = {task.id for task in planner.release}
    candidates = [task for task in planner.running if task.leaving and not task.aside and kept.isdisjoint(task.on)]
    released |= {task.id for task in candidates}
    for share in reversed(shares):
        held = share.held - sum(task.slots for task in share.running if task.id in released)
        for task in share.running:
            if held <= share.offered:
                break
            if _may_go(task) and task.id not in released and kept.isdisjoint(task.on):
                candidates.append(task)
                held -= task.slots
    return candidates


def _may_go(task: SchedulerTask) -> bool:
    """Whether its slots can be taken. A task that was aged when it started keeps them for a while.

    Otherwise the tasks within their shares, for which it had to wait so long, would take them back in the next pass.
    """
    return task.preemptible and not task.aged


def fill(shares: Sequence[_Share], capacity: int) -> None:
    """Offer the capacity, round by round, until none is left or no job could use it.

    Args:
        shares: Of all jobs, oldest first.
        capacity: Slots, including those that are held.
    """
    for place, share in enumerate(shares):
        share.begin(place)
    left = capacity - sum(share.fixed for share in shares)
    active = sorted((share for share in shares if share.demand > 0), key=attrgetter("demand"))
    jobs = _Filling(active)
    while active:
        offered = jobs.offered(left)
        useless = np.flatnonzero((jobs.held < offered) & (offered < jobs.held + jobs.smallest))
        if not useless.size:
            break
        # One at a time: what the youngest could not use may be enough for the next one.
        number = int(useless[np.argmax(jobs.place[useless])])
        youngest = active.pop(number)
        jobs.leave_out(number)
        youngest.given = min(youngest.held, youngest.demand)
        left -= youngest.offered - youngest.fixed
    for share, given in zip(active, offered.tolist() if active else (), strict=True):
        share.given = given


class _Filling:
    """The jobs that still take part in a filling, in the order in which they are served: a row for each number."""

    def __init__(self, active: Sequence[_Share]) -> None:
        columns = [(share.fixed, share.demand, share.held, share.smallest, share.place) for share in active]
        self._table: _Numbers = np.array(columns, dtype=np.int64).reshape(-1, 5).T
        self._weights = np.array([share.job.weight for share in active], dtype=np.float64)

    @property
    def held(self) -> _Numbers:
        """Slots that each holds."""
        return self._table[2]

    @property
    def smallest(self) -> _Numbers:
        """Slots of each one's smallest pending task."""
        return self._table[3]

    @property
    def place(self) -> _Numbers:
        """Position of each in the order of jobs."""
        return self._table[4]

    def leave_out(self, number: int) -> None:
        """Take a job out."""
        self._table = np.delete(self._table, number, axis=1)
        self._weights = np.delete(self._weights, number)

    def offered(self, left: int) -> _Numbers:
        """Offer so many slots in rounds, until none is left or wanted; return what each was offered."""
        fixed, demand = self._table[:2]
        given = np.zeros_like(demand)
        hungry = np.arange(len(given))
        while left > 0 and hungry.size:
            so_far, weights = given[hungry], self._weights[hungry]
            # With what they hold for good: else the offers would change as soon as some of them had been accepted.
            free = np.maximum(fixed[hungry] - so_far, 0)  # what a job holds for good costs nothing
            parts = (left + free.sum()) * weights / weights.cumsum()[-1]
            offer = np.minimum(np.maximum(parts.astype(np.int64), 1), demand[hungry] - so_far)
            costs = np.maximum(offer - free, 0)
            before = costs.cumsum() - costs
            given[hungry] = so_far + np.minimum(offer, np.maximum(left - before, 0) + free)
            left = max(0, left - int(costs.sum()))
            hungry = hungry[given[hungry] < demand[hungry]]
        return given


def _shares(planner: Planner) -> list[_Share]:
    """List the jobs that have tasks with slots, oldest first."""
    shares: dict[str, _Share] = {}
    for task in (*planner.running, *planner.pending):
        if task.slots == 0 or task.leaving:
            continue  # what leaves is as good as gone: its slots are offered anew
        share = shares.setdefault(task.job, _Share(planner.jobs[task.job]))
        if task.on:
            share.running.append(task)
            share.held += task.slots
            share.fixed += 0 if _may_go(task) else task.slots
        else:
            share.pending.append(task)
    for share in shares.values():
        share.keep(share.pending)
    return sorted(shares.values(), key=lambda share: place_of_job(share.job))


def by_turns(planner: Planner) -> None:
    """Schedule a pool round robin."""
    put_off = start_zero_slot_tasks(planner)
    waiting: dict[str, list[SchedulerTask]] = {}
    for task in planner.pending:
        if task.slots > 0:
            waiting.setdefault(task.job, []).append(task)
    jobs, held = planner.jobs, planner.limits.by_job
    ordered = sorted(waiting, key=lambda name: (held[name] / jobs[name].weight, place_of_job(jobs[name])))
    for tasks in waiting.values():
        tasks.reverse()
    served = _serve_first(planner, waiting)
    heap = [(1 / jobs[name].weight if name in served else 0.0, place, name) for place, name in enumerate(ordered)]
    heap = [one for one in heap if waiting[one[2]]]
    heapify(heap)
    while heap:
        turns, place, name = heap[0]
        task = waiting[name].pop()
        if not planner.allowed(task):
            pass  # the job's next one may belong to somebody else, who may have more
        elif _start_if_it_fits(planner, task):
            turns += 1 / jobs[name].weight
        else:
            if task.aged and planner.reserved_for is None:
                reserve_place(planner, task)
            _wait_behind(planner, task, waiting[name])
        if waiting[name]:
            heapreplace(heap, (turns, place, name))
        else:
            heappop(heap)
    start_later(planner, put_off)


def _serve_first(planner: Planner, waiting: dict[str, list[SchedulerTask]]) -> set[str]:
    """Start aged tasks whose jobs hold nothing, or make a reservation for the oldest.

    Returns:
        The jobs that have had a turn for it.
    """
    holding = {task.job for task in planner.running if task.slots and not task.leaving}
    served: set[str] = set()

    def take(task: SchedulerTask) -> bool:
        waiting[task.job].remove(task)
        if not _start_if_it_fits(planner, task):
            _wait_behind(planner, task, waiting[task.job])
            return False
        holding.add(task.job)
        served.add(task.job)
        return True

    serve_aged(planner, lambda task: task.job not in holding, take)
    return served


def _wait_behind(planner: Planner, task: SchedulerTask, tasks: list[SchedulerTask]) -> None:
    """Make the job's remaining tasks wait, last one first: a job's own tasks do not overtake each other."""
    for later in reversed(tasks):
        planner.wait(later, Reason(ReasonCode.BEHIND, f"comes after {task.id} of the same job", behind=task.id))
    tasks.clear()


def start_zero_slot_tasks(planner: Planner) -> list[SchedulerTask]:
    """Start the tasks without slots that fit; return those to be tried again at the end of the pass.

    They come first, as they take no slots. But other tasks wait for CPUs and memory, too: a task that was requested
    after an aged one does not go ahead of it.
    """
    tasks = [task for task in planner.pending if task.slots == 0]
    since = math.inf
    if any(not task.aside for task in tasks):
        since = min((task.since for task in _aged(planner)), default=math.inf)
    later: list[SchedulerTask] = []
    for task in tasks:
        if task.since > since and not task.aside:
            later.append(task)
        else:
            _start_if_it_fits(planner, task)
    return later


def start_later(planner: Planner, tasks: Sequence[SchedulerTask]) -> None:
    """Start tasks without slots on agents for which no aged task waits for CPUs or memory alone."""
    if not tasks:
        return
    capacity, kept = planner.capacity, set[str]()
    served = {*planner.started, *planner.gathered, *([] if planner.reserved_for is None else [planner.reserved_for.id])}
    waiting = [task for task in _aged(planner) if task.id not in served]
    for task in {capacity.shape(task): task for task in waiting}.values():
        if capacity.fit(task) is None and capacity.fits_but_for_demands(task):
            one = task.single_node or task.slots < 2
            agents = [node.agent for node in capacity.with_slots(task)] if one else capacity.suitable(task)
            kept |= {a.id for a in agents if a.millicpus >= task.millicpus and a.host_memory >= task.memory}
    for task in tasks:
        _start_if_it_fits(planner, task, avoid=frozenset(kept))


def _aged(planner: Planner) -> list[SchedulerTask]:
    """Return aged tasks with slots that request CPUs or memory, and whose jobs may hold more."""
    asking = (task for task in planner.pending if task.aged and task.slots and (task.millicpus or task.memory))
    return [task for task in asking if planner.limits.now(task) is None]


def _start_if_it_fits(planner: Planner, task: SchedulerTask, *, avoid: frozenset[str] = frozenset()) -> bool:
    if not planner.allowed(task):
        return False
    placement = planner.capacity.fit(task, avoid=avoid)
    # What is being released for others may leave more than they need: that is free only when it is left.
    now = None if placement is None else planner.now(task, placement, avoid=avoid)
    if now is None:
        planner.wait(task, next_in_line=not avoid and planner.reserved_for is None)
        return False
    planner.start(task, now)
    return True
