"""Operations on the job queue, and what users are limited to."""

from __future__ import annotations

from urllib.parse import quote

from detlab.client.operations.experiments import one, pages
from detlab.client.transport.calls import Call, Flow, field_of, model
from detlab.schemas.jobwire import JobUpdate, JobView, JobWhy, LimitList, UidView


def jobs(*, pool: str | None = None, mine: bool = False) -> Flow[list[JobView]]:
    """List the jobs that hold slots or wait for them, in the order of their pools' queues."""
    params = {"pool": pool, "mine": "true" if mine else None}
    return pages("jobs", JobView, "skip", None, params)


def update_job(job_id: str, change: JobUpdate) -> Flow[JobView]:
    """Change a job; repeating the same change has no effect."""
    return one(Call("POST", f"jobs/{quote(job_id, safe='')}", json=change, parse=model(JobView)))


def why(job_id: str) -> Flow[JobWhy]:
    """Explain why a job, or a trial such as `trial-12`, waits."""
    return one(Call("GET", f"jobs/{quote(job_id, safe='')}/why", parse=model(JobWhy)))


def limits() -> Flow[LimitList]:
    """Fetch the per-user limits, and those users at or near each of them whom the caller may see."""
    return one(Call("GET", "limits", parse=model(LimitList)))


def uids() -> Flow[list[UidView]]:
    """Fetch the uid of each user who has run tasks (administrators only)."""
    return one(Call("GET", "uids", parse=field_of("items", list[UidView])))
