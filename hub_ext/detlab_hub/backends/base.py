"""The protocol of a backend that runs tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from detlab.schemas.wire import MasterMessage, QueueHello, SlotView


@dataclass(frozen=True, slots=True)
class BatchPartition:
    """A partition of a batch system; see `schemas.wire.Partition`."""

    name: str
    default: bool
    up: bool
    time_limit: str
    idle: int
    allocated: int
    other: int


@dataclass(frozen=True, slots=True)
class BatchSystem:
    """A batch system that places tasks by itself."""

    name: str
    slots_per_node: int
    """Slots of its largest node; 0: not known."""
    slots: int
    """Slots of all of its nodes."""
    gangs: bool = False
    """Whether it takes trials over several nodes, as one launch."""
    partitions: tuple[BatchPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A node that may take work now, or soon again. Its tasks are in the database."""

    id: str
    slots: tuple[str, ...]
    serves_user: str | None = None
    suspect: bool = False
    runtimes: tuple[str, ...] = ("process",)
    pool: str = "default"
    labels: tuple[tuple[str, str], ...] = ()
    max_zero_slot_tasks: int = 100
    slot_type: str = ""
    """cuda, rocm or cpu; "" if there is no slot."""
    gpu: str = ""
    """Model of the GPUs; "" if there is none, or more than one model."""
    memory: int = 0
    """Bytes of memory of the smallest GPU; 0: not known."""
    millicpus: int | None = None
    """Thousandths of a CPU that its tasks may request together; None: any number."""
    host_memory: int | None = None
    """Bytes of its main memory, likewise."""
    gangs: bool = True
    """Whether it may run a part of a trial over several agents."""
    taken: frozenset[str] = frozenset()
    """Slots that the agent offers to nobody for now: others, of whom this master knows nothing, use their devices."""
    queue: BatchSystem | None = None
    """The batch system behind it, which places the tasks of its pool; None: this master places them."""

    enforces: frozenset[str] = frozenset()
    """What it enforces of policies now, by its pool's declaration and its attestation."""
    code: frozenset[str] | None = frozenset()
    """Digests of the code that its trials load, as it attests; None: its pool requires no attestation."""

    @property
    def slot_count(self) -> int:
        """How many slots it has: its own, or those of its batch system."""
        return len(self.slots) if self.queue is None else self.queue.slots


def node_of(
    name: str,
    slots: Sequence[SlotView],
    *,
    serves_user: str | None,
    suspect: bool,
    runtimes: Sequence[str],
    pool: str,
    labels: Mapping[str, str],
    max_zero_slot_tasks: int,
    gangs: bool = True,
    millicpus: int | None = None,
    host_memory: int | None = None,
    queue: QueueHello | None = None,
) -> Node:
    """Make a node from what its agent reports, or reported before this master started."""
    gpus = [slot for slot in slots if slot.kind != "cpu"]
    return Node(
        id=name,
        slots=tuple(slot.id for slot in slots),
        taken=frozenset(slot.id for slot in slots if not slot.enabled),
        serves_user=serves_user,
        suspect=suspect,
        runtimes=tuple(runtimes),
        pool=pool,
        labels=tuple(sorted(labels.items())),
        max_zero_slot_tasks=max_zero_slot_tasks,
        slot_type=gpus[0].kind if gpus else slots[0].kind if slots else "",
        gpu=gpus[0].name if len({gpu.name for gpu in gpus}) == 1 else "",
        memory=min((gpu.memory for gpu in gpus), default=0),
        millicpus=millicpus,
        host_memory=host_memory,
        gangs=gangs,
        queue=None if queue is None else batch_system_of(queue),
    )


def batch_system_of(queue: QueueHello) -> BatchSystem:
    """Return the batch system that an agent reports."""
    partitions = tuple(
        BatchPartition(one.name, one.default, one.up, one.time_limit, one.idle, one.allocated, one.other)
        for one in queue.partitions
    )
    return BatchSystem(queue.name, queue.slots_per_node, queue.slots, queue.gangs, partitions)


class Backend(Protocol):
    """Carries messages to nodes and lists them.

    Nothing else belongs here: the lifecycle decides what must happen and stores it before it is delivered, and a
    message that is not delivered is derived from the database again when the node comes back.
    """

    @property
    def queues(self) -> Mapping[str, str]:
        """Pools in which the backend itself chooses the nodes, and the id to which their allocations are sent.

        In all other pools this master chooses among `nodes`. In these it keeps the order of the queue, `max_slots` and
        quotas, and hands over the tasks that may start: it sends a Launch to this id, without nodes, and with the
        requested number of slots (`any0`, `any1`, …). `state_of` and `last_heartbeat` take the id like that of a node.
        """
        ...

    def deliver(self, node_id: str, message: MasterMessage) -> None:
        """Send a message if the node is connected; else do nothing. Never raises, never blocks."""

    def nodes(self, now: float) -> tuple[Node, ...]:
        """List the connected nodes and those that are suspect but not yet lost."""
        ...

    def state_of(self, node_id: str, now: float) -> str:
        """Return `connected`, `suspect` or `lost`."""
        ...

    def last_heartbeat(self, node_id: str) -> float | None:
        """Return the time of the last heartbeat that this master received from the node; None: never, or it is lost."""
        ...

    def expect(self, node: Node, now: float) -> None:
        """Wait for a node that was connected before this master started."""

    def silent(self, now: float) -> Sequence[str]:
        """Return the nodes that were silent for so long that their tasks must be considered dead."""
        ...

    def give_up(self, node_id: str) -> None:
        """Treat a node as lost: expect nothing from it until it comes back by itself."""

    def asks_point(self, node_id: str) -> bool:
        """Whether a trial that is sent there without hyperparameters asks for them when it runs; no: if it is away."""
        ...

    def attesting(self, node_id: str, now: float) -> bool:
        """Whether its agent has just connected, and its attestation is awaited."""
        ...

    def forgive(self, seconds: float) -> None:
        """Discount the nodes' silence of the last seconds, in which this master itself did not run."""

    def hang_up(self, node_id: str) -> None:
        """Close the connection of a node, if there is one; it may come back."""

    def dismiss(self, node_id: str) -> None:
        """Close the connection of a node and no longer expect anything from it."""
