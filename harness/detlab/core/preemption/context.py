"""`core_context.preempt`: whether this trial should stop now and resume later."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable

from detlab.core.distributed.context import DistributedContext
from detlab.core.preemption.watch import PreemptionWatcher
from detlab.core.session import COMMIT_LIMIT, TaskSession

logger = logging.getLogger("detlab.core")


class PreemptMode(enum.Enum):
    """Which ranks may call `should_preempt()`, and how they agree.

    `WorkersAskChief` (default): all ranks call in step and get the chief's answer. `ChiefOnly`: only the chief calls.
    `WorkersAskMaster`: each rank asks the master itself; answers may differ for a moment.
    """

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"
    WorkersAskMaster = "WORKERS_ASK_MASTER"


class PreemptContext:
    """The preemption signal: pause, a stop by the searcher, a higher priority, `det down`.

    Ask at points where a checkpoint has just been stored, and return when the answer is True.
    """

    def __init__(
        self,
        session: TaskSession,
        distributed: DistributedContext,
        preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
        make_watcher: Callable[[], PreemptionWatcher] | None = None,
    ) -> None:
        self._session = session
        self._dist = distributed
        self._mode = PreemptMode(preempt_mode)
        self._watcher = make_watcher() if make_watcher is not None and self._asks_master else None
        self._started = False
        self._acknowledged = False

    @property
    def _asks_master(self) -> bool:
        return self._dist.rank == 0 or self._mode is PreemptMode.WorkersAskMaster

    def start(self) -> PreemptContext:
        """Begin to watch; `core.init()` does so.

        Raises:
            RuntimeError: It was started before.
        """
        if self._started:
            raise RuntimeError("PreemptContext.start() was called twice")
        self._started = True
        if self._watcher is not None:
            self._watcher.start()
        return self

    def close(self) -> None:
        """Stop watching."""
        if self._watcher is not None:
            self._watcher.close()

    def __enter__(self) -> PreemptContext:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """Return whether this trial should store a checkpoint and end with exit code 0.

        Never waits for the master, except for its first answer (at most 5 seconds) and for the acknowledgement.
        Once True, always True.

        Args:
            auto_ack: Acknowledge the signal before True is returned for the first time. With False, call
                `acknowledge_preemption_signal()` before ending: the master takes exit 0 without it for completion.

        Raises:
            RuntimeError: Called before `start()`, or by a rank that the mode excludes.
            StaleAttempt: A newer attempt of this trial runs: end this process.
            ClusterUnreachable: The acknowledgement could not be delivered for a day.
        """
        if not self._started:
            raise RuntimeError("should_preempt() needs a started PreemptContext: use `with det.core.init()`")
        if self._mode is PreemptMode.ChiefOnly and self._dist.rank != 0:
            raise RuntimeError(f"preempt_mode=ChiefOnly, but rank {self._dist.rank} called should_preempt()")
        answer = self._ask(auto_ack) if self._asks_master else False
        if self._mode is PreemptMode.WorkersAskChief:
            answer = self._dist.broadcast(answer if self._dist.rank == 0 else None)
        return answer

    def acknowledge_preemption_signal(self) -> None:
        """Tell the master that this process will end soon and is to be resumed; return once the master knows.

        Raises:
            ClusterUnreachable: The master did not answer for a day.
        """
        self._session.call("POST", "task/preempt/ack", limit=COMMIT_LIMIT)

    def _ask(self, auto_ack: bool) -> bool:
        if self._watcher is None or not self._watcher.should_preempt():
            return False
        if auto_ack and not self._acknowledged:
            self.acknowledge_preemption_signal()
            self._acknowledged = True
            logger.info("preemption acknowledged")
        return True


class DummyPreemptContext(PreemptContext):
    """Off-cluster: never preempted, but with the same calling rules."""

    def __init__(
        self, distributed: DistributedContext, preempt_mode: PreemptMode = PreemptMode.WorkersAskChief
    ) -> None:
        self._dist = distributed
        self._mode = PreemptMode(preempt_mode)
        self._watcher = None
        self._started = False
        self._acknowledged = False

    def acknowledge_preemption_signal(self) -> None:
        """Do nothing: there was no signal."""
