"""Pending tasks, in the scheduler's order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sqlalchemy.orm import Session

from detlab.schemas.taskwire import QueueItem, QueueView
from detlab_hub.core.rights import ObjectKind
from detlab_hub.core.scheduling import Scheduler
from detlab_hub.services.base.access import knows, owns
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.lifecycle.accounting import TRIAL
from detlab_hub.services.views.experiment_views import Reasons
from detlab_hub.store.queries import jobs
from detlab_hub.store.queries.jobs import Live

LIMIT = 1000
"""Most items of all users in one reply, and most of the caller's own: the first of each pool."""
ANOTHER_USER = "another user"
"""Shown in place of a user whose name the caller may not see."""


class Queue(Service):
    """The one list of trials and user tasks that wait, of all pools."""

    async def view(self, caller: Caller) -> QueueView:
        """Return the queue. Of tasks that the caller may not read (I9) only position, size and age are shown."""
        return QueueView(items=await self._context.look(caller.name, lambda s: items(s, caller, self._context)))


def by_priority(settings: Settings, pool: str) -> bool:
    """Whether a pool has one queue for each priority."""
    known = settings.pools.of(pool)
    return known is None or known.rules.scheduler is Scheduler.PRIORITY


def items(s: Session, caller: Caller, context: ServiceContext, limit: int = LIMIT) -> list[QueueItem]:
    """Return the queue as a caller may see it.

    Positions are those in the pool: other pools do not block it.

    Args:
        s: A session.
        caller: Who looks.
        context: What the services share.
        limit: Most items of all users, and most of the caller's own: the first of each pool.
    """
    settings, reasons = context.settings, context.pending_reasons
    ranked: dict[str, bool] = {}

    def key(one: Live) -> tuple[int, float, float, int, str]:
        if one.pool not in ranked:
            ranked[one.pool] = by_priority(settings, one.pool)
        return rank(one, by_priority=ranked[one.pool])

    waiting = sorted(jobs.live(s, pending_only=True), key=key)
    of_all = shares(Counter(one.pool for one in waiting), limit)
    of_own = shares(Counter(one.pool for one in waiting if owns(caller, one.owner)), limit)
    shown = []
    places: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for one in waiting:
        places[one.pool] += 1
        mine = owns(caller, one.owner)
        own[one.pool] += mine
        if places[one.pool] <= of_all[one.pool] or (mine and own[one.pool] <= of_own[one.pool]):
            shown.append(_item(one, places[one.pool], caller, reasons))
    return shown


def shares(wanted: Mapping[str, int], limit: int) -> dict[str, int]:
    """Return how many items each pool may show: equal parts of `limit`; what one pool does not need goes to the others.

    Pools are not ranked with each other: where one goes by priority and one by shares, no order of both is right.
    """
    given: dict[str, int] = {}
    left = limit
    for pools_left, pool in zip(range(len(wanted), 0, -1), sorted(wanted, key=lambda name: wanted[name]), strict=True):
        given[pool] = min(wanted[pool], -(-left // pools_left))
        left -= given[pool]
    return given


def rank(one: Live, *, by_priority: bool) -> tuple[int, float, float, int, str]:
    """Return the scheduler's sort key: priority (in pools that use it), the job's position, the task's own order."""
    moved = one.submitted_at if one.position is None else one.position
    return one.priority if by_priority else 0, moved, one.submitted_at, one.idx or 0, one.allocation_id


def _item(one: Live, place: int, caller: Caller, reasons: Reasons) -> QueueItem:
    public = QueueItem(
        allocation_id=f"place {place} in {one.pool}",
        place=place,
        kind=one.kind or TRIAL,
        owner=ANOTHER_USER,
        pool=one.pool,
        slots=one.slots_needed,
        priority=one.priority,
        weight=one.weight,
        requested_at=one.requested_at,
    )
    if not knows(caller, ObjectKind.JOB, one.owner):
        return public
    told = {
        "allocation_id": one.allocation_id,
        "owner": one.owner,
        "mine": owns(caller, one.owner),
        "name": one.name,
        "experiment_id": one.experiment_id,
        "trial_id": one.trial_id,
        "task_id": one.task_id,
        "reason": reasons.get(one.allocation_id, ""),
    }
    return public.model_copy(update=told)
