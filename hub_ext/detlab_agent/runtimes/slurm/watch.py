"""One look at all jobs of this agent, again and again, for all who wait for one; jobs that nobody knows are ended."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from detlab_agent.runtimes.slurm.answers import PREFIX, SlurmJob
from detlab_agent.runtimes.slurm.client import SlurmAway, SlurmClient, SlurmRefused

_log = logging.getLogger(__name__)
IDLE_FACTOR = 6
"""So much rarer are the looks while this agent has no task."""
MOST_ENDED = 10
"""Jobs that are ended after one look: any user can submit thousands that look like former tasks of this agent."""
_REMEMBERED = 1000
"""Former tasks whose files are still known: a job of theirs may come late."""


class JobWatch:
    """The jobs as `squeue` lists them.

    Args:
        client: The cluster.
        comment: Marks the jobs of this agent.
        interval: Seconds between two looks.
        every_users: Whether jobs have the accounts of their owners.
    """

    def __init__(self, client: SlurmClient, comment: str, interval: float, *, every_users: bool = False) -> None:
        self._client, self.comment, self._interval = client, comment, interval
        self.every_users = every_users
        self._jobs: dict[str, list[SlurmJob]] = {}
        self._known: dict[str, str | None] = {}
        self._accounts: dict[str, int] = {}
        self._gone: dict[str, Sequence[PurePath]] = {}
        self._strangers: set[str] = set()
        self._looks = 0
        self._looked = asyncio.Condition()
        self._wanted = asyncio.Event()
        self.trouble = ""
        """Why the last look failed; "" if it did not."""

    def know(self, label: str, job_id: str | None, uid: int | None = None) -> None:
        """Note that there is, or will be, a job of a task; see `SlurmTask.label`.

        Args:
            label: What it is called.
            job_id: Its number, if that is known.
            uid: Its account, if that is known: a job of that name that another user has submitted is not it.
        """
        self._known[label] = job_id
        if uid is not None:
            self._accounts[label] = uid

    def forget(self, label: str, files: Sequence[PurePath] = ()) -> None:
        """Note that there must be none any more; one that is there still leaves files, which go when it has ended."""
        if files:
            self._gone[label] = files
            while len(self._gone) > _REMEMBERED:
                del self._gone[next(iter(self._gone))]
            if any(not job.ended for job in self.of(label)):
                self._strangers.add(label)
        self._known.pop(label, None)
        self._accounts.pop(label, None)

    def of(self, label: str) -> list[SlurmJob]:
        """Return the jobs of a task as last seen: one as a rule."""
        uid = self._accounts.get(label)
        return [job for job in self._jobs.get(label, []) if uid is None or job.uid == uid]

    def look_soon(self) -> None:
        """Have the next look at once."""
        self._wanted.set()

    async def next_look(self, *, fresh: bool = False) -> None:
        """Wait for the next look that succeeds, and, if `fresh`, that begins after now."""
        async with self._looked:
            begun = self._looks + (2 if fresh else 1)
            if fresh:
                self._wanted.set()
            await self._looked.wait_for(lambda: self._looks >= begun)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                jobs = await asyncio.to_thread(self._client.jobs)
            except (SlurmAway, SlurmRefused) as error:
                if str(error) != self.trouble:
                    _log.warning("Slurm does not answer: %s; its jobs run on", error)
                self.trouble = str(error) or type(error).__name__
            else:
                await self._take(jobs)
            pause = self._interval * (1 if self._known else IDLE_FACTOR)
            try:
                await asyncio.wait_for(self._wanted.wait(), pause)
            except TimeoutError:
                continue
            self._wanted.clear()
            await asyncio.sleep(min(0.1, self._interval))

    async def _take(self, jobs: Iterable[SlurmJob]) -> None:
        if self.trouble:
            _log.info("Slurm answers again")
        self.trouble = ""
        found: dict[str, list[SlurmJob]] = {}
        for job in jobs:
            if job.comment == self.comment and job.name.startswith(PREFIX):
                found.setdefault(job.label, []).append(job)
        self._jobs = {label: sorted(several, key=lambda job: job.number) for label, several in found.items()}
        await self._end_strangers()
        async with self._looked:
            self._looks += 1
            self._looked.notify_all()

    async def _end_strangers(self) -> None:
        """End live jobs of tasks that this agent does not have, and second ones of those that it has.

        Some after each look, of each user one in turn: all tasks wait for the next look.
        """
        turns = Counter[int | None]()
        queue: list[tuple[int, SlurmJob, str]] = []
        for label in self._jobs:
            live = [job for job in self.of(label) if not job.ended]
            known = label in self._known
            kept = {self._known[label] or live[0].id} if known and live else set()
            for job in live:
                if job.id not in kept:
                    queue.append((turns[job.uid], job, "" if known else label))
                    turns[job.uid] += 1
        for _, job, label in sorted(queue, key=lambda one: one[0])[:MOST_ENDED]:
            said = f"of the former task {label}" if label else f"of task {job.label} is a second one, and"
            _log.warning("job %s %s is cancelled", job.id, said)
            await self._end(job, label)

        for label in list(self._strangers):
            if all(job.ended for job in self.of(label)):
                await self._clean(label)

    async def _end(self, job: SlurmJob, label: str) -> None:
        if label:
            self._strangers.add(label)
        try:
            await asyncio.to_thread(self._client.cancel, job.id, job.name, at_once=True)
        except (SlurmAway, SlurmRefused) as error:
            _log.warning("job %s stays until the next look: %s", job.id, error)

    async def _clean(self, label: str) -> None:
        """Remove the files of a stranger that has ended: one that is only just starting still writes some.

        Only files whose names this agent has chosen: a job's user can give it any name, and so a path's.
        """
        files = self._gone.get(label)
        try:
            if files:
                await asyncio.to_thread(self._client.remove, files)
        except (SlurmAway, SlurmRefused) as error:
            _log.warning("files of the former task %s stay until the next look: %s", label, error)
        else:
            self._strangers.discard(label)
            self._gone.pop(label, None)
