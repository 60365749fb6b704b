"""How much memory is free: of the machine, and of every control group (version 2) that this process is in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def free_memory(root: Path = Path("/")) -> int:
    """Return how many bytes could be taken without anything being ended; 0 if nobody knows.

    Args:
        root: Where /proc and /sys are.
    """
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    for group in control_groups(root):
        with contextlib.suppress(OSError, ValueError):  # no limit, or a group without the memory controller
            limit = int((group / "memory.max").read_text(encoding="ascii"))
            used = int((group / "memory.current").read_text(encoding="ascii"))
            found.append(limit - used + _cached_files(group))
    return min(found, default=0)


def control_groups(root: Path) -> Iterator[Path]:
    """Yield this process's control group and those around it."""
    top = root / "sys/fs/cgroup"
    name = ""
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            if line.startswith("0::/"):
                name = line.removeprefix("0::/")
    place = top / name
    while place != top and top in place.parents:
        yield place
        place = place.parent
    yield top


def _cached_files(group: Path) -> int:
    """Return what the group holds of files and nobody used lately: the kernel drops it first."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (group / "memory.stat").read_text(encoding="ascii").splitlines():
            if line.startswith("inactive_file "):
                return int(line.split()[1])
    return 0
