"""Wire models of resource pools."""

from __future__ import annotations

from pydantic import Field

from detlab.schemas.wire import Partition, Wire


class BatchSystemView(Wire):
    """The batch system that places the tasks of a pool."""

    name: str
    """Of its kind: Slurm."""
    slots: int = 0
    """Of all of its nodes, whoever has them; 0: not known."""
    slots_per_node: int = 0
    """Of the largest; 0: not known."""
    partitions: list[Partition] = Field(default_factory=list)


class PoolView(Wire):
    """A resource pool: how it is scheduled, and how full it is. It names nothing of anybody."""

    name: str
    description: str = ""
    scheduler: str
    """priority, fair_share or round_robin"""
    preemption: bool = False
    """Whether trials are preempted in it: `fair_share` always does, `round_robin` never."""
    fitting: str
    """best or worst"""
    heterogeneous: bool = False
    priority: int
    """Of what is submitted without one."""
    patience: float = 0.0
    """Seconds of waiting after which later tasks of the same priority do not overtake any more."""
    share_by: str = "job"
    """Who has a share under `fair_share`: `job` or `user`."""
    usage_half_life: float | None = None
    """Seconds after which use counts half for the shares of users."""
    min_run: float | None = None
    """Seconds that a task runs before slots are taken from it, for shares of users."""
    evict_after: float | None = None
    """Seconds that a task waits before it takes slots from others, for shares of users."""
    price: float = 0.0
    """Of a slot for an hour."""
    slots_per_device: int = 1
    """Number of slots that each device of its agents is divided into."""
    enforces: list[str] = Field(default_factory=list)
    """What at least one of its connected agents enforces of policies now, such as gov.direct@1."""
    elastic: bool = False
    """A provider starts and stops its agents."""
    takes: list[str] = Field(default_factory=list)
    """Of what names no pool: `slots` if it gets what has slots, `no_slots` if it gets what has none."""
    agents: int = 0
    """That are connected."""
    agents_away: int = 0
    """Those silent for a while that do not count as lost yet."""
    agents_closed: int = 0
    """Of the connected ones, those that take no new work."""
    slots_total: int = 0
    """Of a pool that a batch system places: all of that system's."""
    slots_used: int = 0
    """By tasks of detlab; those that wait in the queue of a batch system are among them."""
    tasks_running: int = 0
    tasks_waiting: int = 0
    slots_waiting: int = 0
    """What the tasks that wait ask for, together."""
    batch: BatchSystemView | None = None
    """None: the master places its tasks."""


class PoolList(Wire):
    """GET pools: in the operator's order."""

    items: list[PoolView] = Field(default_factory=list)
