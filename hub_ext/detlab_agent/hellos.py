"""An agent's Hello in parts: what a master takes in one message is limited, and more so what an older one takes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from detlab.schemas.wire import HeldTask, Hello, MoreNodes, NodeHello

_log = logging.getLogger(__name__)

FIRST_NODES = 1000
"""Nodes of the Hello itself: an older master refuses more."""
FIRST_BYTES = 1_800_000
"""Bytes of it: a master takes 2 MiB in one message."""
MORE_NODES, MORE_BYTES = 500, 1_000_000
"""Of each part that follows: it is read and checked between what others say."""


def in_parts(hello: Hello) -> tuple[Hello, list[MoreNodes]]:
    """Return a Hello that fits into one message, and the rest of its nodes with their tasks.

    Nodes with tasks come first, and those that are away all in the Hello: an older master hears of no others.
    """
    tasks: dict[str, list[HeldTask]] = {}
    for task in hello.tasks:
        tasks.setdefault(task.node, []).append(task)
    order = sorted(hello.nodes, key=lambda node: (not node.away, node.name not in tasks))
    named = {node.name for node in order}
    unplaced = [task for task in hello.tasks if task.node not in named]
    own = hello.model_copy(update={"nodes": [], "tasks": unplaced})
    room = FIRST_BYTES - len(own.model_dump_json())
    groups = list(_groups(order, tasks, room))
    first = groups[0] if groups else []
    said = {"nodes": first, "node_count": len(order), "tasks": [*unplaced, *_of(first, tasks)]}
    return hello.model_copy(update=said), [MoreNodes(nodes=group, tasks=_of(group, tasks)) for group in groups[1:]]


def _groups(nodes: Sequence[NodeHello], tasks: dict[str, list[HeldTask]], room: int) -> Iterator[list[NodeHello]]:
    group: list[NodeHello] = []
    most = FIRST_NODES
    for node in nodes:
        size = len(node.model_dump_json()) + 1
        size += sum(len(task.model_dump_json()) + 1 for task in tasks.get(node.name, ()))
        if group and (size > room or len(group) >= most):
            yield group
            group, room, most = [], MORE_BYTES, MORE_NODES
        group.append(node)
        room -= size
    if group:
        yield group


def _of(nodes: Sequence[NodeHello], tasks: dict[str, list[HeldTask]]) -> list[HeldTask]:
    return [task for node in nodes for task in tasks.get(node.name, ())]


def warn_of_older_master(left: Sequence[MoreNodes], said: int) -> None:
    """Log that an older master gets none of the nodes that were to follow the Hello."""
    unsaid = sum(len(part.nodes) for part in left)
    _log.warning(
        "this master is of an older version and takes no more than %d nodes: %d are left out until it is upgraded",
        said,
        unsaid,
    )
