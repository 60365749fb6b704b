"""One task as a container: wait for its end, end it, remove it; through restarts of the engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from detlab.backoff import Backoff
from detlab.launch.host import procfs
from detlab_agent.runtimes.base import TaskExit
from detlab_agent.runtimes.docker.accounts import forget_names
from detlab_agent.runtimes.docker.engine import ContainerEnd, Engine, EngineAway, EngineRefused
from detlab_agent.runtimes.ports import HeldPorts
from detlab_agent.runtimes.records import LocalTask

_log = logging.getLogger(__name__)
_RETRY = 1.0
"""Seconds between two tries to reach an engine that is away."""
_REMOVALS = 8
"""Times that a container is removed whose removal the engine refuses."""
_OUTAGE_SLACK = 5.0
"""Seconds of tolerance: the clocks differ, and it takes time to notice that the engine is away."""


@dataclass
class DockerTask(LocalTask):
    """A task of the docker runtime; see `RunningTask`.

    Attributes:
        engine: The engine of the container.
        container: The container's name.
        memory: Its limit in bytes.
        ports: The ports of this agent's services.
    """

    runtime: ClassVar[str] = "docker"

    engine: Engine = field(kw_only=True)
    container: str = field(kw_only=True)
    memory: int | None = field(default=None, kw_only=True)
    ports: HeldPorts | None = field(default=None, kw_only=True, repr=False)
    _asked: bool = field(default=False, init=False)
    _signals: set[asyncio.Task[bool]] = field(default_factory=set, init=False)

    def values(self) -> dict[str, Any]:
        """Return the values of the record, including those that identify the container."""
        return {**super().values(), "container": self.container, "memory": self.memory}

    async def finished(self) -> TaskExit:
        """See `RunningTask.finished`."""
        ended = await self.engine.ended(self.container)
        if self.ports is not None:
            self.ports.retire(self.record, self.address, self.port)
        return await asyncio.to_thread(self._exit, ended)

    def _exit(self, ended: ContainerEnd | None) -> TaskExit:
        written = self.written_exit()
        oom = ended is not None and ended.oom
        if written is not None:
            exit_, report = written
            oom = oom or report.get("oom") is True
        else:
            exit_ = self.unwritten_exit(self._said(ended))
        if exit_.reason == "machine_restarted":
            return exit_
        if oom and exit_.exit_code != 0:
            return replace(exit_, reason="oom", message=self._oom_message())
        if not self._asked and ended is not None and self._went_with_engine(exit_, ended):
            message = "the container engine was stopped or started again and ended the task with it"
            return replace(exit_, reason="machine_restarted", message=f"{message} (see its option live-restore)")
        return exit_

    def _said(self, ended: ContainerEnd | None) -> str:
        if ended is None:
            return "its container was removed from outside detlab"
        said = ended.error or self.engine.said(self.container)
        return f"its container ended with status {ended.exit_code}{': ' if said else ''}{said}"

    def _oom_message(self) -> str:
        limit = f" of {self.memory / (1 << 20):,.0f} MiB" if self.memory else ""
        return f"the task reached the memory limit{limit} of its container and the kernel ended a process of it"

    def _went_with_engine(self, exit_: TaskExit, ended: ContainerEnd) -> bool:
        """Whether the engine ended the container because the engine itself shut down."""
        by_signal = exit_.exit_code is None or exit_.exit_code in {-signal.SIGTERM, -signal.SIGKILL}
        return by_signal and 0.0 < self.engine.lost_at <= ended.at + _OUTAGE_SLACK

    def interrupt(self, grace: float) -> None:
        """See `RunningTask.interrupt`."""
        self._asked = True
        job = asyncio.create_task(self._signal(signal.SIGTERM))
        self._signals.add(job)
        job.add_done_callback(self._signals.discard)

    async def kill(self, delivery_grace: float) -> None:
        """See `RunningTask.kill`: the launcher ends all others and delivers; then it is ended as well."""
        self._asked = True
        await self._signal(signal.SIGUSR1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delivery_grace):
                await self.engine.ended(self.container)
                return
        while not await self._signal(signal.SIGKILL):
            await asyncio.sleep(_RETRY)

    async def _signal(self, number: signal.Signals) -> bool:
        """Signal the launcher, through the engine or, while that is away, by its pid; return whether that worked."""
        try:
            await asyncio.to_thread(self.engine.signal, self.container, number.name)
        except EngineAway as error:
            if await asyncio.to_thread(self._signal_process, number):
                return True
            _log.warning("task %s cannot be sent %s: %s", self.allocation_id, number.name, error)
            return False
        return True

    def _signal_process(self, number: signal.Signals) -> bool:
        process = procfs.read_process(self.pid) if self.pid is not None else None
        if process is None or process.start_time != self.started:
            return False
        if procfs.read_environment(process.pid).get("DET_TASK_DIR") != str(self.directory.root):
            return False
        return procfs.send_signal([process], number) > 0

    async def remove(self, *, clean: bool) -> None:
        """See `RunningTask.remove`."""
        await self._remove_container()
        await asyncio.to_thread(self._forget, clean=clean)

    async def _remove_container(self) -> None:
        """Remove it; what stays nevertheless is swept when the engine or this agent starts again.

        An engine that has just started, or whose disk is busy, refuses for a moment.
        """
        pauses, said = Backoff(first=0.2, cap=_RETRY), ""
        for _ in range(_REMOVALS):
            try:
                await asyncio.to_thread(self.engine.remove, self.container)
            except EngineAway as error:
                said = str(error)
                break
            except EngineRefused as error:
                said = str(error)
                await asyncio.sleep(pauses.next_pause())
            else:
                return
        _log.warning("container %s stays until the engine is back: %s", self.container, said)

    def _forget(self, *, clean: bool) -> None:
        forget_names(self.record)
        self.forget(clean=clean)


def noted_fields(value: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a record that belong to this runtime."""
    return {"container": str(value.get("container", "")), "memory": value.get("memory")}
