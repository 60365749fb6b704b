"""When a schedule fires: cron expressions and their next times in a time zone.

Pure: no clock, no rows; time zones come from the caller.
"""

from __future__ import annotations

from detlab_hub.core.schedules.cron import Cron, CronError, next_time

__all__ = ["Cron", "CronError", "next_time"]
