"""Operations on the job queue and on quotas."""

from __future__ import annotations

from typing import Literal
from urllib.parse import quote

from detlab.client.operations.experiments import one, pages
from detlab.client.transport.calls import Call, Flow, field_of, model
from detlab.schemas.jobwire import JobUpdate, JobView, JobWhy, LimitList, QuotaList, QuotaRequest, UidView
from detlab.schemas.wire.grants import GrantKind

_quotas = model(QuotaList)


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


def quotas() -> Flow[QuotaList]:
    """Fetch the quotas of slots and of bytes that the caller may see."""
    return one(Call("GET", "quotas", parse=_quotas))


def set_quota(kind: GrantKind, name: str, slots: int | None = None, *, storage: int | None = None) -> Flow[QuotaList]:
    """Limit the slots that a user or a group may hold at a time, the bytes that they may keep, or both.

    What is not named stays as it is. Returns all quotas.
    """
    request = QuotaRequest(kind=kind, name=name, slots=slots, storage=storage)
    return one(Call("PUT", "quotas", json=request, parse=_quotas))


def remove_quota(kind: GrantKind, name: str, what: Literal["slots", "storage"] | None = None) -> Flow[QuotaList]:
    """Remove a quota of slots, of bytes, or both; return the remaining ones."""
    params = {"kind": kind, "name": name, "what": what}
    return one(Call("DELETE", "quotas", params=params, parse=_quotas, again=False))
