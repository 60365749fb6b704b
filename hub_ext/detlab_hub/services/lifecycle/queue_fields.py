"""The queue's fields of a config (pool, priority, weight), as the rows of experiments and user tasks store them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detlab.errors import ConfigError, Problem
from detlab_hub.core.scheduling import PoolConfig
from detlab_hub.core.scheduling.governing import GovernedMounts
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.limits.checks import check_priority
from detlab_hub.services.base.settings import Settings

WHERE = "resources.resource_pool"
SINGLE_NODE = "single_node"
"""Among the stored constraints of a request: all its slots must be on one agent."""
SEVERAL_NODES = "several_nodes"
"""Likewise of a user task: they need not be, as they must otherwise."""


def pool_for(settings: Settings, resources: Mapping[str, Any], slots: int) -> PoolConfig:
    """Return the pool in which something runs.

    Args:
        settings: The master's settings.
        resources: The block of its config.
        slots: How many slots it needs.

    Raises:
        ConfigError: There is no pool of that name.
    """
    name = settings.pools.named(resources.get("resource_pool") or "", slots)
    pool = settings.pools.of(name)
    if pool is None:
        there = ", ".join(settings.pools.by_name)
        raise ConfigError([Problem(WHERE, f"there is no pool {name[:80]!r}", f"there are: {there}")])
    return pool


def queue_fields(settings: Settings, config: Mapping[str, Any], slots: int, owner: Caller) -> dict[str, Any]:
    """Return the columns by which something new is scheduled.

    Raises:
        ConfigError: It names a pool that does not exist.
        NotAllowed: Its priority is better than its owner may give.
    """
    resources = config.get("resources") or {}
    pool = pool_for(settings, resources, slots)
    priority, weight = resources.get("priority"), resources.get("weight")
    check_priority(settings.limits, owner, None if priority is None else int(priority), pool.priority)
    most = resources.get("max_slots")
    return {
        "resource_pool": pool.name,
        "priority": pool.priority if priority is None else int(priority),
        "weight": 1.0 if weight is None else float(weight),
        "max_slots": None if most is None else min(int(most), 2**31 - 1),  # the column's largest
        "owner_groups": sorted(owner.groups),
    }


def request_fields(config: Mapping[str, Any], mounts: GovernedMounts) -> dict[str, Any]:
    """Return the columns of an allocation that say where it may run, with which resources, and for how long at most.

    Args:
        config: Of what runs.
        mounts: Those of the cluster that a pool must be fit for.
    """
    resources = config.get("resources") or {}
    wanted = {key: value for key, value in (resources.get("constraints") or {}).items() if value}
    if resources.get("is_single_node"):
        wanted[SINGLE_NODE] = True
    elif "slots_per_trial" not in resources and resources.get("is_single_node") is False:
        wanted[SEVERAL_NODES] = True
    if requires := mounts.required_by(config):
        wanted["requires"] = sorted(requires)
    return {"constraints": wanted or None, "max_time": resources.get("max_time"), **demands(resources)}


def demands(resources: Mapping[str, Any]) -> dict[str, int]:
    """Return the CPUs, in thousandths, and the memory, in bytes, that the block `resources` asks for on each agent."""
    cpus, memory = resources.get("cpus") or 0.0, resources.get("memory") or 0
    most = 2**62  # more than any agent has, and the column's largest is not much more
    return {"millicpus": round(min(float(cpus) * 1000, most)), "memory": min(int(memory), most)}
