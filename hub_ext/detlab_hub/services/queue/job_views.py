"""Jobs in the order of their pools' queues, and the views of them that callers get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from detlab.schemas.jobwire import EXPERIMENT, JobView
from detlab_hub.core.rights import ObjectKind
from detlab_hub.core.scheduling import Job
from detlab_hub.core.scheduling.order import place_of_job
from detlab_hub.services.base.access import knows, owns
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.queue.queue import ANOTHER_USER, by_priority
from detlab_hub.services.views.experiment_views import Reasons
from detlab_hub.store.queries.jobs import Live
from detlab_hub.store.tables import ExperimentRow, TaskRow

QUEUED = "queued"
RUNNING = "running"


@dataclass
class QueueEntry:
    """A job, and its allocations that have not ended.

    Attributes:
        job: As the scheduler sees it; its id is the experiment's number, or the user task's id.
        pool: Where it waits.
        owner: Whose it is.
        kind: experiment, or a user task's kind.
        name: Its owner's name for it.
        live: Its allocations, in the order in which they are considered.
    """

    job: Job
    pool: str
    owner: str
    kind: str
    name: str
    live: list[Live] = field(default_factory=list)

    @property
    def waiting(self) -> list[Live]:
        """Its pending allocations."""
        return [one for one in self.live if one.pending]


def entry_of(row: ExperimentRow | TaskRow) -> QueueEntry:
    """Make the job of a row, without its allocations."""
    job = Job(
        id=str(row.id),
        priority=row.priority,
        weight=row.weight,
        max_slots=row.max_slots,
        submitted=row.created_at,
        position=row.position,
    )
    kind = row.kind if isinstance(row, TaskRow) else EXPERIMENT
    return QueueEntry(job, row.resource_pool, row.owner, kind, row.name)


def entries(live: Iterable[Live]) -> dict[str, QueueEntry]:
    """Group allocations into jobs, by the jobs' ids."""
    found: dict[str, QueueEntry] = {}
    for one in sorted(live, key=lambda one: (one.idx or 0, one.requested_at, one.allocation_id)):
        number = one.task_id if one.experiment_id is None else str(one.experiment_id)
        if number is None:
            continue
        if number not in found:
            job = Job(number, one.priority, one.weight, one.max_slots, one.submitted_at, one.position)
            found[number] = QueueEntry(job, one.pool, one.owner, one.kind or EXPERIMENT, one.name)
        found[number].live.append(one)
    return found


def lines(settings: Settings, found: Iterable[QueueEntry]) -> dict[str, list[QueueEntry]]:
    """Return the jobs of each pool, in the order in which they are considered."""
    pools: dict[str, list[QueueEntry]] = {}
    for entry in found:
        pools.setdefault(entry.pool, []).append(entry)
    for pool, standing in pools.items():
        ranked = by_priority(settings, pool)
        standing.sort(key=lambda entry: (entry.job.priority if ranked else 0, place_of_job(entry.job)))
    return dict(sorted(pools.items()))


def job_view(
    entry: QueueEntry,
    order: int,
    caller: Caller,
    reasons: Reasons,
    starts: Mapping[str, float | None],
    now: float,
    elsewhere: Mapping[str, str],
) -> JobView:
    """Make the view of a job for a caller (I9): of another user's job only position, size and age are shown.

    Args:
        entry: The job.
        order: Its place in its pool, from 1.
        caller: Who looks.
        reasons: Why allocations wait.
        starts: Seconds until each allocation starts; None where that is not known.
        now: The time, in seconds since the epoch.
        elsewhere: What allocations wait for that were handed to a cluster with a queue of its own.
    """
    waiting = entry.waiting
    held = [one for one in entry.live if not one.pending]
    why = [elsewhere[one.allocation_id] for one in held if one.allocation_id in elsewhere]
    known = [seconds for one in waiting if (seconds := starts.get(one.allocation_id)) is not None]
    public = JobView(
        id=f"place {order}",
        kind=entry.kind,
        owner=ANOTHER_USER,
        pool=entry.pool,
        state=RUNNING if len(held) > len(why) else QUEUED,
        order=order,
        priority=entry.job.priority,
        weight=entry.job.weight,
        slots_held=sum(one.held for one in held),
        slots_wanted=sum(one.slots_needed for one in waiting),
        tasks_waiting=len(waiting),
        submitted_at=entry.job.submitted,
    )
    if not knows(caller, ObjectKind.JOB, entry.owner):
        return public
    told = {
        "id": entry.job.id,
        "name": entry.name,
        "owner": entry.owner,
        "mine": owns(caller, entry.owner),
        "max_slots": entry.job.max_slots,
        "moved": entry.job.position is not None,
        "reason": why[0] if why else reasons.get(waiting[0].allocation_id, "") if waiting else "",
        "estimated_start": now + min(known) if known else None,
    }
    return public.model_copy(update=told)


def views(
    standing: Mapping[str, Sequence[QueueEntry]],
    caller: Caller,
    reasons: Reasons,
    starts: Mapping[str, float | None],
    now: float,
    elsewhere: Mapping[str, str],
) -> list[tuple[QueueEntry, JobView]]:
    """Make the views of all jobs of all lines, in their order."""
    return [
        (entry, job_view(entry, order, caller, reasons, starts, now, elsewhere))
        for line in standing.values()
        for order, entry in enumerate(line, 1)
    ]
