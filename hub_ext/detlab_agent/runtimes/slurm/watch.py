"""One look at all jobs of this agent, again and again, for all who wait for one; jobs that nobody knows are ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import PurePath

from detlab_agent.runtimes.slurm.client import Job, SlurmAway, SlurmClient, SlurmRefused
from detlab_agent.runtimes.slurm.script import PREFIX, files_of

_log = logging.getLogger(__name__)
IDLE_FACTOR = 6
"""So much rarer are the looks while this agent has no task."""


class JobWatch:
    """The jobs as `squeue` lists them.

    Args:
        client: The cluster.
        directory: The shared folder.
        comment: Marks the jobs of this agent.
        interval: Seconds between two looks.
    """

    def __init__(self, client: SlurmClient, directory: PurePath, comment: str, interval: float) -> None:
        self._client, self._directory, self._comment, self._interval = client, directory, comment, interval
        self._jobs: dict[str, list[Job]] = {}
        self._known: dict[str, str | None] = {}
        self._looks = 0
        self._looked = asyncio.Condition()
        self._wanted = asyncio.Event()
        self.trouble = ""
        """Why the last look failed; "" if it did not."""

    def know(self, allocation_id: str, job_id: str | None) -> None:
        """Note that there is, or will be, a job of this allocation."""
        self._known[allocation_id] = job_id

    def forget(self, allocation_id: str) -> None:
        """Note that there must be none any more."""
        self._known.pop(allocation_id, None)

    def of(self, allocation_id: str) -> list[Job]:
        """Return the jobs of an allocation as last seen: one as a rule."""
        return self._jobs.get(allocation_id, [])

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

    async def _take(self, jobs: Iterable[Job]) -> None:
        if self.trouble:
            _log.info("Slurm answers again")
        self.trouble = ""
        found: dict[str, list[Job]] = {}
        for job in jobs:
            if job.comment == self._comment and job.name.startswith(PREFIX):
                found.setdefault(job.name.removeprefix(PREFIX), []).append(job)
        self._jobs = {name: sorted(several, key=lambda job: int(job.id)) for name, several in found.items()}
        await self._end_strangers()
        async with self._looked:
            self._looks += 1
            self._looked.notify_all()

    async def _end_strangers(self) -> None:
        """End live jobs of allocations that this agent does not have, and second ones of those that it has."""
        for name, several in self._jobs.items():
            live = [job for job in several if not job.ended]
            if name not in self._known:
                for job in live:
                    _log.warning("job %s of the former task %s is cancelled", job.id, name)
                    await self._end(job, name)
            elif len(live) > 1:
                kept = self._known[name] or live[0].id
                for job in live:
                    if job.id != kept:
                        _log.warning("job %s of task %s is a second one, and is cancelled", job.id, name)
                        await self._end(job, "")

    async def _end(self, job: Job, name: str) -> None:
        try:
            await asyncio.to_thread(self._client.cancel, job.id, job.name, at_once=True)
            if name:
                await asyncio.to_thread(self._client.remove, files_of(self._directory, name, job.node_count))
        except (SlurmAway, SlurmRefused) as error:
            _log.warning("job %s stays until the next look: %s", job.id, error)
