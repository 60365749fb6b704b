"""Operations on resource pools (see `detlab.client.operations`)."""

from __future__ import annotations

from detlab.client.calls import Call, Flow, field_of
from detlab.client.operations import one
from detlab.schemas.poolwire import PoolView


def pools() -> Flow[list[PoolView]]:
    """The resource pools, in the operator's order."""
    return one(Call("GET", "pools", parse=field_of("items", list[PoolView])))
