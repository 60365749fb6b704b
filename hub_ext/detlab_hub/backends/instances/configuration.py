"""The `provider` of a pool in the operator's configuration file.

c.DetHub.pools = {
    "elastic": {"provider": {"type": "local", "slots": 2, "max_instances": 4, "max_idle_agent_period": 600}},
}
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from detlab.schemas.expconf.blocks.environment import parse_size
from detlab_hub.backends.instances.aws import AwsProvider, AwsSettings
from detlab_hub.backends.instances.base import Provider
from detlab_hub.backends.instances.local import LocalProvider
from detlab_hub.core.provisioning import Limits, Shape, with_shape
from detlab_hub.core.scheduling import MAX_ZERO_SLOT_TASKS, UNBOUNDED, Agent, PoolConfig, Pools

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_TEMPLATE = {"slots", "slot_type", "gpu", "gpu_memory", "runtimes", "labels", "max_zero_slot_tasks", "cpus", "memory"}
_COUNTED = ("cpus", "memory")
"""Options that are passed to instances, so that their agents use the same values."""


@dataclass(frozen=True, slots=True)
class ElasticPool:
    """A pool that grows and shrinks.

    Attributes:
        name: Name of the pool.
        provider: Launches its instances.
        limits: The limits of its size.
        template: The agent of an instance.
        like: Identifies the settings that the template depends on: instances launched with others may differ.
    """

    name: str
    provider: Provider
    limits: Limits
    template: Agent
    like: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts about the cluster for providers.

    Attributes:
        folder: Where local instances are kept.
        master: Address of the service, as agents reach it.
        cluster: The cluster's id.
        local_arguments: Options of `det agent run` that every agent of this machine has.
    """

    folder: Path
    master: str
    cluster: str
    local_arguments: tuple[str, ...] = ()


def make_pools(pools: Pools, around: Surroundings) -> tuple[ElasticPool, ...]:
    """Make the elastic pools: those that have a provider.

    Raises:
        ValueError: Something in the configuration is wrong; the message says where and what.
    """
    found = pools.by_name.values()
    elastic = ((pool, _pool(pool.name, pool.provider, around)) for pool in found if pool.provider is not None)
    return tuple(replace(made, template=_divided(made.template, pool)) for pool, made in elastic)


def like_of(provider: Mapping[str, Any]) -> str:
    """Return what identifies a provider's settings, except for those about the number of instances."""
    bounds = {one.name for one in fields(Limits)}
    kept = {key: value for key, value in provider.items() if key not in bounds}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:16]


def largest_growth(pool: PoolConfig, known: Shape | None = None) -> tuple[Agent, ...]:
    """Return the agents of as many instances as a pool may have; none for one that is not elastic.

    Args:
        pool: The pool.
        known: The shape that its instances were seen to have.

    Raises:
        ValueError: Its provider's settings are invalid; `make_pools` has reported that at the master's start.
    """
    if pool.provider is None:
        return ()
    template = with_shape(_divided(_template(pool.provider), pool), known)
    most = int(pool.provider.get("max_instances", Limits().max_instances))
    return tuple(replace(template, id=f"new instance {number}") for number in range(1, most + 1))


def _pool(name: str, said: Mapping[str, Any], around: Surroundings) -> ElasticPool:
    where = f"provider of the pool {name!r}"
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{where}: a name has 1 to 40 small letters, digits and hyphens: instances are called after it"
        )
    provider = dict(said)
    kind = provider.pop("type", None)
    shape = {key: provider.pop(key) for key in _TEMPLATE & provider.keys()}
    bounds = {key: provider.pop(key) for key in {one.name for one in fields(Limits)} & provider.keys()}
    try:
        limits, template = Limits(**bounds), _template(shape)
        counted = tuple(text for key in _COUNTED if key in shape for text in (f"--{key}", str(shape[key])))
        if kind == "local":
            # What is not said is not counted there, either: else it would grow for what none of its agents has.
            uncounted = tuple(text for key in _COUNTED if key not in shape for text in (f"--{key}", "0"))
            told = ("--slots", str(template.slots), *counted, *uncounted)
            made: Provider = _local(where, name, provider, told, around)
        elif kind == "aws":
            made = _aws(where, name, provider, counted, around)
        else:
            raise ValueError(f"type must be local or aws, not {kind!r}")
    except (TypeError, ValueError) as error:
        raise ValueError(str(error) if str(error).startswith(where) else f"{where}: {error}") from error
    return ElasticPool(name, made, limits, template, like_of(said))


def _template(said: Mapping[str, Any]) -> Agent:
    slots = said.get("slots")
    if type(slots) is not int or slots < 0:
        raise ValueError("slots must say how many slots an instance has")
    return Agent(
        "template",
        slots,
        max_zero_slot_tasks=int(said.get("max_zero_slot_tasks", MAX_ZERO_SLOT_TASKS)),
        labels=dict(said.get("labels", {})),
        slot_type=str(said.get("slot_type", "")),
        gpu=str(said.get("gpu", "")),
        memory=int(said.get("gpu_memory", 0)),
        runtimes=frozenset(said.get("runtimes", ("process",))),
        millicpus=_millicpus(said),
        host_memory=_bytes(said),
    )


def _divided(template: Agent, pool: PoolConfig) -> Agent:
    """Adapt an instance's agent, which its provider counts in devices, to a pool whose devices are shared."""
    parts = pool.slots_per_device
    return replace(template, slots=template.slots * parts, memory=template.memory // parts)


def _millicpus(said: Mapping[str, Any]) -> int:
    return round(1000 * float(said["cpus"])) if "cpus" in said else UNBOUNDED


def _bytes(said: Mapping[str, Any]) -> int:
    return parse_size(str(said["memory"])) if "memory" in said else UNBOUNDED


def _local(
    where: str, name: str, said: Mapping[str, Any], shape: tuple[str, ...], around: Surroundings
) -> LocalProvider:
    _check(where, said, {"arguments"})
    arguments = (*shape, "--pool", name, *around.local_arguments, *map(str, said.get("arguments", ())))
    return LocalProvider(around.folder / name, around.master, arguments)


def _aws(where: str, name: str, said: Mapping[str, Any], shape: tuple[str, ...], around: Surroundings) -> AwsProvider:
    _check(where, said, {one.name for one in fields(AwsSettings)})
    lists = {key: tuple(value) for key, value in said.items() if isinstance(value, list)}
    settings = AwsSettings(**{**said, **lists})
    settings = replace(settings, agent_arguments=("--pool", name, *shape, *settings.agent_arguments))
    return AwsProvider(settings, around.cluster, name, around.master)


def _check(where: str, said: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(said) - known)
    if unknown:
        more = sorted(known | _TEMPLATE | {one.name for one in fields(Limits)})
        raise ValueError(f"{where}: {', '.join(unknown)} is unknown; there are {', '.join(more)}")
