"""Elastic pools as a pure function: how many instances to launch, and which to end.

`decide(situation, history, limits)` returns what to do now, why, and what to remember until the next call.
"""

from detlab_hub.core.provisioning.decision import decide
from detlab_hub.core.provisioning.model import (
    Awaited,
    Decision,
    Ending,
    EndReason,
    History,
    HoldReason,
    Instance,
    InstanceState,
    Limits,
    Situation,
)
from detlab_hub.core.provisioning.pace import launch_failed, launched
from detlab_hub.core.provisioning.shape import Shape, largest, measured, with_shape

__all__ = [
    "Awaited",
    "Decision",
    "EndReason",
    "Ending",
    "History",
    "HoldReason",
    "Instance",
    "InstanceState",
    "Limits",
    "Shape",
    "Situation",
    "decide",
    "largest",
    "launch_failed",
    "launched",
    "measured",
    "with_shape",
]
