"""Directories of this node with governed data that a task is not placed for: no spelling of a path may lead to one.

The master decides by the text of a path where a task may run. Links, and file systems that are mounted twice, are seen
on the node alone; so it looks again at what the paths really are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from detlab_agent.runtimes.base import SetupFailed

_SAYS = "which is governed data that this task does not name: mount it by its own name (c.DetHub.governed_mounts)"


def check_sources(sources: Iterable[str], closed: Iterable[str]) -> None:
    """Check what a container gets of this node.

    Args:
        sources: Paths of this node.
        closed: Places that the task may not have.

    Raises:
        SetupFailed: One of them is such a place, lies in it, or holds it, by whatever name.
    """
    places = [(place, Path(place).resolve(), _identity(Path(place))) for place in closed]
    for source in sources if places else ():
        real = Path(source).resolve()
        around = {_identity(one) for one in (real, *real.parents)} - {None}
        for place, where, identity in places:
            holds = where.is_relative_to(real) or Path(place).is_relative_to(real)
            if holds or real.is_relative_to(where) or identity in around:
                raise SetupFailed(f"mount of {source[:200]}: on this node it leads to {place}, {_SAYS}")


def check_root(root: str, closed: Iterable[str]) -> None:
    """Check a directory of nodes that cannot be looked at from here, in which links may lead anywhere.

    Raises:
        SetupFailed: It is one of these places, lies in it, or holds it.
    """
    for place in closed:
        if PurePosixPath(root).is_relative_to(place) or PurePosixPath(place).is_relative_to(root):
            raise SetupFailed(
                f"mount of a part of {root[:200]}: links in it may lead to {place}, {_SAYS};"
                " or the agent's operator gives other data a directory of its own (--allow-mount)"
            )


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what a directory is, however it is mounted; None: there is none."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None
