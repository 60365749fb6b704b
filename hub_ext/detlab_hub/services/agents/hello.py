"""Validation of an agent's Hello: it is input like any other, and everything in it has a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from detlab.errors import Conflict
from detlab.schemas.wire import Hello
from detlab_hub.services.base.settings import Settings

NAME_CHARS = 200
"""Most characters of a slot, device model, pool, label or label value, user, version, runtime, or allocation."""
LABELS, RUNTIMES, TASKS = 64, 16, 20_000
HIGHEST_UID = 2**32 - 2
LARGEST = 2**63 - 1
"""The largest number in a column of 64 bits."""


def check_hello(hello: Hello, settings: Settings) -> None:
    """Check that a Hello describes what a node can have.

    Raises:
        Conflict: A slot occurs twice, or something exceeds its limit; the message names the field.
    """
    problem = next(_problems(hello, settings), None)
    if problem is not None:
        raise Conflict(f"the agent's Hello is refused: {problem}")


def _problems(hello: Hello, settings: Settings) -> Iterator[str]:
    """Yield what is wrong, cheap checks of sizes first."""
    yield from _too_many("slots", len(hello.slots), settings.agent_slots_limit, " (c.DetHub.agent_slots_limit)")
    yield from _too_many("labels", len(hello.labels), LABELS)
    yield from _too_many("runtimes", len(hello.runtimes), RUNTIMES)
    yield from _too_many("tasks", len(hello.tasks), TASKS)
    yield from _too_many(
        "max_zero_slot_tasks",
        hello.max_zero_slot_tasks,
        settings.agent_zero_slot_tasks_limit,
        " (c.DetHub.agent_zero_slot_tasks_limit)",
    )
    if hello.max_zero_slot_tasks < 0:
        yield "max_zero_slot_tasks is negative"
    yield from _slots(hello)
    yield from _too_long("version, process, pool, serves_user", _texts(hello))
    yield from _too_long("note", (hello.note, *(note for node in hello.nodes for note in (node.name, node.note))))
    yield from _too_long("runtimes", hello.runtimes)
    yield from _too_long("labels", [*hello.labels, *hello.labels.values()])
    yield from _too_long("tasks", (task.allocation_id for task in hello.tasks))
    yield from _too_long("uids", hello.uids or ())
    if not all(1 <= uid <= HIGHEST_UID for uid in (hello.uids or {}).values()):
        yield f"uids are from 1 to {HIGHEST_UID}"
    if not all(abs(task.run) <= LARGEST for task in hello.tasks):
        yield "tasks: a run is not a number of 64 bits"


def _slots(hello: Hello) -> Iterator[str]:
    twice = next((name for name, times in Counter(slot.id for slot in hello.slots).items() if times > 1), None)
    if twice is not None:
        yield f"slots: {twice[:80]!r} is there twice; each slot has an id of its own"
    for slot in hello.slots:
        if not slot.id or not slot.id.isprintable():
            yield f"slots: the id {slot.id[:80]!r} is empty or has control characters"
        yield from _too_long(
            "slots", (slot.id, slot.name, slot.uuid or "", slot.device, slot.note, slot.allocation_id or "")
        )
        # An agent that comes back says what it runs on a slot; nothing reads that: its `tasks` count.
        if slot.device:
            yield f"slots: {slot.id[:80]!r} has a device, which the master alone gives to slots"
        if not (0 <= slot.memory <= LARGEST and slot.shares == 1):
            yield f"slots: {slot.id[:80]!r} has a memory or shares that no device has"


def _texts(hello: Hello) -> Iterable[str]:
    return hello.version, hello.process, hello.pool, hello.serves_user or ""


def _too_many(field: str, found: int, limit: int, setting: str = "") -> Iterator[str]:
    if found > limit:
        yield f"{field}: {found} are more than the limit of {limit}{setting}"


def _too_long(field: str, texts: Iterable[str]) -> Iterator[str]:
    long = next((text for text in texts if len(text) > NAME_CHARS), None)
    if long is not None:
        yield f"{field}: {long[:40]!r}… is longer than {NAME_CHARS} characters"
