"""From an exception with its causes and members to the one that a failure card names. Pure.

The root cause is the exception that others were raised from. One that was raised while another was handled is a cause
of its own, since the other had been caught: both are named. Of a group all members are named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from detlab_hub.services.failures.tracebacks import MESSAGE_CHARS, OURS, Raised

_SAYS_NOTHING = ("Empty", "Full", "_RemoteTraceback", "RemoteTraceback", "StopIteration", "CancelledError")
"""Causes that are a library's own affair."""
_TOLD_MEMBERS = 4
_DEEPEST = 50


@dataclass(frozen=True, slots=True)
class RootCause:
    """What failed.

    Attributes:
        name: The class of the root cause.
        text: Its message.
        message: For people, in one line: the root cause first, then what became of it.
        others: Further exceptions that belong to it, the nearest first: `Name: text`.
        frames: Frames in the order in which the place is looked for: the innermost first.
    """

    name: str
    text: str
    message: str
    others: tuple[str, ...]
    frames: tuple[tuple[str, int], ...]


def root_cause(last: Raised) -> RootCause:
    """Return the root cause of the exception that ended a program."""
    chain = _chain(last)
    root = chain[-1]
    leaves = list(_leaves(root, 0))
    inner = [root_cause(leaf) for leaf in leaves[:_TOLD_MEMBERS]]  # each once: groups may be causes in groups
    if root.members and len(leaves) == 1:
        told, name, text = f"{inner[0].message} (in {root.name})", inner[0].name, inner[0].text
    elif root.members:
        more = f"; and {len(leaves) - _TOLD_MEMBERS} more" if len(leaves) > _TOLD_MEMBERS else ""
        told = f"{root.told}: {'; '.join(one.message for one in inner)}{more}"
        name, text = root.name, root.text
    else:
        told, name, text = _said(root), root.name, root.text
    if root.worker:
        told += f" ({root.worker})"
    outer = [one for one in chain[:-1] if one.told != root.told]
    if outer:
        told += f"; raised again as {', then as '.join(one.told for one in outer[-_TOLD_MEMBERS:][::-1])}"
    handled = _first_of(root)
    if handled is not None and handled.told != root.told:
        told += f"; {'raised from' if root.direct else 'while handling'} {handled.told}"
    related = (*leaves, *outer, *([handled] if handled is not None else []))
    frames = (*(inner[0].frames if inner else ()), *_innermost(chain[::-1]), *_innermost(related))
    return RootCause(name, text, told[: 2 * MESSAGE_CHARS], tuple(one.told for one in related), frames)


def _chain(last: Raised) -> list[Raised]:
    """Return the exceptions from the last one down to that which they were all raised from."""
    chain = [last]
    while len(chain) < _DEEPEST:
        now = chain[-1]
        below = now.cause
        silent = below is None or below.name.rpartition(".")[2] in _SAYS_NOTHING
        if below is None or silent or not now.direct or now.members or now.name.startswith(OURS):
            break  # what a group was raised from says less than its members
        chain.append(below)
    return chain


def _first_of(root: Raised) -> Raised | None:
    """Return the exception that was handled first when this one was raised."""
    if root.name.startswith(OURS):
        return None
    found, below, depth = None, root.cause, 0
    while below is not None and depth < _DEEPEST:
        if below.name.rpartition(".")[2] not in _SAYS_NOTHING:
            found = below
        below, depth = below.cause, depth + 1
    return found


def _leaves(one: Raised, depth: int) -> Iterator[Raised]:
    if depth > _DEEPEST or not one.members:
        if depth:
            yield one
        return
    for member in one.members:
        yield from _leaves(member, depth + 1)


def _said(one: Raised) -> str:
    """Return an exception's last line; of one without a message also the line of code that raised it."""
    if one.text or not one.source:
        return one.told
    return f"{one.name} (it has no message), raised by: {one.source}"


def _innermost(all_of: list[Raised] | tuple[Raised, ...]) -> list[tuple[str, int]]:
    return [frame for one in all_of for frame in reversed(one.frames)]
