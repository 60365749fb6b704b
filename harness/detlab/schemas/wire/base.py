"""The wire's own language: its version, floats that JSON has no word for, and the states of things."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from detlab.schemas.building import ON_FIRST_USE

PROTOCOL = 1
SERVICE_PREFIX = "/services/detlab/"

ADMIN_ROLE = "detlab-admin"
"""The Hub's role of those who administer detlab: the Hub's own role `admin` cannot hold scopes of services."""

ADMIN_GROUP = "detlab-admins"
"""The Hub's group whose members have that role. Only administrators of the Hub can put somebody into it."""
API_PREFIX = "api/v1/"

_NONFINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def encode_floats(value: Any) -> Any:
    """Replace non-finite floats, at any depth, by their names, so that strict JSON can carry them."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {key: encode_floats(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode_floats(item) for item in value]
    return value


def decode_float(value: Any) -> float | None:
    """Return the float that a JSON scalar stands for, or None if it is not a number (bool counts as 0/1)."""
    if isinstance(value, str):
        return _NONFINITE.get(value)
    if isinstance(value, int | float):
        return float(value)
    return None


class Wire(BaseModel):
    """Base of all wire models: unknown keys are ignored (additive protocol)."""

    model_config = ConfigDict(extra="ignore", ser_json_inf_nan="strings", defer_build=ON_FIRST_USE)


class PersonRequest(Wire):
    """Base of what a person's token may send: a key that is not declared is refused, never passed over.

    What the master alone decides (`owner`, `hold`, `uid` …) is in no such model. Tasks, agents and spawners may be of a
    newer version than the master, so that their bodies are plain `Wire`: unknown keys are passed over, read by nobody.
    """

    model_config = ConfigDict(extra="forbid")


class _WorkState(StrEnum):
    @property
    def terminal(self) -> bool:
        """Whether no more work will be done."""
        return self.value in {"COMPLETED", "CANCELED", "ERROR", "DELETED"}


class ExperimentState(_WorkState):
    """Where an experiment stands (Determined's names)."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    STOPPING_ERROR = "STOPPING_ERROR"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"
    DELETING = "DELETING"
    DELETED = "DELETED"


class TrialState(_WorkState):
    """Where a trial stands; what its allocation does is in `AllocationState`."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    STOPPING_ERROR = "STOPPING_ERROR"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"


class AllocationState(StrEnum):
    """Progress of one attempt, in order; it never goes back."""

    PENDING = "PENDING"
    ASSIGNED = "ASSIGNED"
    PULLING = "PULLING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"


class EndReason(StrEnum):
    """Why a trial ended, for people; shown in views beside its state."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    CANCELED = "canceled"
    KILLED = "killed"
    INVALID_HP = "invalid_hp"
    ERROR = "error"
    NO_METRICS = "no_metrics"
    MAX_TIME = "max_time"
    """An attempt reached its maximum time (`resources.max_time`)."""
