"""The recent requests of each user, and the refusal of those above a limit. No I/O: the caller passes the time."""

from __future__ import annotations

from collections.abc import Collection

from detlab_hub.services.base.callers import AgentCaller, Caller, EnrolCaller, HubCaller, TaskCaller
from detlab_hub.services.base.limits.bucket import Buckets
from detlab_hub.services.base.limits.hits import Hits
from detlab_hub.services.base.limits.model import GIB, PerUserLimits
from detlab_hub.services.base.limits.output import OutputRates
from detlab_hub.services.base.limits.reached import TooFast
from detlab_hub.store import Clock

DAY = 86400.0
_NO_GROUPS: frozenset[str] = frozenset()


class Limiter:
    """Counts by user, and by running task.

    Args:
        limits: The operator's limits.
        clock: Returns seconds since the epoch.
    """

    def __init__(self, limits: PerUserLimits, clock: Clock) -> None:
        self.limits = limits
        self.hits = Hits()
        self._clock = clock
        self.requests: Buckets[str] = Buckets(limits.requests_per_second, limits.requests_burst)
        self.task_requests: Buckets[str] = Buckets(limits.task_requests_per_second, limits.task_requests_burst)
        self.by_minute: Buckets[str] = Buckets(limits.submissions_per_minute / 60, limits.submissions_per_minute)
        self.by_hour: Buckets[str] = Buckets(limits.submissions_per_hour / 3600, limits.submissions_per_hour)
        self.output = OutputRates(limits)
        self._uploaded: dict[str, float] = {}
        """Bytes by user of the day below."""
        self._day = -1

    # --- rates

    def request(self, caller: Caller | TaskCaller | AgentCaller | EnrolCaller | HubCaller) -> None:
        """Count a request. Agents and the Hub act for all users: they are not limited.

        Raises:
            TooFast: Too many lately.
        """
        limits, now = self.limits, self._clock()
        match caller:
            case Caller(name=name, groups=groups) if limits.requests_per_second and limits.binds(name, groups):
                wait = self.requests.take(name, now)
                rate, burst, setting = limits.requests_per_second, limits.requests_burst, "requests_per_second"
                who = f"{name} sends"
            case TaskCaller(allocation_id=name) if limits.task_requests_per_second:
                wait = self.task_requests.take(name, now)
                rate, burst = limits.task_requests_per_second, limits.task_requests_burst
                setting, who = "task_requests_per_second", f"task {name} sends"
            case _:
                return
        if wait:
            message = f"{who} more than {rate:g} requests a second, and {burst:,} in a burst: the limit"
            user = name if isinstance(caller, Caller) else f"task {name}"
            raise TooFast("requests", user, setting, message, wait)

    def submission(self, user: str, groups: Collection[str] = _NO_GROUPS) -> None:
        """Count an experiment or a task that is submitted.

        Raises:
            TooFast: Too many lately.
        """
        limits, now = self.limits, self._clock()
        if not limits.binds(user, groups):
            return
        kinds = (
            (self.by_minute, limits.submissions_per_minute, "minute", "submissions_per_minute"),
            (self.by_hour, limits.submissions_per_hour, "hour", "submissions_per_hour"),
        )
        for buckets, most, period, setting in kinds:
            if most and (wait := buckets.take(user, now)):
                message = (
                    f"{user} has submitted {most:,} experiments and tasks within a {period}, the most that one may"
                )
                raise TooFast("submissions", user, setting, message, wait)

    # --- bytes

    def uploaded(self, user: str) -> float | None:
        """Return the bytes that a user has uploaded today; None: not known since the master started."""
        day = int(self._clock() // DAY)
        if day != self._day:
            fresh = self._day >= 0
            self._uploaded = dict.fromkeys(self._uploaded, 0.0) if fresh else {}
            self._day = day
        return self._uploaded.get(user)

    def uploads(self) -> dict[str, float]:
        """Return the bytes of today by user, as far as they are known."""
        self.uploaded("")
        return {user: size for user, size in self._uploaded.items() if size}

    @property
    def day_began(self) -> float:
        """The start of the day whose uploads are counted, in seconds since the epoch."""
        return self._clock() // DAY * DAY

    def know_uploaded(self, user: str, size: float) -> None:
        """Set how much a user had uploaded today before this master started, in bytes."""
        if self.uploaded(user) is None:
            self._uploaded[user] = size

    def upload(self, user: str, groups: Collection[str], size: int) -> None:
        """Refuse an upload that is too much for today; else count it.

        Raises:
            TooFast: It is.
        """
        most, used = self.limits.upload_gb_per_day * GIB, self.uploaded(user) or 0.0
        if most and used + size > most and self.limits.binds(user, groups):
            message = (
                f"{user} has uploaded {used / GIB:,.2f} GB of code and outputs today, and this has"
                f" {size / GIB:,.2f} GB; one may upload {most / GIB:,g} GB a day"
            )
            raise TooFast("upload", user, "upload_gb_per_day", message, self.day_began + DAY - self._clock())
        self._uploaded[user] = used + size
