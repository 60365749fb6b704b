"""Connections after a fork: a child that used its parent's would read the parent's answers, and the parent the child's.

Objects that hold some are made known by `renew_in_children`. In each child of this process they forget what they hold
before any other code runs there; nothing is closed, since a goodbye would travel over the parent's connection.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, Protocol


class Renewable(Protocol):
    """Holds connections, or locks that another thread may hold at the time of a fork."""

    def forget_connections(self) -> object:
        """Forget connections and locks, and return what was held, so that it is not closed."""


_known: weakref.WeakSet[Any] = weakref.WeakSet()
_parents: list[object] = []
"""What belongs to the parent; kept, because garbage collection would close it."""


def renew_in_children(one: Renewable) -> None:
    """Have an object forget its connections in each child of this process.

    Args:
        one: Is known as long as it lives.
    """
    _known.add(one)


def _in_child() -> None:
    for one in list(_known):
        _parents.append(one.forget_connections())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
