"""Elastic pools as a pure function: how many instances to launch, and which to end.

`decide(situation, history, limits)` returns what to do now, why, and what to remember until the next call.
"""

from detlab_hub.core.provisioning.decision import decide
from detlab_hub.core.provisioning.model import (
    Awaited,
    HoldReason,
    Instance,
    InstanceEnding,
    InstanceEndReason,
    InstanceState,
    PoolHistory,
    PoolLimits,
    ProvisioningDecision,
    Situation,
)
from detlab_hub.core.provisioning.pace import launch_failed, launched
from detlab_hub.core.provisioning.shape import InstanceShape, largest, measured, with_shape
