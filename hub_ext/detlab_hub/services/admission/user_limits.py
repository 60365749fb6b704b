"""The views of limits: each with its value, and the users at or near it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

from sqlalchemy.orm import Session

from detlab.schemas.jobwire import LimitList, LimitUse, LimitView
from detlab_hub.core.rights import ObjectKind
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import knows, person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.limits.limiter import Limiter
from detlab_hub.services.base.limits.model import GIB, PerUserLimits
from detlab_hub.services.base.limits.reached import PREFIX, Reached
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.queries import limits as counts
from detlab_hub.store.queries.tasks import schedules
from detlab_hub.store.tables import AllocationRow

NEAR = 0.5
"""Users above this part of a limit are shown."""
MOST_SHOWN = 20
"""Users of one limit, those who use most of it first."""
SETTINGS_OF = {
    "requests": "requests_per_second",
    "task_requests": "task_requests_per_second",
    "submissions_minute": "submissions_per_minute",
    "submissions": "submissions_per_hour",
    "queued_jobs": "queued_jobs",
    "schedules": "schedules",
    "zero_slot_tasks": "zero_slot_tasks",
    "streams": "open_streams",
    "upload": "upload_gb_per_day",
    "metric_names": "metric_names",
    "log_rate": "log_lines_per_second",
    "log_bytes": "log_kb_per_second",
    "priority": "min_priority",
}
"""Each limit's name in the code, and the setting that changes it."""
ACTION = "limit.reached"


class UserLimits(Service):
    """Use cases of limits."""

    @property
    def limiter(self) -> Limiter:
        """The counter of users' requests."""
        return self._context.limiter

    def note(self, error: Reached) -> None:
        """Count a refusal by a limit."""
        self.limiter.hits.note(error.limited_user, error.code.removeprefix(PREFIX), self._context.clock())

    async def write_hits(self) -> None:
        """Write reached limits to the audit log: once an hour for each user and limit."""
        due = self.limiter.hits.due(self._context.clock())
        if not due:
            return

        def append(unit: UnitOfWork) -> None:
            for user, name, count in due:
                times = "once" if count == 1 else f"{count:,} times"
                actor = _owner_of(unit.session, user)
                said = _said_of(self._context.settings.limits, name)
                audit.note(unit, actor, ACTION, f"limit {name}", f"{times}; {said}")

        await self._context.write(append)

    async def list(self, caller: Caller) -> LimitList:
        """Return the limits, with the users at or near each: all to administrators, else only the caller."""
        viewer = person(caller)

        def read(s: Session) -> tuple[dict[str, Mapping[str, float]], dict[str, str]]:
            used: dict[str, Mapping[str, float]] = {
                "queued_jobs": counts.live_jobs_by_owner(s, viewer),
                "schedules": schedules.counts_by_owner(s, viewer),
                "zero_slot_tasks": counts.zero_slot_tasks_by_owner(s, viewer),
            }
            tasks = {user for name in SETTINGS_OF for user in self.limiter.hits.of(name) if user.startswith(_TASK)}
            return used, {user: _owner_of(s, user) for user in tasks}

        used, owner_of = await self._context.read(read)
        used |= self._counted()
        views = [
            self._view(caller, name, setting, used.get(name, {}), owner_of) for name, setting in SETTINGS_OF.items()
        ]
        exempt = [
            user for user in sorted(self._context.settings.limits.exempt_users) if knows(caller, ObjectKind.USER, user)
        ]
        return LimitList(items=views, exempt_users=exempt)

    def _counted(self) -> dict[str, Mapping[str, float]]:
        limiter, now = self.limiter, self._context.clock()
        return {
            "requests": limiter.requests.used(now),
            "submissions_minute": limiter.by_minute.used(now),
            "submissions": limiter.by_hour.used(now),
            "upload": {user: size / GIB for user, size in limiter.uploads().items()},
        }

    def _view(
        self, caller: Caller, name: str, setting: str, used: Mapping[str, float], owner_of: Mapping[str, str]
    ) -> LimitView:
        limits = self._context.settings.limits
        value = float(getattr(limits, setting))
        most = float(limits.requests_burst) if name == "requests" else value
        about = next(one.metadata for one in fields(PerUserLimits) if one.name == setting)
        users = {user: LimitUse(user=user, used=much) for user, much in used.items() if most and much >= NEAR * most}
        for who, hit in self.limiter.hits.of(name).items():
            user = owner_of.get(who, who)
            known = users.setdefault(user, LimitUse(user=user, used=used.get(user)))
            known.hits += hit.count
            known.last_hit = max(known.last_hit or 0.0, hit.last)
        known_to = [one for one in users.values() if knows(caller, ObjectKind.USER, one.user)]
        shown = sorted(known_to, key=lambda one: (-(one.used or 0.0), -one.hits, one.user))[:MOST_SHOWN]
        return LimitView(
            name=name,
            setting=setting,
            value=value or None,
            most=most or None,
            unit=about["unit"],
            about=about["about"],
            users=shown,
        )


_TASK = "task "


def _owner_of(s: Session, who: str) -> str:
    """Return the user behind `task ALLOCATION`; any other name is returned as it is."""
    if not who.startswith(_TASK):
        return who
    row = s.get(AllocationRow, who.removeprefix(_TASK))
    return who if row is None else row.owner


def _said_of(limits: PerUserLimits, name: str) -> str:
    setting = SETTINGS_OF.get(name, name)
    value = getattr(limits, setting, None)
    return f"c.UserLimits.{setting}" + ("" if value is None else f" = {value:g}")


def settings() -> Sequence[tuple[str, float, str, str]]:
    """Return (setting, default, unit, what it limits) of each limit, as the reference page has them."""
    made = PerUserLimits()
    return [
        (one.name, float(getattr(made, one.name)), one.metadata["unit"], one.metadata["about"])
        for one in fields(PerUserLimits)
        if one.metadata
    ]
