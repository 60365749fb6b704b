"""Which world a seed is: a search on a small cluster; or a cluster that many people share, one of eight (of the first
two hundred one of two); or one that grows and shrinks, one of sixteen (of the second hundred one of eight)."""

from __future__ import annotations

from simulation.cluster import Cluster
from simulation.elastic import Elastic
from simulation.machines.collected import Collected
from simulation.machines.engines import Engines
from simulation.machines.steered import Steered
from simulation.world import World

WORLDS: dict[str, type[World]] = {
    "search": World,
    "cluster": Cluster,
    "elastic": Elastic,
    "steered": Steered,
    "collected": Collected,
    "engines": Engines,
}
ELASTIC_FROM = 100
"""Seeds below are as they were: by them bugs, of which some are planted ones, are known to be found."""
FEWER_FROM = 200
"""Shared and elastic clusters take nearly twice as long as searches: from here on they are fewer, as `make test` has
half an hour for all. `--world` makes any seed one of them."""


def world_of(seed: int, name: str | None = None) -> type[World]:
    """The world of a seed, if none is named."""
    if name is None:
        few = seed >= FEWER_FROM
        shared = seed % 8 == 1 if few else seed % 2 == 1
        elastic = seed >= ELASTIC_FROM and (seed % 16 == 6 if few else seed % 8 == 6)
        name = "cluster" if shared else "elastic" if elastic else "search"
    return WORLDS[name]
