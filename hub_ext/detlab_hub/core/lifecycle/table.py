"""The one table of state transitions, for experiments and trials alike, and the order of allocation states.

A stopping state only degrades (COMPLETED < CANCELED < KILLED < ERROR), a terminal state is left only when a user has it
continue, an allocation never goes back. Semantics: Determined 0.38.1, `master/pkg/model/experiment.go`.
"""

from __future__ import annotations

from detlab.schemas.wire import AllocationState

STOPPING_ORDER = ("STOPPING_COMPLETED", "STOPPING_CANCELED", "STOPPING_KILLED", "STOPPING_ERROR")

TERMINAL_OF = {
    "STOPPING_COMPLETED": "COMPLETED",
    "STOPPING_CANCELED": "CANCELED",
    "STOPPING_KILLED": "CANCELED",
    "STOPPING_ERROR": "ERROR",
}

TRANSITIONS: dict[str, frozenset[str]] = {
    "ACTIVE": frozenset({"PAUSED", *STOPPING_ORDER, "COMPLETED", "CANCELED", "ERROR"}),
    "PAUSED": frozenset({"ACTIVE", *STOPPING_ORDER, "COMPLETED", "CANCELED", "ERROR"}),
    "STOPPING_COMPLETED": frozenset({*STOPPING_ORDER[1:], "COMPLETED", "ERROR"}),
    "STOPPING_CANCELED": frozenset({*STOPPING_ORDER[2:], "CANCELED", "ERROR"}),
    "STOPPING_KILLED": frozenset({*STOPPING_ORDER[3:], "CANCELED", "ERROR"}),
    "STOPPING_ERROR": frozenset({"ERROR"}),
    "COMPLETED": frozenset({"ACTIVE", "PAUSED", "DELETING"}),
    "CANCELED": frozenset({"ACTIVE", "PAUSED", "DELETING"}),
    "ERROR": frozenset({"ACTIVE", "PAUSED", "DELETING"}),
    "DELETING": frozenset({"DELETED"}),
    "DELETED": frozenset(),
}
"""Where each state may go. From their ends back only if a user continues them: an experiment becomes ACTIVE, its trials
are PAUSED until the search resumes them. Trials never reach DELETING: they are deleted with their experiment."""

ALLOCATION_ORDER = tuple(AllocationState)
"""The order of an allocation's states; any step forward is allowed, none back."""


class IllegalTransitionError(ValueError):
    """A transition that the table does not have: a bug, never a user's error."""


def check_move(old: str, new: str) -> None:
    """Check a transition of an experiment or trial against the table.

    Raises:
        IllegalTransitionError: If the table has no such transition; staying is always allowed.
    """
    if old != new and new not in TRANSITIONS[old]:
        raise IllegalTransitionError(f"{old} cannot become {new}")


def check_progress(old: AllocationState, new: AllocationState) -> None:
    """Check that an allocation does not go back.

    Raises:
        IllegalTransitionError: If `new` comes before `old`.
    """
    if ALLOCATION_ORDER.index(new) < ALLOCATION_ORDER.index(old):
        raise IllegalTransitionError(f"an allocation cannot go from {old} back to {new}")


def degrade(state: str, wanted: str) -> str:
    """Return the stopping state after `wanted` is requested in `state`: the worse of the two."""
    if state not in STOPPING_ORDER:
        return wanted
    return max(state, wanted, key=STOPPING_ORDER.index)


def is_stopping(state: str) -> bool:
    """Whether a state is one of the STOPPING states."""
    return state in STOPPING_ORDER
