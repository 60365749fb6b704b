"""What agents measure of their GPUs: since when those of a task do nothing, as far as that is known.

What is not known is not idle: a GPU that its agent does not measure (a MIG device, another driver), a report that is
missing or late, a clock that jumps, and all of the time before this master started. Shares of a device are measured
together: they do nothing while all of the device does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from detlab.schemas.shares import device_of

MOST_GAP = 60.0
"""Seconds between two reports of a GPU, after which what was between them is not known."""
KEPT = 3600.0
"""Seconds after which the last report of an agent is forgotten."""


class GpuUse(NamedTuple):
    """What is known of the GPUs of a task.

    Attributes:
        known: Whether there are fresh reports of all of them.
        idle_since: Since when all of them are at 0 %; None: not all are, or it is not known.
    """

    known: bool
    idle_since: float | None


class _Gpu(NamedTuple):
    """One GPU: when it was last reported, and since when it is at 0 %; None: it is not."""

    heard: float
    idle_since: float | None


class GpuActivity:
    """The reports of agents since this master started."""

    def __init__(self) -> None:
        self._agents: dict[str, dict[str, _Gpu]] = {}

    def note(self, agent_id: str, percents: Mapping[str, float], now: float) -> None:
        """Take an agent's report: all GPUs that it could measure. One that it leaves out is unknown from now on.

        Args:
            agent_id: The agent.
            percents: The greatest utilisation since its last report, 0 to 100, by slot.
            now: The time, in seconds since the epoch.
        """
        before = self._agents.get(agent_id, {})
        self._agents[agent_id] = {
            slot: _Gpu(now, _idle_since(before.get(slot), percent, now)) for slot, percent in percents.items()
        }

    def use_of(self, places: Iterable[tuple[str, Sequence[str]]], now: float) -> GpuUse:
        """Return what is known of the GPUs of a task.

        Args:
            places: Its agents, and its slots on each.
            now: The time, in seconds since the epoch.
        """
        found = [self._agents.get(agent, {}).get(device_of(slot)) for agent, slots in places for slot in slots]
        known = [one for one in found if one is not None and 0.0 <= now - one.heard <= MOST_GAP]
        if not found or len(known) < len(found):
            return GpuUse(known=False, idle_since=None)
        since = [one.idle_since for one in known if one.idle_since is not None]
        return GpuUse(known=True, idle_since=max(since) if len(since) == len(known) else None)

    def forget(self, now: float) -> None:
        """Drop what agents that have gone, or have stopped measuring, said long ago."""
        for agent, gpus in list(self._agents.items()):
            if all(abs(now - one.heard) > KEPT for one in gpus.values()):
                del self._agents[agent]


def _idle_since(before: _Gpu | None, percent: float, now: float) -> float | None:
    if percent > 0:
        return None
    if before is None or before.idle_since is None or not 0.0 <= now - before.heard <= MOST_GAP:
        return now
    return before.idle_since
