"""Operations on elastic pools (see `detlab.client.operations.experiments`)."""

from __future__ import annotations

from detlab.client.operations.experiments import one
from detlab.client.transport.calls import Call, Flow, field_of
from detlab.schemas.elasticwire import ElasticPoolView


def elastic_pools() -> Flow[list[ElasticPoolView]]:
    """Elastic pools with their instances and the last errors of their providers."""
    return one(Call("GET", "instances", parse=field_of("items", list[ElasticPoolView])))
