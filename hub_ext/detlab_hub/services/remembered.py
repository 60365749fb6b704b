"""What a scheduling pass remembers of the one before: the tasks that it made of the rows."""

from __future__ import annotations

from typing import Any

from detlab_hub.core.scheduling import Task


class KnownTasks:
    """The tasks of the pass before: one that is as it was is the same object again.

    Thousands wait, and from one pass to the next few are new. To make a task of a row takes longer than all that a pass
    asks of it.
    """

    def __init__(self) -> None:
        self._before: dict[str, tuple[tuple[Any, ...], Task]] = {}
        self._now: dict[str, tuple[tuple[Any, ...], Task]] = {}

    def begin(self) -> None:
        """Another pass: what the last one did not see is forgotten."""
        self._before, self._now = self._now, {}

    def get(self, name: str, made_of: tuple[Any, ...]) -> Task | None:
        """The task if it was made of the same."""
        known = self._before.get(name)
        if known is None or known[0] != made_of:
            return None
        self._now[name] = known
        return known[1]

    def keep(self, made_of: tuple[Any, ...], task: Task) -> Task:
        """Know a task in the next pass, too."""
        self._now[task.id] = made_of, task
        return task
