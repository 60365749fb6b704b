"""What the kernel counts about memory that ran out: in the container that this process is in, and on the machine."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

_KILLED = (-9, 137)
_VMSTAT = Path("/proc/vmstat")
_FILES = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))
"""Of cgroup version 2 and 1."""


def oom_kills() -> int:
    """Return how many processes of this container the kernel has ended for its memory limit; 0 if it does not say."""
    for path in _FILES:
        try:
            lines = path.read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdigit():
                return int(count)
    return 0


def machine_oom_kills(path: Path = _VMSTAT) -> int:
    """Return how many processes of this machine the kernel has ended for want of memory; 0 if it does not say."""
    try:
        text = path.read_text(encoding="ascii")
    except OSError:
        return 0
    counts = (line.partition(" ") for line in text.splitlines())
    return next((int(count) for name, _, count in counts if name == "oom_kill" and count.isdigit()), 0)


def kernel_may_have_killed(codes: Collection[int], before: int, now: int) -> bool:
    """Whether a process that nobody of us killed died of SIGKILL while the kernel ended processes for want of memory.

    Args:
        codes: Exit codes of the entrypoint and of the ranks.
        before: `machine_oom_kills()` when the task began.
        now: The same at its end.
    """
    return now > before and any(code in _KILLED for code in codes)
