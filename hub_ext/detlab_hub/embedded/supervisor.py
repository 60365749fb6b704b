"""The supervisor of the parts: start, restart with back-off, take over, stop in order.

The parts are in sessions of their own, so that they outlive a killed supervisor; the next one finds them by pid and
start time in the report and takes them over. It does not handle tasks: the agent leaves them running.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import detlab
from detlab.backoff import Backoff
from detlab_hub.embedded import parts as names
from detlab_hub.embedded.hubapi import HubApi
from detlab_hub.embedded.parts import ClusterPart
from detlab_hub.embedded.process import Running, identify, start
from detlab_hub.embedded.report import ClusterReport, PartReport, PartState, read_report, write_report
from detlab_hub.embedded.sockets.listeners import Listeners
from detlab_hub.embedded.sockets.unavailable import UnavailableServer
from detlab_hub.embedded.state import StartPlan, StateFolder, write_if_changed

log = logging.getLogger("detlab.supervisor")

_WRITE_AGAIN = 1.0
"""Seconds between attempts to write a report that a full disk prevented."""

Hook = Callable[[], Coroutine[Any, Any, None]]
HEALTHY_SECONDS = 60.0
"""A part that ran for this long is restarted as soon as after its first exit."""


def part_backoff() -> Backoff:
    """Return the pauses before a part that exits quickly is started again."""
    return Backoff(first=0.5, cap=30.0)


def pause_after_run(backoff: Backoff, ran_for: float) -> float:
    """Return the pause after a run that lasted `ran_for` seconds; after a healthy one it is the first again."""
    if ran_for >= HEALTHY_SECONDS:
        backoff.reset()
    return backoff.next_pause()


class Keeper:
    """Keeps one part running.

    Args:
        part: What to run.
        listeners: Holds the sockets on which it listens.
        changed: Called when the report of this part has changed.
        started: Runs beside the part after every start.
    """

    def __init__(
        self, part: ClusterPart, listeners: Listeners, changed: Callable[[], None], *, started: Hook | None = None
    ) -> None:
        self.part = part
        self.report = PartReport(digest=part.digest)
        self._listeners = listeners
        self._changed = changed
        self._started = started
        self._unavailable = UnavailableServer(part.name, part.listens)
        self._hook: asyncio.Task[None] | None = None
        self._backoff = part_backoff()
        self._delay = 1.0
        self._stopping = asyncio.Event()
        self._wake = asyncio.Event()
        """Ends the pause before the next start."""
        self._process: Running | None = None

    def adopt(self, found: PartReport | None) -> None:
        """Begin with the process of an earlier supervisor, if it still runs, and its sockets: every report has both."""
        self._process = found.running if found is not None else None
        if found is not None and self._process is not None:
            self.report = found
            self._listeners.take_back(self._process.pid, self.part.listens)
            log.info("%s: taken over, pid %d", self.part.name, self._process.pid)

    async def run(self) -> None:
        """Keep the part running until `stop`; begin with the adopted process."""
        child = None
        while not self._stopping.is_set():
            if self._process is None:
                child = self._start()
            try:
                if self._process is not None:
                    began = time.monotonic()
                    await self._process.wait()
                    self._ended(child, time.monotonic() - began)
                    child = None
                await self._unavailable.begin(self._listeners.held(self.part.listens))
            except OSError as error:  # such as no file descriptor left: the supervisor must not end because of that
                log.error("%s: cannot be watched: %s", self.part.name, error)
            await self._pause()

    def _start(self) -> subprocess.Popen[bytes] | None:
        part = self.part
        self._unavailable.end()
        try:
            sockets = self._listeners.ensure(part.listens)
            child = start(part.argv, env=part.environment(), cwd=part.cwd, log=part.log, sockets=sockets)
        except OSError as error:
            log.error("%s: %s cannot be started: %s", part.name, part.argv[0], error)
            with contextlib.suppress(OSError), part.log.open("a", encoding="utf-8") as file:
                file.write(f"{part.argv[0]} cannot be started: {error}\n")
            self._ended(None, 0.0)
            return None
        self._process = identify(child.pid)
        if self._process is None:  # over already
            self._ended(child, 0.0)
            return None
        self.report = PartReport(
            state=PartState.RUNNING,
            pid=child.pid,
            ticks=self._process.ticks,
            started_at=self._process.started_at,
            restarts=self.report.restarts,
            exit_code=self.report.exit_code,
            digest=part.digest,
        )
        log.info("%s: started, pid %d", part.name, child.pid)
        self._changed()
        if self._started is not None:
            self._hook = asyncio.create_task(self._started())
        return child

    def _ended(self, child: subprocess.Popen[bytes] | None, ran_for: float) -> None:
        code = child.wait() if child is not None else None
        self._process = None
        self._delay = pause_after_run(self._backoff, ran_for)
        stopping = self._stopping.is_set()
        self.report = self.report.model_copy(
            update={
                "state": PartState.STOPPED if stopping else PartState.WAITING,
                "pid": None,
                "ticks": None,
                "exit_code": code,
                "restarts": self.report.restarts + (0 if stopping else 1),
            }
        )
        if not stopping:
            log.warning("%s: ended (%s), starting it again in %.1f s", self.part.name, _ending(code), self._delay)
        self._changed()

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), self._delay)
        self._wake.clear()

    async def restart(self) -> None:
        """Restart the part immediately; earlier failures do not delay it."""
        self._backoff.reset()
        self._wake.set()
        if self._process is not None:
            await self._process.stop(self.part.stop_grace)

    async def stop(self) -> None:
        """End the part and do not start it again."""
        self._stopping.set()
        self._wake.set()
        if self._hook is not None:
            self._hook.cancel()
        if self._process is not None:
            await self._process.stop(self.part.stop_grace)
        else:
            self.report = self.report.model_copy(update={"state": PartState.STOPPED})
        log.info("%s: stopped", self.part.name)

    def close(self) -> None:
        """Stop answering in place of the part."""
        self._unavailable.end()


def _ending(code: int | None) -> str:
    if code is None:
        return "status unknown"
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit {code}"


class Supervisor:
    """Runs the parts of one state folder until it is asked to stop.

    Args:
        folder: The state folder.
        plan: What to run.
        parts: The parts by name.
        listeners: The sockets bound so far; the supervisor closes them at its end.
    """

    def __init__(
        self, folder: StateFolder, plan: StartPlan, parts: dict[str, ClusterPart], listeners: Listeners | None = None
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._listeners = listeners or Listeners()
        self._hub = HubApi(plan.hub_api_url, folder.secret("supervisor_token"))
        started: dict[str, Hook] = {names.PROXY: self._restore_routes}
        self._keepers = {
            name: Keeper(part, self._listeners, self._write, started=started.get(name)) for name, part in parts.items()
        }
        me = identify(os.getpid())
        assert me is not None
        self._me = me
        self._announcement = ""
        self._again: asyncio.TimerHandle | None = None
        self._trouble = False
        self._stop = asyncio.Event()

    def request_stop(self) -> None:
        """Ask `run` to stop the parts and return."""
        self._stop.set()

    async def restart(self, parts: Collection[str]) -> None:
        """Restart some parts immediately, for instance because their code has changed.

        Args:
            parts: Their names.
        """
        for name in names.STOP_ORDER:
            if name in parts:
                await self._keepers[name].restart()

    async def run(self) -> None:
        """Hold the folder, keep the parts running, and stop them in order at the end.

        Raises:
            FolderInUse: Another supervisor has the folder.
        """
        with self._folder.lock(), self._listeners:
            before = read_report(self._folder)
            await self._stop_changed(before)
            for name, keeper in self._keepers.items():
                keeper.adopt(before.parts.get(name) if before else None)
            self._announce()
            tasks = {name: asyncio.create_task(keeper.run()) for name, keeper in self._keepers.items()}
            stopped = asyncio.create_task(self._stop.wait())
            done, _ = await asyncio.wait({stopped, *tasks.values()}, return_when=asyncio.FIRST_COMPLETED)
            await self._stop_all(tasks)
            for keeper in self._keepers.values():
                keeper.close()
            if self._again is not None:
                self._again.cancel()
            self._folder.cluster_file.unlink(missing_ok=True)
            for task in done - {stopped}:
                task.result()  # a keeper never ends by itself: an exception in it is a bug that must be seen

    async def _stop_changed(self, before: ClusterReport | None) -> None:
        """Stop those parts of an earlier supervisor that would be started differently now."""
        for name in names.STOP_ORDER:
            old = before.parts.get(name) if before else None
            process = old.running if old else None
            keeper = self._keepers.get(name)
            if old is not None and process is not None and (keeper is None or old.digest != keeper.part.digest):
                log.info("%s: its settings changed, stopping pid %d", name, process.pid)
                if keeper is not None:
                    self._listeners.take_back(process.pid, keeper.part.listens)
                await process.stop(10.0)

    async def _stop_all(self, tasks: dict[str, asyncio.Task[None]]) -> None:
        log.info("stopping")
        # while the master and the agent, who run them, are there
        await self._hub.stop_servers(timeout=15.0)
        for name in names.STOP_ORDER:
            await self._keepers[name].stop()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        self._write()

    async def _restore_routes(self) -> None:
        """Make the Hub fill a new proxy's table immediately instead of minutes later."""
        if await self._hub.restore_routes(timeout=20.0):
            log.info("proxy: its routes are back")
        else:
            log.warning("proxy: the Hub did not restore its routes; it will do so by itself within minutes")

    def _announce(self) -> None:
        record = {
            "url": self._plan.url,
            "service_url": self._plan.service_url,
            "user": self._plan.operator,
            "pid": self._me.pid,
            "started_at": self._me.started_at,
            "version": detlab.__version__,
            **({"certificate": certificate} if (certificate := self._plan.certificate) else {}),
        }
        self._announcement = json.dumps(record, indent=1) + "\n"
        self._write()

    def _write(self) -> None:
        """Write the report; while the disk has no room, retry until it is written."""
        report = ClusterReport(
            pid=self._me.pid,
            ticks=self._me.ticks,
            started_at=self._me.started_at,
            version=detlab.__version__,
            parts={name: keeper.report for name, keeper in self._keepers.items()},
        )
        if self._again is not None:
            self._again.cancel()
            self._again = None
        try:
            write_report(self._folder, report)
            if not self._stop.is_set():
                write_if_changed(self._folder.cluster_file, self._announcement, mode=0o644)
        except OSError as error:
            if not self._trouble:
                log.error("the state of the cluster cannot be saved: %s", error)
            self._trouble = True
            self._again = asyncio.get_running_loop().call_later(_WRITE_AGAIN, self._write)
        else:
            if self._trouble:
                log.info("the state of the cluster can be saved again")
            self._trouble = False
