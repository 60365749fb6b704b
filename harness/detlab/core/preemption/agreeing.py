"""When several ranks with loops of their own ask whether to stop, and how they agree."""

from __future__ import annotations

import time

from detlab.core.distributed.context import DistributedContext
from detlab.core.preemption.context import PreemptContext, PreemptMode

SECONDS = 1.0
"""Between two agreements of several ranks."""


class StopAgreement:
    """The ranks' common answer to whether the trial is to stop; the chief's word counts.

    One process looks every time, which costs nothing. Several agree about once a second, since that takes a message
    between them.

    Args:
        preempt: Asks the master.
        distributed: The ranks.

    Attributes:
        stopping: Whether the trial is to stop.
    """

    def __init__(self, preempt: PreemptContext, distributed: DistributedContext) -> None:
        self._preempt = preempt
        self._distributed = distributed
        self._asked_at: tuple[int, float] | None = None
        self._next_question = 0
        self.stopping = False

    def should_stop(self, step: int) -> bool:
        """Return whether to store a checkpoint and leave; called by all ranks after each step.

        Args:
            step: Steps so far, the same on all ranks.
        """
        if not self.stopping and step >= self._next_question:
            self.ask(step)
        return self.stopping

    def ask(self, step: int) -> bool:
        """Do as `should_stop`, but ask in any case, as at the end of an epoch."""
        if self.stopping:
            return True
        chief = self._distributed.rank == 0
        alone = self._preempt._mode is PreemptMode.ChiefOnly and not chief
        mine = False if alone else self._preempt.should_preempt()
        if self._distributed.size == 1:
            self.stopping = mine
            return mine
        said = (mine, step + self._steps_until_question(step)) if chief else None
        self.stopping, self._next_question = self._distributed.broadcast(said)
        return self.stopping

    def _steps_until_question(self, step: int) -> int:
        """Return how many steps take about `SECONDS`, from the time that the last ones took."""
        now = time.monotonic()
        before, self._asked_at = self._asked_at, (step, now)
        if before is None or step <= before[0]:
            return 1
        steps, seconds = step - before[0], now - before[1]
        return max(1, min(10 * steps, int(steps * SECONDS / max(seconds, 1e-6))))
