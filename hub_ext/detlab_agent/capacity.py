"""What this machine has for its tasks: CPUs and memory, as far as this process and its control groups may use them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def usable_cpus(root: Path = Path("/"), affinity: int | None = None) -> float:
    """Return how many CPUs tasks can use together: those of the affinity mask, or fewer if a control group has a quota.

    Args:
        root: The folder with /proc and /sys.
        affinity: CPUs of the mask; by default those that this process may use.
    """
    found = [float(affinity or len(os.sched_getaffinity(0)))]
    for group in control_groups(root):
        with contextlib.suppress(OSError, ValueError):  # no quota ("max"), or a group without the cpu controller
            most, period = (group / "cpu.max").read_text(encoding="ascii").split()
            found.append(int(most) / int(period))
    for group in groups_of(root, "cpu"):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            quota = int((group / "cpu.cfs_quota_us").read_text(encoding="ascii"))
            if quota > 0:  # -1: none
                found.append(quota / int((group / "cpu.cfs_period_us").read_text(encoding="ascii")))
    return min(found)


def usable_memory(root: Path = Path("/")) -> int | None:
    """Return the machine's memory in bytes, or less if a control group has a limit; None if unknown.

    Args:
        root: The folder with /proc and /sys.
    """
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemTotal:")]
    for group in control_groups(root):
        with contextlib.suppress(OSError, ValueError):  # no limit ("max"), or a group without the memory controller
            found.append(int((group / "memory.max").read_text(encoding="ascii")))
    for group in groups_of(root, "memory"):
        with contextlib.suppress(OSError, ValueError):  # without a limit it is larger than any machine
            found.append(int((group / "memory.limit_in_bytes").read_text(encoding="ascii")))
    return min(found, default=None)


def free_memory(root: Path = Path("/")) -> int:
    """Return how many bytes could be allocated before the kernel ends a process; 0 if unknown.

    Args:
        root: The folder with /proc and /sys.
    """
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        found += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    for group in control_groups(root):
        with contextlib.suppress(OSError, ValueError):  # no limit, or a group without the memory controller
            limit = int((group / "memory.max").read_text(encoding="ascii"))
            used = int((group / "memory.current").read_text(encoding="ascii"))
            found.append(limit - used + _cached_files(group, "inactive_file "))
    for group in groups_of(root, "memory"):
        with contextlib.suppress(OSError, ValueError):
            limit = int((group / "memory.limit_in_bytes").read_text(encoding="ascii"))
            used = int((group / "memory.usage_in_bytes").read_text(encoding="ascii"))
            found.append(limit - used + _cached_files(group, "total_inactive_file "))
    return min(found, default=0)


def control_groups(root: Path) -> Iterator[Path]:
    """Yield this process's control group and those around it."""
    name = next((path for controllers, path in _memberships(root) if not controllers), "")
    yield from _up(root / "sys/fs/cgroup", name)


def groups_of(root: Path, controller: str) -> Iterator[Path]:
    """Yield this process's control group of one controller of version 1, and those around it.

    With version 2 there is none.
    """
    for controllers, name in _memberships(root):
        if controller in controllers.split(","):
            tops = [root / "sys/fs/cgroup" / folder for folder in (controllers, controller)]
            top = next((top for top in tops if top.is_dir()), None)
            if top is not None:
                yield from _up(top, name)


def _memberships(root: Path) -> list[tuple[str, str]]:
    """Return this process's control groups as (controllers of version 1, path); no controllers for version 2."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    fields = [line.split(":", 2) for line in lines]
    return [(found[1], found[2].lstrip("/")) for found in fields if len(found) == 3]


def _up(top: Path, name: str) -> Iterator[Path]:
    """Yield a group and those around it; in a container often only the top exists, and is the container's own."""
    place = top / name
    while place != top and top in place.parents:
        yield place
        place = place.parent
    yield top


def _cached_files(group: Path, entry: str) -> int:
    """Return the bytes of the group's file cache without recent use, which the kernel drops first."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (group / "memory.stat").read_text(encoding="ascii").splitlines():
            if line.startswith(entry):
                return int(line.split()[1])
    return 0
