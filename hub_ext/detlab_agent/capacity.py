"""What this machine has for its tasks: CPUs and memory, as far as this process and its control groups may use them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from detlab_agent.runtimes.process.memory import control_groups, groups_of


def usable_cpus(root: Path = Path("/"), affinity: int | None = None) -> float:
    """Return how many CPUs tasks can use together: those of the affinity mask, or less by a quota of a control group.

    Args:
        root: Where /proc and /sys are.
        affinity: CPUs of the mask; default those that this process may use.
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
    """Return how many bytes the machine has, or less by a limit of a control group; None if nobody knows.

    Args:
        root: Where /proc and /sys are.
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
