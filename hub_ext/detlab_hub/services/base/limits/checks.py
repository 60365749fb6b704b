"""Limits that are checked against the database: how much a user has, and which priority may be given. Pure."""

from __future__ import annotations

from collections.abc import Collection

from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.base.access import administers
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.limits.model import PerUserLimits
from detlab_hub.services.base.limits.reached import NotAllowed, TooMany


def check_queued(limits: PerUserLimits, user: str, groups: Collection[str], jobs: int) -> None:
    """Refuse another job of a user with as many jobs that have not ended as the limit.

    Raises:
        TooMany: As many as one may have.
    """
    most = limits.queued_jobs
    if most and jobs >= most and limits.binds(user, groups):
        message = f"{user} has {jobs:,} experiments and tasks that have not ended; one may have {most:,}"
        raise TooMany("queued_jobs", user, "queued_jobs", message, "End some, or wait until some have ended")


def check_schedules(limits: PerUserLimits, user: str, groups: Collection[str], schedules: int) -> None:
    """Refuse another schedule of a user with as many as the limit.

    Raises:
        TooMany: As many as one may have.
    """
    most = limits.schedules
    if most and schedules >= most and limits.binds(user, groups):
        message = f"{user} has {schedules:,} schedules; one may have {most:,}"
        raise TooMany("schedules", user, "schedules", message, "Remove some: det schedule list")


def check_priority(limits: PerUserLimits, caller: Caller, priority: int | None, default: int) -> None:
    """Refuse a priority that is better than users may give; the pool's own is always allowed.

    Args:
        limits: The operator's limits.
        caller: Who sets the priority.
        priority: The priority; None: the pool's own.
        default: The pool's own.

    Raises:
        NotAllowed: It is better, and the caller is not an administrator.
    """
    best = min(limits.min_priority, default)
    if (
        priority is None
        or priority >= best
        or administers(caller, ObjectKind.JOB)
        or not limits.binds(caller.name, caller.groups)
    ):
        return
    message = f"priority {priority} is for administrators: {caller.name} may give {best} to 99 (smaller comes first)"
    raise NotAllowed("priority", caller.name, "min_priority", message, f"Give {best} or more")
