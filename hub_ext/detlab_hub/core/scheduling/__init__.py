"""Placement as a pure function: `schedule(snapshot)` gives what starts now and why everything else waits."""

from detlab_hub.core.scheduling.model import (
    DEFAULT_PRIORITY,
    MAX_ZERO_SLOT_TASKS,
    AgentView,
    Assignment,
    Plan,
    Reason,
    ReasonCode,
    Request,
    Snapshot,
)
from detlab_hub.core.scheduling.scheduler import could_run, impossible, schedule

__all__ = [
    "DEFAULT_PRIORITY",
    "MAX_ZERO_SLOT_TASKS",
    "AgentView",
    "Assignment",
    "Plan",
    "Reason",
    "ReasonCode",
    "Request",
    "Snapshot",
    "could_run",
    "impossible",
    "schedule",
]
