"""Tasks that come together and ask for the same, as one job array: few submissions for many small trials.

Which member of which array a task is stands in its record before the array is submitted. So an agent that dies in
between finds its job again by the array's name and the index, as it finds any other by its name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from detlab.backoff import Backoff
from detlab_agent.runtimes.base import Say
from detlab_agent.runtimes.slurm.client import SlurmAway, SlurmClient, SlurmRefused
from detlab_agent.runtimes.slurm.script import OUTPUT, JobRequest, file_of, files_name, job_name, set_parcel
from detlab_agent.runtimes.slurm.watch import JobWatch

_log = logging.getLogger(__name__)
GATHER = 0.5
"""Seconds for which the first task of an array waits for others."""
LARGEST_SCRIPT = 2 << 20
"""Bytes of all parcels of an array: Slurm takes scripts of 4 MiB, where max_script_size does not say otherwise."""
_INDEX = "SLURM_ARRAY_TASK_ID"


def alike(request: JobRequest) -> Hashable:
    """Return what tasks must have in common to be in one array: all but what they are made of."""
    return request.like, request.whose, request.common, request.write(file_of(request.directory, ""), [])


def array_of(name: str, files: str, requests: Mapping[int, JobRequest]) -> tuple[tuple[str, ...], str]:
    """Return an array of jobs that are alike: the arguments for sbatch, and the script, in which each finds its own.

    Args:
        name: Of the array.
        files: What the files of all are called, before their indices.
        requests: Its jobs by their indices.
    """
    first = next(iter(requests.values()))
    arguments = (
        *first.common,
        f"--job-name={job_name(name)}",
        f"--array={','.join(map(str, requests))}",
        f"--output={first.directory / files}_%a{OUTPUT}",
    )
    parcels = [f"{index}) {set_parcel(request.parcel)} ;;" for index, request in requests.items()]
    file = file_of(first.directory, files, f'_"${_INDEX}"')
    return arguments, first.write(file, [f"case ${_INDEX} in", *parcels, "esac"])


@dataclass(eq=False)
class ArrayMember:
    """A task that may become one of an array.

    Attributes:
        request: Its job.
        call: Gives it its label, and its files their name.
        note: Writes its record.
        wanted: Whether it is not told to end meanwhile.
        say: Tells the master what it waits for.
        turn: Its place in the order in which the master handed tasks over: Slurm starts those of an array in theirs.
        done: The id of its job; None: it is to be submitted by itself.
    """

    request: JobRequest
    call: Callable[[str, str], None]
    note: Callable[[], None]
    wanted: Callable[[], bool]
    say: Say
    turn: int = 0
    done: asyncio.Future[str | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def answer(self, job_id: str | None) -> None:
        """Tell it the id of its job; at the end of the agent it may wait no more."""
        if not self.done.done():
            self.done.set_result(job_id)


@dataclass(eq=False)
class _Group:
    """Tasks that are alike, while others may join."""

    members: list[ArrayMember] = field(default_factory=list)
    size: int = 0
    full: asyncio.Event = field(default_factory=asyncio.Event)


class Arrays:
    """Gathers tasks, and submits those that are alike as an array.

    Args:
        client: The cluster.
        watch: The looks at all jobs.
        most: The most tasks of an array.
    """

    def __init__(self, client: SlurmClient, watch: JobWatch, most: int) -> None:
        self._client, self._watch, self._most = client, watch, most
        self._largest: int | None = None
        self._open: dict[Hashable, _Group] = {}
        self._work: set[asyncio.Task[None]] = set()

    async def submit(self, member: ArrayMember) -> str | None:
        """Submit a task together with others that are alike and come within `GATHER`.

        Returns:
            The id of its job; None: it has none, and is to be submitted by itself.
        """
        key = alike(member.request)
        group = self._open.get(key)
        if group is not None and group.size + len(member.request.parcel) > LARGEST_SCRIPT:
            group.full.set()
            group = None
        if group is None:
            group = self._open[key] = _Group()
            work = asyncio.create_task(self._gather(key, group))
            self._work.add(work)
            work.add_done_callback(self._work.discard)
        group.members.append(member)
        group.size += len(member.request.parcel)
        if len(group.members) >= self._most:
            group.full.set()
            del self._open[key]
        return await member.done

    async def close(self) -> None:
        """Stop: what is not submitted yet is not."""
        for work in self._work:
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    async def _gather(self, key: Hashable, group: _Group) -> None:
        try:
            try:
                await asyncio.wait_for(group.full.wait(), GATHER)
            except TimeoutError:
                pass
            if self._open.get(key) is group:
                del self._open[key]
            members, most = sorted(group.members, key=lambda member: member.turn), await self._limit()
            parts = [members[begin : begin + most] for begin in range(0, len(members), most)]
            await asyncio.gather(*(self._submit(part) for part in parts))
        except Exception as error:
            # The last door: without an answer the tasks would wait forever.
            _log.exception("the array of %d tasks", len(group.members))
            for member in group.members:
                if not member.done.done():
                    member.done.set_exception(error)
        finally:
            for member in group.members:
                member.done.cancel()

    async def _limit(self) -> int:
        """Return how many tasks an array may have here; 1 where there are no arrays."""
        if self._largest is None:
            try:
                self._largest = await asyncio.to_thread(self._client.largest_array)
            except (SlurmAway, SlurmRefused):
                return self._most  # it is asked again; an array that is too large is refused
        return max(1, min(self._most, self._largest))

    async def _submit(self, members: Sequence[ArrayMember]) -> None:
        """Submit the array, once: after an answer that got lost, it is looked for by its name first."""
        if len(members) == 1:
            members[0].answer(None)
            return
        name = f"array-{members[0].request.label}"
        files = files_name(name)
        labels = [f"{name}_{index}" for index in range(len(members))]
        for index, member in enumerate(members):
            member.call(labels[index], f"{files}_{index}")
        for member in members:
            await asyncio.to_thread(member.note)
        left, backoff, uncertain = dict(enumerate(members)), Backoff(first=0.5, cap=5.0), False
        number: str | None = None
        while number is None and left:
            if uncertain and (number := await self._found(labels)) is not None:
                break
            for index in [index for index, member in left.items() if not member.wanted()]:
                left.pop(index).answer(None)
            if not left:
                return
            array = array_of(name, files, {index: member.request for index, member in left.items()})
            try:
                number = await asyncio.to_thread(self._client.submit, *array, members[0].request.whose)
            except SlurmAway as error:
                uncertain = True
                for member in left.values():
                    member.say("queued", f"Slurm does not answer: {error}")
                await asyncio.sleep(backoff.next_pause())
            except SlurmRefused as error:
                # Perhaps it takes some of them, and each is told what is wrong with it.
                _log.info("Slurm does not take the array of %d tasks: %s; each is submitted alone", len(left), error)
                break
        for index, member in left.items():
            member.answer(None if number is None else f"{number}_{index}")

    async def _found(self, labels: Sequence[str]) -> str | None:
        """Return the number of the array, looked for by its name."""
        await self._watch.next_look(fresh=True)
        numbers = [job.id.partition("_")[0] for label in labels for job in self._watch.of(label) if "_" in job.id]
        return min(numbers, key=int, default=None)
