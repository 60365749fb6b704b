"""The limits of one user: their names, values and descriptions. Read by all, changed by the operator only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields
from typing import Any

MIB = 1024 * 1024
GIB = 1024 * MIB


def _limit(default: float, unit: str, about: str, *, burst: bool = False) -> Any:
    return field(default=default, metadata={"unit": unit, "about": about, "burst": burst})


@dataclass(frozen=True)
class PerUserLimits:
    """The limits of one user; 0 means without limit. `c.UserLimits` in the master's configuration sets them."""

    requests_per_second: float = _limit(200.0, "requests/s", "Requests of a user, in the long run")
    requests_burst: int = _limit(2000, "requests", "Burst of requests of a user", burst=True)
    task_requests_per_second: float = _limit(
        500.0, "requests/s", "Requests of one running task by its own token, in the long run"
    )
    task_requests_burst: int = _limit(10_000, "requests", "Burst of requests of one running task", burst=True)
    submissions_per_minute: int = _limit(120, "jobs/min", "Experiments and tasks that a user submits in a minute")
    submissions_per_hour: int = _limit(2000, "jobs/h", "Experiments and tasks that a user submits in an hour")
    queued_jobs: int = _limit(1000, "jobs", "Experiments and tasks of a user that have not ended")
    schedules: int = _limit(50, "schedules", "Schedules of a user that may still start runs")
    zero_slot_tasks: int = _limit(50, "tasks", "Tasks and trials without slots of a user that run at a time in a pool")
    open_streams: int = _limit(100, "streams", "Streams of events and output that a user has open")
    upload_gb_per_day: float = _limit(100.0, "GB/day", "Code and outputs that a user uploads in a day (UTC)")
    metric_names: int = _limit(5000, "names", "Names of metrics of one trial, all groups together")
    log_lines_per_second: float = _limit(2000.0, "lines/s", "Lines that one task writes, in the long run")
    log_lines_burst: int = _limit(1_000_000, "lines", "Burst of lines that one task writes", burst=True)
    log_kb_per_second: float = _limit(512.0, "kB/s", "Output that one task writes, in the long run")
    log_burst_mb: int = _limit(256, "MB", "Burst of output that one task writes", burst=True)
    min_priority: int = _limit(10, "priority", "The best priority that a user may give (a smaller number comes first)")
    exempt_users: Collection[str] = ()
    """Users whom none of these bind."""
    exempt_groups: Collection[str] = ()
    """Groups of the Hub whose users none of these bind."""

    def binds(self, user: str, groups: Collection[str] = ()) -> bool:
        """Whether a user is not exempt."""
        return user not in self.exempt_users and not set(groups) & set(self.exempt_groups)

    @classmethod
    def unlimited(cls) -> PerUserLimits:
        """Return limits without any bound."""
        values: dict[str, Any] = {one.name: 0 for one in fields(cls) if one.metadata}
        return cls(**values)
