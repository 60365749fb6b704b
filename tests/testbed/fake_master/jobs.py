"""The fake master's job queue and quotas (see `testbed.fake_master.tasks`)."""

from __future__ import annotations

from typing import Any

from detlab.schemas.jobwire import JobUpdate, JobView, QuotaRequest, QuotaView, StorageQuotaView
from testbed.fake_master.requests import Route
from testbed.fake_master.state import ErrorReply


def _jobs(h: Any) -> None:
    found = h.master.jobs
    if "pool" in h.query:
        found = [item for item in found if item.pool == h.query["pool"]]
    if h.query.get("mine") == "true":
        found = [item for item in found if item.mine]
    h.tell({"items": found})


def _job(h: Any, job_id: str) -> JobView:
    for item in h.master.jobs:
        if item.id == job_id:
            found: JobView = item
            return found
    raise ErrorReply(404, "not_found", f"there is no job {job_id}")


def _update(h: Any, job_id: str) -> None:
    item = _job(h, job_id)
    change = JobUpdate.model_validate_json(h.body)
    named = change.model_dump(exclude_none=True, exclude={"ahead_of", "behind_of"})
    moved = item.model_copy(update=named)
    others = [one for one in h.master.jobs if one.id != job_id]
    beside = change.ahead_of or change.behind_of
    if beside is None:
        others.insert(h.master.jobs.index(item), moved)
    else:
        at = others.index(_job(h, beside))
        others.insert(at if change.ahead_of else at + 1, moved)
    h.master.jobs = [one.model_copy(update={"order": place}) for place, one in enumerate(others, 1)]
    h.tell(_job(h, job_id))


def _why(h: Any, job_id: str) -> None:
    if job_id not in h.master.whys:
        raise ErrorReply(404, "not_found", f"there is no job {job_id}")
    h.tell(h.master.whys[job_id])


def _tell_quotas(h: Any) -> None:
    slots, stored = h.master.quotas, h.master.storage_quotas
    h.tell(
        {
            "items": [slots[key] for key in sorted(slots, reverse=True)],
            "storage": [stored[key] for key in sorted(stored, reverse=True)],
        }
    )


def _put_quota(h: Any) -> None:
    request = QuotaRequest.model_validate_json(h.body)
    whose = {"kind": request.kind, "name": request.name, "set_by": "alice"}
    key = request.kind, request.name
    if request.slots is not None:
        h.master.quotas[key] = QuotaView.model_validate({**whose, "slots": request.slots})
    if request.storage is not None:
        h.master.storage_quotas[key] = StorageQuotaView.model_validate({**whose, "storage": request.storage})
    _tell_quotas(h)


def _delete_quota(h: Any) -> None:
    key, what = (h.query["kind"], h.query["name"]), h.query.get("what")
    slots = None if what == "storage" else h.master.quotas.pop(key, None)
    stored = None if what == "slots" else h.master.storage_quotas.pop(key, None)
    if slots is None and stored is None:
        raise ErrorReply(404, "not_found", f"the {h.query['kind']} {h.query['name']!r} has no quota")
    _tell_quotas(h)


def _storage_usage(h: Any) -> None:
    h.tell(h.master.storage_usage[h.query.get("by", "user")])


def _instances(h: Any) -> None:
    h.tell({"items": h.master.elastic_pools})


def _pools(h: Any) -> None:
    h.tell({"items": h.master.pools})


JOB_ROUTES: list[Route] = [
    ("GET", r"instances", _instances),
    ("GET", r"pools", _pools),
    ("GET", r"jobs", _jobs),
    ("POST", r"jobs/([^/]+)", _update),
    ("GET", r"jobs/([^/]+)/why", _why),
    ("GET", r"quotas", _tell_quotas),
    ("PUT", r"quotas", _put_quota),
    ("DELETE", r"quotas", _delete_quota),
    ("GET", r"storage/usage", _storage_usage),
]
