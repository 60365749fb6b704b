"""Which world a seed is: a search on a small cluster, or a cluster that many people share, every second one."""

from __future__ import annotations

from simulation.cluster import Cluster
from simulation.world import World

WORLDS: dict[str, type[World]] = {"search": World, "cluster": Cluster}


def world_of(seed: int, name: str | None = None) -> type[World]:
    """The world of a seed, if none is named."""
    return WORLDS[name or ("cluster" if seed % 2 else "search")]
