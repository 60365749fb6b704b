"""States of the ranks of trials over several nodes: kept for a moment, so that their launchers can read each other's.

The launchers detect hangs (`detlab.launch.ranks.watchdog`). A restart of the master loses nothing: they report again.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from detlab.errors import Conflict
from detlab.schemas.wire import OtherRanks, RankSigns
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.base.fencing import current_holder

KEPT = 120.0
"""Seconds after which a report is ignored."""


class RankStates:
    """The last report of each node of an attempt."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._said: dict[tuple[str, int], dict[int, tuple[float, RankSigns]]] = {}

    async def exchange(self, task: TaskCaller, told: RankSigns) -> OtherRanks:
        """Take the state of one node's ranks, and return that of the other nodes' ranks.

        Raises:
            Conflict: The attempt has no such node.
            StaleAttempt: The attempt is over.
        """
        await self._context.read(lambda s: _check(s, task, told.node))
        now = self._context.clock()
        self._drop_old(now)
        attempt = self._said.setdefault((task.allocation_id, task.run), {})
        attempt[told.node] = now, told
        return OtherRanks(
            signs=[
                sign.model_copy(update={"age": max(0.0, now - at)})
                for node, (at, said) in sorted(attempt.items())
                if node != told.node
                for sign in said.signs
            ]
        )

    def _drop_old(self, now: float) -> None:
        for key, nodes in list(self._said.items()):
            if all(not 0 <= now - at <= KEPT for at, _ in nodes.values()):
                del self._said[key]


def _check(s: Session, task: TaskCaller, node: int) -> None:
    row, _ = current_holder(s, task)
    if not node < row.nodes or row.nodes < 2:
        raise Conflict(f"attempt {row.run} has {row.nodes} nodes, and no node {node} of several")
