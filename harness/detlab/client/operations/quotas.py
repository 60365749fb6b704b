"""Operations on quotas."""

from __future__ import annotations

from typing import Literal

from detlab.client.operations.experiments import one
from detlab.client.transport.calls import Call, Flow, model, valid_request
from detlab.schemas.jobwire import QuotaKind, QuotaList, QuotaRequest

_quotas = model(QuotaList)


def quotas() -> Flow[QuotaList]:
    """Fetch the quotas of slots and of bytes that the caller may see."""
    return one(Call("GET", "quotas", parse=_quotas))


def set_quota(
    kind: QuotaKind, name: str, slots: int | None = None, *, storage: int | None = None, cost: float | None = None
) -> Flow[QuotaList]:
    """Limit the slots that a user, a group or a workspace may hold at a time, the bytes that users may keep, or costs.

    A cap of cost is for a user or a project (by its id) in a month, or for an experiment (by its id) in all.

    A workspace, by its name, `OWNER/NAME` or id, has a quota of slots alone. What is not named stays as it is. Returns
    all quotas.
    """
    with valid_request():
        request = QuotaRequest(kind=kind, name=name, slots=slots, storage=storage, cost=cost)
    return one(Call("PUT", "quotas", json=request, parse=_quotas))


def remove_quota(
    kind: QuotaKind, name: str, what: Literal["slots", "storage", "cost"] | None = None
) -> Flow[QuotaList]:
    """Remove a quota of slots or of bytes, a cap of cost, or all of them; return the remaining ones."""
    params = {"kind": kind, "name": name, "what": what}
    return one(Call("DELETE", "quotas", params=params, parse=_quotas, again=False))
