"""Which world a seed is: every second one is a cluster that many people share, the others a search on a small cluster,
of which every fourth one grows and shrinks."""

from __future__ import annotations

from simulation.cluster import Cluster
from simulation.elastic import Elastic
from simulation.world import World

WORLDS: dict[str, type[World]] = {"search": World, "cluster": Cluster, "elastic": Elastic}
ELASTIC_FROM = 100
"""Seeds below are as they were: by them bugs, of which some are planted ones, are known to be found."""


def world_of(seed: int, name: str | None = None) -> type[World]:
    """The world of a seed, if none is named."""
    if name is None:
        name = "cluster" if seed % 2 else "elastic" if seed % 8 == 6 and seed >= ELASTIC_FROM else "search"
    return WORLDS[name]
