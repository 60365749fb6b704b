"""Control groups: the kernel's counters of out-of-memory kills (group and machine), and joining a group."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

_KILLED = (-9, 137)
_VMSTAT = Path("/proc/vmstat")
_FILES = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))
"""Of cgroup version 2 and 1."""


def oom_kills() -> int:
    """Return how many processes of this container the kernel has ended for its memory limit; 0 if it does not say."""
    return next((count for path in _FILES if (count := oom_kills_in(path)) is not None), 0)


def oom_kills_in(path: Path) -> int | None:
    """Return how many processes of a control group the kernel has ended for its memory limit; None if it does not say.

    Args:
        path: Its `memory.events`, or under version 1 its `memory.oom_control`.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    counts = (line.partition(" ") for line in lines)
    return next((int(count) for name, _, count in counts if name == "oom_kill" and count.isdigit()), None)


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


def join(directories: Iterable[Path]) -> None:
    """Move this process into control groups; its children are born there.

    Raises:
        OSError: One is not there, is full, or may not be written to.
    """
    for directory in directories:
        (directory / "cgroup.procs").write_text("0", encoding="ascii")
