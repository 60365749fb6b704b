"""A task whose pod was asked for."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from detlab.launch.delivery.sender import SpoolSource
from detlab.launch.delivery.shipping import StreamShipper
from detlab.launch.delivery.spool import SpoolReader, open_regular
from detlab.launch.delivery.undelivered import SAID_LINES, find
from detlab.launch.taskdir import STREAMS
from detlab.schemas.podspec import MAIN_CONTAINER
from detlab.schemas.runtimes import KUBERNETES
from detlab_agent.runtimes.base import RefusedTask, Say, SetupFailed, TaskExit
from detlab_agent.runtimes.kubernetes import endings
from detlab_agent.runtimes.kubernetes.api import ApiAway, ApiRefused, Object
from detlab_agent.runtimes.kubernetes.cluster import KubernetesCluster
from detlab_agent.runtimes.records import TaskElsewhere

_log = logging.getLogger(__name__)

_LOOK = 5.0
"""Seconds after which a pod that does not change is looked at, for its limits."""
_TRIES = 3
_FORBIDDEN = 403
_BETWEEN = 1.0
WORDS = 200
"""Characters of each line of a pod's output in the message of its end."""


@dataclass
class _Wait:
    """For how long a pod has waited for the same kind of thing."""

    kind: str = ""
    since: float = field(default_factory=time.monotonic)

    def seconds(self, kind: str) -> float:
        """Return the seconds since it first waited for this, without a break."""
        if kind != self.kind:
            self.kind, self.since = kind, time.monotonic()
        return time.monotonic() - self.since


@dataclass
class KubernetesTask(TaskElsewhere):
    """A pod; see `RunningTask`.

    Attributes:
        cluster: Where it is.
        pod: Its name.
        namespace: Where it is, if that is known.
        asked: Whether this agent was told to end it.
        deleted: Whether this agent has deleted the pod.
    """

    runtime: ClassVar[str] = KUBERNETES

    cluster: KubernetesCluster = field(kw_only=True)
    pod: str = field(kw_only=True)
    namespace: str = field(default="", kw_only=True)
    asked: bool = field(default=False, init=False)
    deleted: bool = field(default=False, init=False)
    _jobs: set[asyncio.Task[Any]] = field(default_factory=set, init=False)

    def values(self) -> dict[str, Any]:
        """Return what the record says."""
        return {**super().values(), "pod": self.pod, "namespace": self.namespace}

    @classmethod
    def noted(cls, record: Path, value: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of the task that a record names."""
        there = {"pod": str(value["pod"]), "namespace": str(value.get("namespace") or "")}
        return {**super().noted(record, value), **there}

    # --- until it ends ----------------------------------------------------------------------------------------

    async def begun(self, say: Say) -> None:
        """See `RunningTask.begun`.

        Raises:
            RefusedTask: The cluster has had no place for it for too long.
            SetupFailed: Its image cannot be had, or its container cannot be made.
        """
        said, wait = "", _Wait()
        while self.waiting:
            change = self.cluster.pods.next_change(self.pod)
            found = await self.cluster.look(self.pod)
            if found is None or endings.is_over(found):
                self._check_taken(found)
                break
            if endings.is_running(found) and (endings.address_of(found) or self.port is None):
                self.address = endings.address_of(found) if self.port is not None else None
                self.host = found["node"] if found["node"] != self.node else ""
                break
            waits = endings.waiting_for(found)
            if waits is not None and waits.trouble == "gate":
                queued = await self.cluster.queued(self.allocation_id)
                waits = replace(waits, message=f"Kueue: {queued}" if queued else waits.message)
            group = self.cluster.group_of(self.node)
            if waits is not None and waits.trouble == "place" and group is not None:
                waits = replace(waits, message=f"scaling up {group.name}: {waits.message}")
            waited = 0.0 if waits is None else wait.seconds(waits.limit)
            # As a rule a scheduler looks at once: only one that does not is worth a word.
            if waits is not None and waits.message != said and (waits.trouble != "unseen" or waited >= _LOOK):
                said = waits.message
                say(waits.stage, said)
            if waits is not None and waits.trouble and not self.asked:
                await self._give_up_in_time(waits, waited)
            await _either(change, _LOOK)
        await super().begun(say)

    def _check_taken(self, found: Object | None) -> None:
        """Check that the node did not refuse a pod that has ended.

        Raises:
            RefusedTask: It did.
        """
        exit_ = None if found is None else endings.exit_of(found, ours=self.deleted or self.asked)
        if exit_ is not None and exit_.reason == "refused":
            raise RefusedTask(exit_.message)

    async def _give_up_in_time(self, waits: endings.PodWait, waited: float) -> None:
        options = self.cluster.rules.options
        group = self.cluster.group_of(self.node)
        place = options.pending_limit if group is None else group.limit
        limits = {"hopeless": 0.0, "gate": math.inf, "place": place, "creating": options.start_limit}
        limit = limits.get(waits.limit, options.image_limit)
        if waited < limit:
            return
        why = "" if group is None else await self.cluster.not_scaled(self.pod)
        if waits.limit == "creating":
            why = await self.cluster.not_created(self.pod)
        await self.delete(0)
        if waits.limit == "place" and group is not None:
            raise RefusedTask(f"no new node of {group.name} in {limit:g} s: {why or waits.message}")
        if waits.limit == "place":
            raise RefusedTask(f"no place for pod {self.pod} in {limit:g} s: {waits.message}")
        what = "its image cannot be had" if waits.trouble in {"hopeless", "image"} else "its container cannot start"
        said = f"{waits.message} for {limit:g} s" + (f": {why}" if why else "") if waits.limit == "creating" else ""
        raise SetupFailed(f"{what}: {said or waits.message}")

    async def finished(self) -> TaskExit:
        """See `RunningTask.finished`."""
        last: Object | None = None
        while True:
            change = self.cluster.pods.next_change(self.pod)
            found = await self.cluster.look(self.pod)
            if found is None:
                return await self._judged(last)
            last = found
            if endings.is_over(found):
                return await self._judged(found)
            await _either(change, math.inf if not self.asked else _LOOK)

    async def _judged(self, last: Object | None) -> TaskExit:
        if last is None:
            if self.asked or self.deleted:
                return TaskExit(exit_code=-signal.SIGTERM, message="ended before it started")
            return TaskExit(reason=endings.NOT_ITS_FAULT, message=f"pod {self.pod} is not there (any more)")
        ours = self.deleted or self.asked
        never = not endings.main_state(last) or "waiting" in endings.main_state(last)
        if ours and never:
            return TaskExit(exit_code=-signal.SIGTERM, message="ended before it started")
        note = "" if ours else await self.cluster.disruption(last)
        exit_ = endings.exit_of(last, ours=ours, note=note)
        return exit_ if exit_.delivered else await self._with_output(exit_)

    async def _with_output(self, exit_: TaskExit) -> TaskExit:
        """Keep what the launcher could not deliver, from the pod's output; add its last words to the message."""
        records, words = find(await self.cluster.output(self.pod))
        for stream, lines in records.items():
            if lines:
                await asyncio.to_thread(self._left(stream).write_text, "\n".join([*lines, ""]), encoding="utf-8")
        last = [line.strip()[:WORDS] for line in words[-SAID_LINES:]]
        return replace(exit_, message="; ".join(part for part in (exit_.message, *last) if part))

    def _left(self, stream: str) -> Path:
        return self.record.with_name(f"{self.record.stem}.{stream}.spool")

    def leftovers(self) -> list[SpoolSource]:
        """See `RunningTask.leftovers`: what was found in the pod's output."""
        return [
            SpoolSource(SpoolReader(partial(open_regular, self._left(stream))), StreamShipper(stream))
            for stream in STREAMS
            if self._left(stream).exists()
        ]

    # --- the end ----------------------------------------------------------------------------------------------

    def interrupt(self, grace: float) -> None:
        """See `RunningTask.interrupt`."""
        self.asked = True
        job = asyncio.create_task(self._interrupt(grace))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    async def _interrupt(self, grace: float) -> None:
        found = await self.cluster.look(self.pod)
        if found is None or endings.is_over(found):
            return
        running = endings.is_running(found)
        # Its node tells a second late that it runs: what has begun gets its time to end.
        heard = await self._signal(signal.SIGTERM, _TRIES if running else 1) if running or found["node"] else False
        if heard is False and not running:
            await self.delete(0)
        elif not heard:
            # The node sends the signal, then: it kills the task after its own grace, not after that of the pod.
            await self.delete(max(1, math.ceil(grace)))

    async def kill(self, delivery_grace: float) -> None:
        """See `RunningTask.kill`."""
        self.asked = True
        if await self._signal(signal.SIGUSR1):
            try:
                await asyncio.wait_for(self.finished(), delivery_grace)
            except TimeoutError:
                pass
            else:
                return
        known = self.cluster.pods.items.get(self.pod)
        await self.delete(0 if known is not None and not endings.is_running(known) else 1)

    async def _signal(self, number: int, tries: int = _TRIES) -> bool | None:
        """Signal the launcher; return whether that was possible, or None where it is not known whether it runs."""
        for _ in range(tries):
            try:
                await self.cluster.api.signal_first(self.pod, MAIN_CONTAINER, number)
            except ApiRefused as error:
                _log.warning("pod %s cannot be signalled: %s", self.pod, error)
                return None if error.code == _FORBIDDEN else False
            except ApiAway as error:
                _log.warning("pod %s: %s", self.pod, error)
                await asyncio.sleep(_BETWEEN)
            else:
                return True
        return None

    async def delete(self, grace: int | None) -> None:
        """Delete the pod; with no API server, as soon as there is one."""
        self.deleted = True
        await self.cluster.delete(self.pod, grace)

    async def remove(self, *, clean: bool) -> None:
        """See `RunningTask.remove`."""
        for job in list(self._jobs):
            job.cancel()
        await self.delete(0)
        await self.cluster.forget_group(self.allocation_id)
        for stream in STREAMS:
            self._left(stream).unlink(missing_ok=True)
        self.forget(clean=True)
        self.cluster.forget(self.pod)


async def _either(change: asyncio.Event, seconds: float) -> None:
    """Wait for a change, or for so long."""
    try:
        async with asyncio.timeout(None if math.isinf(seconds) else seconds):
            await change.wait()
    except TimeoutError:
        return
