"""A task as a job of Slurm: submitted once, found again by its name, and watched until it has ended."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any, ClassVar, TypeVar

from detlab.backoff import Backoff
from detlab.launch.elsewhere import is_loopback
from detlab.schemas.runtimes import SLURM_REFUSES
from detlab_agent.runtimes.base import Say, SetupFailed, TaskExit
from detlab_agent.runtimes.records import TaskElsewhere
from detlab_agent.runtimes.slurm.answers import SlurmJob
from detlab_agent.runtimes.slurm.arrays import ArrayMember, Arrays
from detlab_agent.runtimes.slurm.client import SlurmAway, SlurmClient, SlurmFull, SlurmRefused, Whose
from detlab_agent.runtimes.slurm.ends import DOUBTFUL, NOT_ITS_FAULT, code_of, delivered, exit_of, killed_by, of_ranks
from detlab_agent.runtimes.slurm.script import (
    EXIT,
    OUTPUT,
    SERVICE,
    JobRequest,
    exit_of_rank,
    files_in,
    files_of,
    job_name,
)
from detlab_agent.runtimes.slurm.watch import JobWatch

_log = logging.getLogger(__name__)
T = TypeVar("T")
_LAST_PORT = 65535
FORGOTTEN = 10.0
"""Seconds for which the nodes may take to end a job that Slurm has forgotten."""

REFUSED = {
    "PartitionNodeLimit": "it asks for more nodes than its partition has or allows",
    "PartitionTimeLimit": "it asks for more time than its partition allows",
    "BadConstraints": "no node has what it asks for",
    "AccountNotAllowed": "its partition does not take its account",
    "QOSNotAllowed": "its partition does not take its QoS",
    "InvalidAccount": "its account is none",
    "InvalidQOS": "its QoS is none",
}
"""Reasons of Slurm for which a job that it has taken never starts, as it was asked for, and what each means."""
STUCK = {
    "JobHeldAdmin": "an administrator of Slurm holds it",
    "JobHeldUser": "somebody holds it (scontrol release)",
}
"""Reasons of Slurm for which a job waits until somebody does something, and what each means."""


class _EndedEarly(Exception):
    """The task was told to end before there was a job."""


@dataclass
class SlurmTask(TaskElsewhere):
    """A job; see `RunningTask`.

    Attributes:
        client: The cluster.
        watch: The looks at all jobs.
        directory: The shared folder.
        request: The job, until it is submitted; None for a task of an earlier agent.
        job_id: Slurm's number; None before it is known.
        steps: Whether the task runs in a step of the job.
        serves: Whether it serves on a port.
        certificate_later: Whether its job asks the master for a certificate for its address.
        nodes: On how many nodes it runs.
        label: What its job is called: as its allocation, or as a member of an array.
        files: Where its files are in the shared folder, without their ends.
        uid: The account of its job; None where that is not known.
        arrays: Submits it together with others; None: each is a job of its own.
        turn: Its place in the order in which the master handed tasks over.
    """

    runtime: ClassVar[str] = "slurm"

    client: SlurmClient = field(kw_only=True)
    watch: JobWatch = field(kw_only=True)
    directory: PurePath = field(kw_only=True)
    request: JobRequest | None = field(default=None, kw_only=True)
    job_id: str | None = field(default=None, kw_only=True)
    steps: bool = field(default=False, kw_only=True)
    serves: bool = field(default=False, kw_only=True)
    certificate_later: bool = field(default=False, kw_only=True)
    nodes: int = field(default=1, kw_only=True)
    label: str = field(default="", kw_only=True)
    files: str = field(default="", kw_only=True)
    uid: int | None = field(default=None, kw_only=True)
    arrays: Arrays | None = field(default=None, kw_only=True)
    turn: int = field(default=0, kw_only=True)
    _asked: bool = field(default=False, init=False)
    _late_kill: float | None = field(default=None, init=False)
    _killed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _ended: TaskExit | None = field(default=None, init=False)
    _work: set[asyncio.Task[Any]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.label = self.label or self.allocation_id
        self.files = self.files or self.label  # as an earlier version had it
        self.watch.know(self.label, self.job_id, self.uid)

    def values(self) -> dict[str, Any]:
        """Return what the record says."""
        own = {"job_id": self.job_id, "steps": self.steps, "serves": self.serves, "nodes": self.nodes}
        own |= {"label": self.label} if self.label != self.allocation_id else {}
        own |= {"files": self.files} | ({} if self.uid is None else {"uid": self.uid})
        return {**super().values(), **own, "certificate_later": self.certificate_later}

    @classmethod
    def noted(cls, record: Path, value: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of the task that a record names."""
        job_id = value.get("job_id")
        return {
            **super().noted(record, value),
            "job_id": None if job_id is None else str(job_id),
            "steps": bool(value.get("steps")),
            "serves": bool(value.get("serves")),
            "certificate_later": value.get("certificate_later") is True,
            "nodes": int(value.get("nodes") or 1),
            "label": str(value.get("label") or ""),
            "files": str(value.get("files") or value.get("label") or ""),
            "uid": value["uid"] if isinstance(value.get("uid"), int) else None,
        }

    # --- submitted ----------------------------------------------------------------------------------------

    async def begun(self, say: Say) -> None:
        """See `RunningTask.begun`: submit the job, and wait until Slurm has started it."""
        try:
            if self.job_id is None:
                await self._join(say)
                if self.job_id is None:
                    await self._submit(say)
                if self._asked:  # meanwhile, when there was no job to end
                    await self._end_late()
            await self._placed(say)
        except _EndedEarly:
            self._ended = TaskExit(exit_code=-signal.SIGTERM, message="ended before it started")
        except (SlurmRefused, SetupFailed) as error:
            self._ended = TaskExit(reason="setup", message=f"{SLURM_REFUSES}: {error}")
        self.request = None
        await super().begun(say)

    async def _join(self, say: Say) -> None:
        """Submit the job as one of an array, if there are others that are alike."""
        if self.arrays is None or self.request is None or self.request.like is None:
            return
        member = ArrayMember(self.request, self._call, self.note, lambda: not self._asked, say, self.turn)
        job_id = await self.arrays.submit(member)
        if job_id is not None:
            self._note(job_id)
            if job_id.endswith("_0"):  # for all of them, as few questions as submissions
                await self._check(job_id)

    def _call(self, label: str, files: str) -> None:
        """Take a label that nothing of this task has been called by, and a name for its files."""
        self.watch.know(label, None, self.uid)
        self.watch.forget(self.label)
        self.label = label
        if self.request is not None:
            self.files = files_in(self.directory, self.request.directory, files)
            self.request = replace(self.request, label=label, files=files)

    async def _submit(self, say: Say) -> None:
        """Submit the job, once: after an answer that got lost, it is looked for by its name first.

        Raises:
            SlurmRefused: Slurm does not take it.
        """
        backoff, uncertain = Backoff(first=0.5, cap=15.0), self.request is None
        while True:
            if self._asked and not uncertain:
                raise _EndedEarly
            try:
                if uncertain and await self._found():
                    return
                if self._asked and self.request is not None:
                    raise _EndedEarly
                if self.request is None:
                    self._ended = TaskExit(
                        reason=NOT_ITS_FAULT, message="the agent was restarted before it had submitted the job to Slurm"
                    )
                    return
                request = self.request
                job_id = await asyncio.to_thread(self.client.submit, request.arguments, request.script, request.whose)
                self._note(job_id)
                await self._check(job_id)
            except SlurmFull as error:
                uncertain = False
                say("queued", f"Slurm takes no more jobs now: {error}")
            except SlurmAway as error:
                uncertain = True
                say("queued", f"Slurm does not answer: {error}")
            else:
                return
            await self._pause(backoff.next_pause())

    async def _found(self) -> bool:
        """Look for the job by its name."""
        await self.watch.next_look(fresh=True)
        jobs = self.watch.of(self.label)
        if not jobs:
            return False
        self._note(jobs[0].id)
        return True

    async def _check(self, job_id: str) -> None:
        """Read a new job back: what decides whose it is must be what was asked for.

        Raises:
            SlurmRefused: It has another account, or cannot be found again; it is ended.
        """
        job = await self._until_answered(lambda: self.client.job(job_id))
        if job is None:  # a controller that died forgot it
            return
        ours = job.name == self._name and job.comment == self.watch.comment
        if ours and self.uid in {None, job.uid}:
            return
        if ours or job.uid == self.uid:  # else it is another account's job, and the number that was given is wrong
            await self._until_answered(lambda: self.client.cancel(job_id, job.name, at_once=True))
        raise SlurmRefused(
            f"job {job_id} came to be {job.name!r} of uid {job.uid}, and was to be {self._name!r} of uid {self.uid}: it"
            " was not left running. A plugin of this Slurm (JobSubmitPlugins) may change jobs"
        )

    def _note(self, job_id: str) -> None:
        self.job_id = job_id
        self.watch.know(self.label, job_id, self.uid)
        self.note()
        _log.info("task %s is Slurm job %s", self.allocation_id, job_id)

    async def _placed(self, say: Say) -> None:
        said = refused = ""
        await self.watch.next_look(fresh=True)
        while self._ended is None:
            job = self._job()
            if job is None or not job.pending:
                if job is not None and not job.ended and self.serves and not await self._reached(job.nodes):
                    await self._pause(0.2)
                    await self.watch.next_look()
                    continue
                return
            if (now := _waiting(job)) != said:
                say("queued", now)
                said = now
            if job.reason in REFUSED and refused == job.reason:
                await self._until_answered(lambda: self.client.cancel(self.job_id or "", self._name, at_once=True))
                raise SlurmRefused(f"{job.reason}: {REFUSED[job.reason]}")
            refused = job.reason  # one that is there at the next look, too, is no passing state of the controller
            await self.watch.next_look()

    async def _reached(self, node: str) -> bool:
        """Read where the task serves; return whether that is known.

        Its user can write anything there, and the Hub's proxy goes to where it says: only to the job's own node.
        """
        text = await self._until_answered(lambda: self._read(SERVICE))
        address, _, port = text.partition(" ")
        if re.fullmatch(r"[1-9][0-9]{0,4}", port.strip(), re.ASCII) is None or int(port) > _LAST_PORT:
            return False
        known = await self._until_answered(lambda: self.client.addresses_of(node))
        if address not in known:
            _log.warning("task %s says that it serves at %s; its node is %s", self.allocation_id, address, known[0])
        self.address, self.port = address if address in known else known[0], int(port)
        self.secure = self.certificate_later and not is_loopback(self.address)
        self.note()
        return True

    def _job(self) -> SlurmJob | None:
        return next((job for job in self.watch.of(self.label) if job.id == self.job_id), None)

    @property
    def _name(self) -> str:
        in_array = "_" in (self.job_id or "")
        return job_name(self.label.rpartition("_")[0] if in_array else self.label)

    def _read(self, end: str) -> str:
        """Return one of the job's files: what its account has written, and nobody else."""
        uid, path = self.uid, self.directory / f"{self.files}{end}"
        if uid is None and self.watch.every_users:
            # A task of an earlier version, whose files are where all could write.
            job = self.client.job(self.job_id or "")
            uid = None if job is None else job.uid
            if uid is None:
                return ""
        switched = path.parent if self.watch.every_users else None
        return self.client.read(path, Whose(uid, uid, switched))

    # --- ended --------------------------------------------------------------------------------------------

    async def finished(self) -> TaskExit:
        """See `RunningTask.finished`."""
        while self._ended is None:
            job = self._job()
            if job is None or job.ended:
                self._ended = await self._end_of()
            elif job.pending and self.request is None and await self._again(job):
                continue
            else:
                await self.watch.next_look()
        return delivered(self._ended)

    async def _again(self, job: SlurmJob) -> bool:
        """End a job that waits again after it has run: an operator requeued it, and the master starts the next one."""
        if self._asked:
            return False
        end = await self._until_answered(lambda: self.client.end_of(job.id, job.name))
        if end is None or not end.restarts:
            await self.watch.next_look()
            return True
        await self._until_answered(lambda: self.client.cancel(job.id, job.name, at_once=True))
        self._ended = exit_of(job.id, end, "", "", killed=False)
        return True

    async def _end_of(self) -> TaskExit:
        job_id = self.job_id or ""
        end = await self._until_answered(lambda: self.client.end_of(job_id, self._name))
        said = await self._until_answered(lambda: self._read(EXIT))
        if not said and self.nodes > 1:
            ends = [exit_of_rank(rank) for rank in range(self.nodes)]
            said = of_ranks([await self._until_answered(partial(self._read, one)) for one in ends], end)
        if not said and end is None and not self._asked:
            said = await self._last_report()
        doubtful = not said or (end is not None and end.state in DOUBTFUL and code_of(said) != 0)
        output = await self._until_answered(lambda: self._read(OUTPUT)) if doubtful else ""
        return exit_of(job_id, end, said, output, killed=self._asked)

    async def _last_report(self) -> str:
        """Wait for the report of a job that Slurm has forgotten: only now do its nodes end what still runs of it.

        Slurm gives its number out again. What is ended for it on a node ends the next job of that number there, too.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(FORGOTTEN):
                while not self._asked:
                    if said := await self._until_answered(lambda: self._read(EXIT)):
                        return "" if killed_by(said) else said
                    await self._pause(FORGOTTEN / 10)
        return ""

    # --- told to end --------------------------------------------------------------------------------------

    def interrupt(self, grace: float) -> None:
        """See `RunningTask.interrupt`."""
        self._asked = True
        self._killed.set()
        work = asyncio.create_task(self._interrupt())
        self._work.add(work)
        work.add_done_callback(self._work.discard)

    async def _interrupt(self) -> None:
        if self.job_id is None:
            return
        if self._job() is None:  # this agent has only just started: a job that runs is asked, and not cancelled
            await self.watch.next_look(fresh=True)
        job, job_id = self._job(), self.job_id
        if job is None or job.pending:
            await self._until_answered(lambda: self.client.cancel(job_id, self._name))
        else:
            await self._until_answered(lambda: self.client.signal(job_id, self._name, "TERM", steps=self.steps))
        self.watch.look_soon()

    async def _end_late(self) -> None:
        """End a job that has come to light after the task was told to end."""
        await self._interrupt()
        if self._late_kill is not None:
            await self.kill(self._late_kill)

    async def kill(self, delivery_grace: float) -> None:
        """See `RunningTask.kill`."""
        self._asked = True
        self._killed.set()
        if self.job_id is None:
            self._late_kill = delivery_grace
            return
        job_id = self.job_id
        job = self._job()
        if job is not None and not job.pending:
            await self._until_answered(lambda: self.client.signal(job_id, self._name, "USR1", steps=self.steps))
            self.watch.look_soon()
            try:
                async with asyncio.timeout(delivery_grace):
                    while (job := self._job()) is not None and not job.ended:
                        await self.watch.next_look()
                return
            except TimeoutError:
                pass
        await self._until_answered(lambda: self.client.cancel(job_id, self._name, at_once=True))
        self.watch.look_soon()

    async def remove(self, *, clean: bool) -> None:
        """See `RunningTask.remove`."""
        files = files_of(self.directory, self.files, self.nodes)
        self.watch.forget(self.label, files)
        try:
            if self.job_id is not None:
                await asyncio.to_thread(self.client.cancel, self.job_id, self._name, at_once=True)
            await asyncio.to_thread(self.client.remove, files)
        except (SlurmAway, SlurmRefused) as error:
            _log.warning("job %s of task %s: %s", self.job_id, self.allocation_id, error)
        self.forget(clean=clean)

    # --- patience -----------------------------------------------------------------------------------------

    async def _until_answered(self, ask: Callable[[], T]) -> T:
        """Ask Slurm in a thread, again and again while it is away."""
        backoff = Backoff(first=0.5, cap=10.0)
        while True:
            try:
                return await asyncio.to_thread(ask)
            except SlurmAway:
                await asyncio.sleep(backoff.next_pause())
            except SlurmRefused as error:
                # Jobs that are there are asked for: this is a controller that is not itself yet.
                _log.warning("Slurm refuses: %s", error)
                await asyncio.sleep(max(1.0, backoff.next_pause()))

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer than until the task is told to end."""
        try:
            await asyncio.wait_for(self._killed.wait(), seconds)
        except TimeoutError:
            return


def _waiting(job: SlurmJob) -> str:
    """Return why a job waits, in Slurm's words, and when Slurm expects it to start."""
    reason = job.reason if job.reason not in {"", "None"} else "waits for its turn"
    if reason in STUCK:
        reason = f"{reason}: it does not start by itself, {STUCK[reason]}"
    start = f", expected to start {job.start.replace('T', ' ')}" if job.start else ""
    return f"Slurm job {job.id}: {reason}{start}"
