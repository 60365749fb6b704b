"""How an attempt ends, from how its parts end: one on each of its nodes, and often only one. Pure.

All or nothing: a part that fails, is refused or is lost ends the others, and the attempt is over once all have ended.
Until then it holds the slots of all, so that a slot has one owner (I2).
"""

from __future__ import annotations

from collections.abc import Iterable

from detlab_hub.core.lifecycle.allocation import EndKind

_BREAKING = frozenset({EndKind.LOST, EndKind.REFUSED, EndKind.FAILED})
_ORDER = (EndKind.LOST, EndKind.REFUSED, EndKind.FAILED, EndKind.KILLED, EndKind.PREEMPTED, EndKind.FINISHED)
"""Whose end is that of the attempt. A lost node comes first: the failures of others are for want of it, and what was
lost is not counted as the trial's own failure. A part that was saved and left decides only if all others ended well."""


def breaks(end: EndKind) -> bool:
    """Whether a part that ended this way ends the others."""
    return end in _BREAKING


def verdict(ends: Iterable[EndKind]) -> EndKind:
    """Return how an attempt ended, from its parts; each is evaluated at its own time (what we killed is KILLED).

    Raises:
        ValueError: It had no parts.
    """
    return min(ends, key=_ORDER.index)
