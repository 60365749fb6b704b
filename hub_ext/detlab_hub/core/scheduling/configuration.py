"""The pools of a cluster as an operator configures them: read once at the start, all errors reported together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from detlab.schemas.expconf import container_defaults
from detlab_hub.core.scheduling.governing import GovernedPool, read_governance
from detlab_hub.core.scheduling.model import DEFAULT_PRIORITY, Fitting, Pool, Scheduler, ShareBy

DEFAULT_POOL = "default"
"""The pool that always exists: for agents that name none, and for tasks submitted without one."""
_NAME_CHARS = 64
PATIENCE = 300.0
"""Seconds."""
MIN_RUN = 600.0
"""Seconds."""
EVICT_AFTER = 60.0
"""Seconds."""
MOST_SHARES = 64
"""Of one device."""
MOST_PRICE = 1e6
LEAST_WEIGHT = 0.001
"""Of a user, beside 1; the greatest is as many times 1."""


@dataclass(frozen=True)
class PoolConfig:
    """One pool.

    Attributes:
        name: What agents and configs call it.
        rules: How it is scheduled.
        description: For people.
        priority: Of tasks submitted without one.
        patience: Seconds of waiting for room after which later tasks of the same priority no longer overtake a task.
        provider: How agents of the pool are started and stopped, as the elastic pools read it; None: they come and go
            by themselves.
        slots_per_device: Slots into which each device of its agents is divided.
        governance: What it enforces of policies.
        task_container_defaults: Laid under the configs of what runs in it, as a part of a config.
        min_run: For shares of users: seconds that a task runs before its slots may be taken.
        evict_after: For shares of users: seconds that a task waits before it takes slots from others.
        idle_gpu_warning: Seconds at 0 % after which owners are told that their GPUs are idle; 0: never.
        idle_gpu_release: Seconds at 0 % after which they are released; 0: never.
        price: Of a slot for an hour, in the cluster's currency; it counts for what is assigned slots from then on.
    """

    name: str
    rules: Pool = field(default_factory=Pool)
    description: str = ""
    priority: int = DEFAULT_PRIORITY
    patience: float = PATIENCE
    provider: Mapping[str, Any] | None = None
    slots_per_device: int = 1
    governance: GovernedPool = field(default_factory=GovernedPool)
    task_container_defaults: Mapping[str, Any] = field(default_factory=dict)
    min_run: float = MIN_RUN
    evict_after: float = EVICT_AFTER
    price: float = 0.0
    idle_gpu_warning: float = 0.0
    idle_gpu_release: float = 0.0

    @property
    def by_users(self) -> bool:
        """Whether users have shares of the pool."""
        return self.rules.scheduler is Scheduler.FAIR_SHARE and self.rules.share_by is ShareBy.USER


def _the_default() -> dict[str, PoolConfig]:
    return {DEFAULT_POOL: PoolConfig(DEFAULT_POOL)}


@dataclass(frozen=True)
class Pools:
    """All pools of a cluster, and the default ones.

    Attributes:
        by_name: In the operator's order.
        compute: For tasks with slots.
        zero_slot: For tasks without.
    """

    by_name: Mapping[str, PoolConfig] = field(default_factory=_the_default)
    compute: str = DEFAULT_POOL
    zero_slot: str = DEFAULT_POOL

    def named(self, asked: str, slots: int) -> str:
        """Return the name of the pool that a request means, whether or not that pool exists.

        Args:
            asked: The requested name; if it is empty, the default pool for the kind of task is meant.
            slots: Requested slots. 0 selects the default pool for tasks without slots.
        """
        return asked or (self.compute if slots else self.zero_slot)

    def of(self, name: str) -> PoolConfig | None:
        """Return the pool of this name, None if it does not exist."""
        return self.by_name.get(name)

    def governance_in(self, name: str) -> GovernedPool:
        """Return what the pool enforces of policies; of one that does not exist, nothing."""
        pool = self.by_name.get(name)
        return read_governance(None) if pool is None else pool.governance

    def shares_in(self, name: str) -> int:
        """Return into how many slots the devices of the pool's agents are divided; 1 if there is no such pool."""
        pool = self.by_name.get(name)
        return 1 if pool is None else pool.slots_per_device


def read_pools(
    raw: Mapping[str, Any], compute: str = DEFAULT_POOL, zero_slot: str = DEFAULT_POOL
) -> tuple[Pools, list[str]]:
    """Read the operator's configuration; the second value lists every error.

    Args:
        raw: Settings by pool. `default` is there even if it is not named.
        compute: The pool for tasks with slots that name none.
        zero_slot: The pool for tasks without slots that name none.
    """
    errors: list[str] = []
    pools = _the_default()
    for name, settings in raw.items():
        errors += _bad_name(name)
        pools[name] = _read_pool(name, settings, errors)
    for key, chosen in (("default_compute_pool", compute), ("default_zero_slot_pool", zero_slot)):
        if chosen not in pools:
            errors.append(f"{key}: there is no pool {chosen!r}; there are {', '.join(sorted(pools))}")
    return Pools(pools, compute, zero_slot), errors


def _bad_name(name: object) -> Iterator[str]:
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= _NAME_CHARS
        or not name.isprintable()
        or set(name) & set("/\\")
    ):
        yield f"pools: {name!r} cannot name a pool: 1 to {_NAME_CHARS} printable characters, no slash"


_KEYS: dict[str, Callable[[Any], Any]] = {}


def _read_pool(name: str, settings: Any, errors: list[str]) -> PoolConfig:
    if not isinstance(settings, Mapping):
        errors.append(f"pools[{name!r}]: must be a mapping such as {{'scheduler': 'priority'}}")
        return PoolConfig(name)
    read: dict[str, Any] = {}
    for key, value in settings.items():
        reader = _KEYS.get(key)
        if reader is None:
            errors.append(f"pools[{name!r}]: {key!r} is not a setting of a pool; there are {', '.join(_KEYS)}")
            continue
        try:
            read[key] = reader(value)
        except ValueError as error:
            shown = "" if reader is _container_defaults else f", not {value!r}"  # it may hold a password
            errors.append(f"pools[{name!r}][{key!r}]: {error}{shown}")
    errors += _unused(name, settings, read)
    errors += _release_too_early(name, read)
    rules = {key: read.pop(key) for key in _RULES if key in read}
    rules |= {key: read.pop(named) for named, key in _SHARES.items() if named in read}
    return PoolConfig(name, Pool(**rules), **read)


_RULES = ("scheduler", "preemption", "fitting", "heterogeneous", "share_by")
_SHARES = {"usage_half_life": "half_life", "user_weights": "weights", "group_weights": "groups"}
"""Settings of shares, and what `Pool` calls them."""
_OF_USERS = (*_SHARES, "min_run", "evict_after")


def _unused(name: str, settings: Mapping[str, Any], read: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the settings of shares of users together: none has an effect without the others."""
    by_users = read.get("share_by") is ShareBy.USER
    if by_users and read.get("scheduler") is not Scheduler.FAIR_SHARE:
        yield f"pools[{name!r}]: 'share_by': 'user' needs 'scheduler': 'fair_share'"
    for key in _OF_USERS if "share_by" not in settings or "share_by" in read else ():
        if key in settings and not by_users:
            yield f"pools[{name!r}][{key!r}]: has an effect with 'share_by': 'user' alone"


def _release_too_early(name: str, read: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the time after which idle GPUs are released: nobody loses them without a warning."""
    warning, release = read.get("idle_gpu_warning", 0.0), read.get("idle_gpu_release", 0.0)
    if release and not 0 < warning < release:
        yield f"pools[{name!r}]['idle_gpu_release']: needs a shorter 'idle_gpu_warning': between them owners can act"


def _one_of(choices: type[Scheduler] | type[Fitting] | type[ShareBy]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if value not in list(choices):
            raise ValueError(f"must be one of {', '.join(choices)}")
        return choices(value)

    return read


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be True or False")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a text")
    return value


def _priority(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 99:
        raise ValueError("must be a whole number from 1 to 99")
    return value


def _shares(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_SHARES:
        raise ValueError(f"must be a whole number from 1 to {MOST_SHARES}")
    return value


def _seconds(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
        raise ValueError("must be a number of seconds")
    return float(value)


def _price(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MOST_PRICE:
        raise ValueError(f"must be a number from 0 to {MOST_PRICE:g}")
    return float(value)


def _weights(value: Any) -> Mapping[str, float]:
    if not isinstance(value, Mapping):
        raise ValueError("must be a mapping such as {'ada': 2}")
    for user, weight in value.items():
        if not isinstance(user, str) or isinstance(weight, bool) or not isinstance(weight, int | float):
            raise ValueError("must map names to numbers")
        if not LEAST_WEIGHT <= weight <= 1 / LEAST_WEIGHT:
            raise ValueError(f"weights are from {LEAST_WEIGHT:g} to {1 / LEAST_WEIGHT:g}")
    return {user: float(weight) for user, weight in value.items()}


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError("must be a mapping")
    return dict(value)


def _container_defaults(value: Any) -> Mapping[str, Any]:
    found, problems = container_defaults.read(value)
    if problems:
        raise ValueError("; ".join(f"{one.path} {one.message}".strip() for one in problems))
    return found


_KEYS.update(
    scheduler=_one_of(Scheduler),
    preemption=_flag,
    fitting=_one_of(Fitting),
    heterogeneous=_flag,
    description=_text,
    priority=_priority,
    patience=_seconds,
    provider=_mapping,
    slots_per_device=_shares,
    governance=read_governance,
    task_container_defaults=_container_defaults,
    share_by=_one_of(ShareBy),
    usage_half_life=_seconds,
    user_weights=_weights,
    group_weights=_weights,
    min_run=_seconds,
    evict_after=_seconds,
    price=_price,
    idle_gpu_warning=_seconds,
    idle_gpu_release=_seconds,
)
