"""Which world a seed is: a search on a small cluster; or a cluster that many people share, one of four (of the first
two hundred one of two); or one that grows and shrinks, one of eight."""

from __future__ import annotations

from simulation.cluster import Cluster
from simulation.elastic import Elastic
from simulation.world import World

WORLDS: dict[str, type[World]] = {"search": World, "cluster": Cluster, "elastic": Elastic}
ELASTIC_FROM = 100
"""Seeds below are as they were: by them bugs, of which some are planted ones, are known to be found."""
FEWER_SHARED_FROM = 200
"""Shared clusters take nearly twice as long as searches: of 2,000 seeds, 550 are enough to find planted bugs by."""


def world_of(seed: int, name: str | None = None) -> type[World]:
    """The world of a seed, if none is named."""
    if name is None:
        shared = seed % 2 == 1 if seed < FEWER_SHARED_FROM else seed % 4 == 1
        name = "cluster" if shared else "elastic" if seed % 8 == 6 and seed >= ELASTIC_FROM else "search"
    return WORLDS[name]
