"""Operations on quotas."""

from __future__ import annotations

from typing import Literal

from detlab.client.operations.experiments import one
from detlab.client.transport.calls import Call, Flow, model, valid_request
from detlab.schemas.jobwire import QuotaList, QuotaRequest
from detlab.schemas.wire.grants import GrantKind

_quotas = model(QuotaList)


def quotas() -> Flow[QuotaList]:
    """Fetch the quotas of slots and of bytes that the caller may see."""
    return one(Call("GET", "quotas", parse=_quotas))


def set_quota(kind: GrantKind, name: str, slots: int | None = None, *, storage: int | None = None) -> Flow[QuotaList]:
    """Limit the slots that a user or a group may hold at a time, the bytes that they may keep, or both.

    What is not named stays as it is. Returns all quotas.
    """
    with valid_request():
        request = QuotaRequest(kind=kind, name=name, slots=slots, storage=storage)
    return one(Call("PUT", "quotas", json=request, parse=_quotas))


def remove_quota(kind: GrantKind, name: str, what: Literal["slots", "storage"] | None = None) -> Flow[QuotaList]:
    """Remove a quota of slots, of bytes, or both; return the remaining ones."""
    params = {"kind": kind, "name": name, "what": what}
    return one(Call("DELETE", "quotas", params=params, parse=_quotas, again=False))
