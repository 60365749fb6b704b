"""Fair share without what makes it fast: each filling sums what waits, and begins anew for each that stands back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from detlab_hub.core.scheduling import AgentState, Job, PlacementDecision, Reason, ReasonCode, SchedulerTask, Snapshot
from detlab_hub.core.scheduling.fair_share import (
    _beyond_offers,
    _may_go,
    start_later,
    start_or_reserve,
    start_zero_slot_tasks,
    take_from,
)
from detlab_hub.core.scheduling.limits import count_slots
from detlab_hub.core.scheduling.order import place_of_job
from detlab_hub.core.scheduling.planner import Planner
from detlab_hub.core.scheduling.preemption.victims import Victims
from detlab_hub.core.scheduling.reservation import reserve_place


@dataclass
class PlainShare:
    """A job in the filling."""

    job: Job
    pending: list[SchedulerTask] = field(default_factory=list)
    running: list[SchedulerTask] = field(default_factory=list)
    held: int = 0
    fixed: int = 0
    given: int = 0
    stands_back: bool = False

    @property
    def demand(self) -> int:
        """Slots that it could use."""
        wanted = self.held + sum(task.slots for task in self.pending)
        return wanted if self.job.max_slots is None else max(self.fixed, min(wanted, self.job.max_slots))

    @property
    def offered(self) -> int:
        """Slots that it may hold."""
        return max(self.fixed, self.given)

    @property
    def cannot_use(self) -> int:
        """Slots that it was offered, does not hold, and has no task for."""
        if not self.pending or not self.held < self.offered < self.held + min(task.slots for task in self.pending):
            return 0
        return self.offered - self.held


def plain_fair_share(snapshot: Snapshot) -> PlacementDecision:
    """Schedule a pool by shares."""
    planner = Planner(snapshot)
    put_off = start_zero_slot_tasks(planner)
    shares = _shares(planner)
    enabled = {agent.id for agent in planner.agents if agent.state is AgentState.ENABLED}
    capacity = sum(agent.slots for agent in planner.agents if agent.id in enabled)
    staying = [task for task in planner.running if not task.leaving]
    capacity += sum(n for task in staying for name, n in task.on.items() if name not in enabled)
    gathered: list[tuple[SchedulerTask, list[SchedulerTask]]] = []
    plain_fill(shares, capacity)
    kept = _serve_aged(planner, shares, gathered)
    repeat = True
    while repeat:
        plain_fill(shares, capacity)
        victims = Victims(planner.capacity, _beyond_offers(planner, shares, kept))  # type: ignore[arg-type]  # alike
        repeat = False
        for share in shares:
            for task in share.pending.copy():
                if share.held + task.slots > share.offered:
                    continue
                share.pending.remove(task)
                repeat = True
                if planner.allowed(task) and start_or_reserve(planner, task, victims, gathered):
                    share.held += task.slots
                    share.fixed += task.slots
    for share in shares:
        for task in share.pending:
            detail = (
                f"{share.job.id} holds or gets {count_slots(share.held)}; its share of {capacity} is {share.offered}"
            )
            planner.wait(task, Reason(ReasonCode.FAIR_SHARE, detail))
    take_from(planner, gathered)
    start_later(planner, put_off)
    return planner.decision()


def _serve_aged(
    planner: Planner, shares: Sequence[PlainShare], gathered: list[tuple[SchedulerTask, list[SchedulerTask]]]
) -> frozenset[str]:
    """The first of all that have waited for too long, by when they came; then the next, until one does not start."""
    victims = Victims(planner.capacity, _beyond_offers(planner, shares))  # type: ignore[arg-type]  # alike
    passed = set[str]()
    while True:
        late = [
            (task.since, planner.pending.index(task), task, share)
            for share in shares
            for task in share.pending
            if task.aged and task.id not in passed
        ]
        if not late:
            return frozenset()
        _, _, task, share = min(late, key=lambda one: one[:2])
        passed.add(task.id)
        if planner.limits.now(task) or (share.held and share.held + task.slots > share.offered):
            continue
        share.pending.remove(task)
        if not start_or_reserve(planner, task, victims, gathered):
            return reserve_place(planner, task)
        share.held += task.slots
        share.fixed += task.slots
        if task.id not in planner.started:
            return frozenset()


def plain_fill(shares: Sequence[PlainShare], capacity: int) -> None:
    """Offer the capacity, round by round, until none is left or no job could use it."""
    ordered = sorted(shares, key=lambda share: (share.demand, place_of_job(share.job)))
    for share in shares:
        share.stands_back = False
    while True:
        left = capacity - sum(share.fixed for share in shares)
        for share in shares:
            share.given = min(share.held, share.demand) if share.stands_back else 0
            left -= share.offered - share.fixed
        _rounds(ordered, left)
        useless = [share for share in ordered if not share.stands_back and share.cannot_use]
        if not useless:
            return
        max(useless, key=lambda share: place_of_job(share.job)).stands_back = True


def _rounds(ordered: Sequence[PlainShare], left: int) -> None:
    while left > 0:
        hungry = [share for share in ordered if not share.stands_back and share.given < share.demand]
        if not hungry:
            return
        weights = sum(share.job.weight for share in hungry)
        start = left + sum(max(0, share.fixed - share.given) for share in hungry)
        for share in hungry:
            before = share.offered
            most = before + left - share.given
            offer = min(max(1, int(start * share.job.weight / weights)), share.demand - share.given, most)
            share.given += offer
            left -= share.offered - before


def _shares(planner: Planner) -> list[PlainShare]:
    shares: dict[str, PlainShare] = {}
    for task in (*planner.running, *planner.pending):
        if task.slots == 0 or task.leaving:
            continue
        share = shares.setdefault(task.job, PlainShare(planner.jobs[task.job]))
        if task.on:
            share.running.append(task)
            share.held += task.slots
            share.fixed += 0 if _may_go(task) else task.slots
        else:
            share.pending.append(task)
    return sorted(shares.values(), key=lambda share: place_of_job(share.job))
