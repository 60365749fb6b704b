"""Operations on resource pools and elastic pools."""

from __future__ import annotations

from detlab.client.operations.experiments import one
from detlab.client.transport.calls import Call, Flow, field_of
from detlab.schemas.elasticwire import ElasticPoolView
from detlab.schemas.poolwire import PoolView


def pools() -> Flow[list[PoolView]]:
    """List the resource pools, in the operator's order."""
    return one(Call("GET", "pools", parse=field_of("items", list[PoolView])))


def elastic_pools() -> Flow[list[ElasticPoolView]]:
    """List the elastic pools, with their instances and the last errors of their providers."""
    return one(Call("GET", "instances", parse=field_of("items", list[ElasticPoolView])))
