"""What Slurm's commands print, read: jobs, how they ended, partitions."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from detlab.schemas.wire import Partition

PENDING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)
ENDED = frozenset(
    {
        "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE",
        "OUT_OF_MEMORY", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL",
    }
)  # fmt: skip
PREFIX = "detlab-"
"""Names of jobs begin with it; the allocation, or the name of an array, follows."""
FIELDS = "%i|%U|%T|%r|%S|%L|%N|%D|%j|%k"
"""What squeue is asked to print of each job."""
_INDICES = re.compile(r"(?P<first>\d+)(?:-(?P<last>\d+)(?::(?P<step>[1-9]\d*))?)?")
_WAIT = re.compile(r"(?P<number>\d+)_\[(?P<indices>\d[\d,:-]*)(?:%\d+)?\]")


@dataclass(frozen=True)
class SlurmJob:
    """A job as `squeue` lists it.

    Attributes:
        id: Slurm's number of it; `NUMBER_INDEX` for a member of an array.
        state: Slurm's word, such as PENDING.
        reason: Why it waits, in Slurm's words.
        start: When it started, or is expected to; "" if that is not known.
        left: What is left of its time limit.
        nodes: Its nodes, as Slurm writes lists of them.
        node_count: On how many nodes it runs, or is to run.
        name: Its name.
        comment: Its comment.
        uid: Whose job it is.
    """

    id: str
    state: str
    reason: str = ""
    start: str = ""
    left: str = ""
    nodes: str = ""
    node_count: int = 1
    name: str = ""
    comment: str = ""
    uid: int | None = None

    @property
    def pending(self) -> bool:
        """Whether it waits for its nodes."""
        return self.state in PENDING

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.state in ENDED

    @property
    def label(self) -> str:
        """What it is called by its agent: its name without the beginning of all names, and its index in an array."""
        _, in_array, index = self.id.partition("_")
        return f"{self.name.removeprefix(PREFIX)}{in_array}{index}"

    @property
    def number(self) -> int:
        """By which jobs are older or newer."""
        found = re.match(r"\d+", self.id)
        return int(found[0]) if found else 0


@dataclass(frozen=True)
class JobEnd:
    """How a job ended: state, exit status (above 128 by a signal), and what an operator knows it by."""

    state: str
    status: int | None
    node: str = ""
    limit: str = ""
    restarts: int = 0


def job_of(line: str) -> SlurmJob | None:
    """Read a line of squeue in the format `FIELDS`; what a job's user has written comes last: name and comment."""
    fields = line.split("|", 9)
    if len(fields) != 10 or not fields[1].isdigit():
        return None
    number, uid, state, reason, start, left, nodes, count, name, comment = fields
    known = "" if start in {"N/A", "Unknown", ""} else start
    nodes_ = int(count) if count.isdigit() else 1
    return SlurmJob(number, state, reason, known, left, nodes, nodes_, name, comment, int(uid))


def each_of(job: SlurmJob) -> list[SlurmJob]:
    """Return the jobs of an array that wait: Slurm lists them as one, such as `71_[3,5-9:2%4]`. Others are one."""
    found = _WAIT.fullmatch(job.id)
    if found is None:
        return [job]
    parts = [_INDICES.fullmatch(part) for part in found["indices"].split(",")]
    indices = [
        index
        for part in parts
        if part is not None
        for index in range(int(part["first"]), int(part["last"] or part["first"]) + 1, int(part["step"] or 1))
    ]
    return [replace(job, id=f"{found['number']}_{index}") for index in indices]


def partition_of(line: str) -> Partition | None:
    """Read a line of sinfo: name, availability, time limit, and allocated, idle, other and all nodes."""
    fields = line.split("|")
    counts = fields[-1].split("/")
    if len(fields) != 4 or len(counts) != 4 or not all(map(str.isdigit, counts)):
        return None
    name, available, limit = (field.strip() for field in fields[:3])
    return Partition(
        name=name.removesuffix("*"),
        default=name.endswith("*"),
        up=available == "up",
        time_limit="" if limit in {"infinite", "n/a"} else limit,
        allocated=int(counts[0]),
        idle=int(counts[1]),
        other=int(counts[2]),
    )


def status_of(code: str) -> int | None:
    """Return the exit status for Slurm's `STATUS:SIGNAL`."""
    status, _, number = code.partition(":")
    if not status.isdigit():
        return None
    return 128 + int(number) if number.isdigit() and int(number) else int(status)
