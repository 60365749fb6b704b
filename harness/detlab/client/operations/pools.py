"""Operations on resource pools (see `detlab.client.operations.experiments`)."""

from __future__ import annotations

from detlab.client.operations.experiments import one
from detlab.client.transport.calls import Call, Flow, field_of
from detlab.schemas.poolwire import PoolView


def pools() -> Flow[list[PoolView]]:
    """The resource pools, in the operator's order."""
    return one(Call("GET", "pools", parse=field_of("items", list[PoolView])))
