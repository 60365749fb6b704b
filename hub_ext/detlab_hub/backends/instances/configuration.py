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

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from detlab.schemas.expconf.blocks.environment import parse_size
from detlab.schemas.wire.governance.capabilities import ENFORCED, LEVELS
from detlab_hub.backends.instances.aws import AwsProvider, AwsSettings
from detlab_hub.backends.instances.base import Provider
from detlab_hub.backends.instances.determined_keys import common_names, names_of_ec2, refuse_what_is_not_here
from detlab_hub.backends.instances.durations import as_seconds
from detlab_hub.backends.instances.gcp import GcpProvider
from detlab_hub.backends.instances.gcp_settings import EXAMPLES, GcpSettings
from detlab_hub.backends.instances.local import LocalProvider
from detlab_hub.core.provisioning import InstanceShape, PoolLimits, with_shape
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
    limits: PoolLimits
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
    bounds = {one.name for one in fields(PoolLimits)}
    kept = {key: value for key, value in provider.items() if key not in bounds}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:16]


def largest_growth(pool: PoolConfig, known: InstanceShape | None = None) -> tuple[Agent, ...]:
    """Return the agents of as many instances as a pool may have; none for one that is not elastic.

    Args:
        pool: The pool.
        known: The shape that its instances were seen to have.

    Raises:
        ValueError: Its provider's settings are invalid; `make_pools` has reported that at the master's start.
    """
    if pool.provider is None:
        return ()
    template = with_shape(_divided(_template(_full(pool.provider)), pool), known)
    most = int(pool.provider.get("max_instances", PoolLimits().max_instances))
    return tuple(replace(template, id=f"new instance {number}") for number in range(1, most + 1))


def _pool(name: str, said: Mapping[str, Any], around: Surroundings) -> ElasticPool:
    where = f"provider of the pool {name!r}"
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{where}: a name has 1 to 40 small letters, digits and hyphens: instances are called after it"
        )
    try:
        limits, template, made = _parts(where, name, said, around)
    except (TypeError, ValueError) as error:
        raise ValueError(str(error) if str(error).startswith(where) else f"{where}: {error}") from error
    return ElasticPool(name, made, limits, template, like_of(said))


def _parts(where: str, name: str, said: Mapping[str, Any], around: Surroundings) -> tuple[PoolLimits, Agent, Provider]:
    provider = _full(said)
    kind = provider.pop("type", None)
    refuse_what_is_not_here(provider)
    bounds = {one.name: _bound(one.name, provider.pop(one.name)) for one in fields(PoolLimits) if one.name in provider}
    shape = {key: provider.pop(key) for key in _TEMPLATE & provider.keys()}
    limits, template = PoolLimits(**bounds), _template(shape)
    counted = tuple(text for key in _COUNTED if key in shape for text in (f"--{key}", str(shape[key])))
    if kind == "local":
        # What is not said is not counted there, either: else it would grow for what none of its agents has.
        uncounted = tuple(text for key in _COUNTED if key not in shape for text in (f"--{key}", "0"))
        told = ("--slots", str(template.slots), *counted, *uncounted)
        return limits, template, _local(where, name, provider, told, around)
    if kind == "aws":
        return limits, template, _aws(where, name, provider, counted, around)
    if kind == "gcp":
        return limits, template, _gcp(where, name, provider | {"labels": template.labels}, counted, around)
    raise ValueError(f"type must be local, aws or gcp, not {kind!r}")


def _full(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a provider's settings under our names, with what follows from the kind of machine.

    Raises:
        ValueError: They are invalid.
    """
    if said.get("type") == "aws":
        full = names_of_ec2(said)
        if not full.pop("cpu_slots_allowed", False) or "slots" in full:
            return full
        return {**full, "slots": 1, "agent_arguments": ["--slots", "1", *full.get("agent_arguments", ())]}
    if said.get("type") != "gcp":
        return dict(said)
    full = common_names(said)
    machine = _google(full)
    if full.get("slots", machine.slots) != machine.slots:
        raise ValueError(f"slots must be {machine.slots}, as instance_type and cpu_slots_allowed say, or left out")
    return {"slot_type": "cuda" if machine.instance_type.gpu_num else "cpu", **full, "slots": machine.slots}


def _google(said: Mapping[str, Any]) -> GcpSettings:
    """Read the settings of a Google Cloud pool that are not about its size or its agents.

    Raises:
        ValueError: Some are invalid; it names them all.
    """
    refuse_what_is_not_here(said)
    others = (_TEMPLATE - {"labels"}) | {one.name for one in fields(PoolLimits)} | {"type"}
    try:
        return GcpSettings.model_validate({key: value for key, value in said.items() if key not in others})
    except ValidationError as error:
        raise ValueError("; ".join(map(_said, error.errors()))) from error


def _said(mistake: ErrorDetails) -> str:
    path, kind = mistake["loc"], mistake["type"]
    where = ".".join(str(step) for step in path if step != "[key]")
    message = mistake["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden" and len(path) == 1:
        return f"{where} is unknown; there are {', '.join(sorted({*GcpSettings.model_fields, *_TEMPLATE}))}"
    if kind == "string_pattern_mismatch":
        shown = f"{str(mistake['input'])[:80]!r} is none"
        message = f"{shown}, such as {EXAMPLES[where]}" if where in EXAMPLES else f"{shown} that Google takes"
    message = {"missing": "is missing", "extra_forbidden": "is unknown"}.get(kind, message)
    return f"{where}: {message}" if where else message


def _bound(name: str, value: object) -> Any:
    try:
        return as_seconds(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


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
    """Adapt an instance's agent, which its provider counts in devices, to a pool whose devices are shared.

    It will attest what this version of detlab enforces, so it is launched for that; what it then attests decides.
    """
    parts = pool.slots_per_device
    # Whether its image has Opacus is not known before: the pool's operator says so by naming the level.
    private = (pool.governance.enforces or frozenset()) & {LEVELS["dp"]}
    enforces = pool.governance.enforced(ENFORCED | private, template.labels)
    return replace(template, slots=template.slots * parts, memory=template.memory // parts, enforces=enforces)


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


def _gcp(where: str, name: str, said: Mapping[str, Any], shape: tuple[str, ...], around: Surroundings) -> GcpProvider:
    settings = _google(said)
    labels = tuple(text for key, value in settings.labels.items() for text in ("--label", f"{key}={value}"))
    slots = () if settings.instance_type.gpu_num else ("--slots", str(settings.slots))
    arguments = ["--pool", name, *slots, *labels, *shape, *settings.agent_arguments]
    return GcpProvider(settings.model_copy(update={"agent_arguments": arguments}), around.cluster, name, around.master)


def _check(where: str, said: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(said) - known)
    if unknown:
        more = sorted(known | _TEMPLATE | {one.name for one in fields(PoolLimits)})
        raise ValueError(f"{where}: {', '.join(unknown)} is unknown; there are {', '.join(more)}")
