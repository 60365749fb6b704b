"""What the kernel counts about the container that this process is in."""

from __future__ import annotations

from pathlib import Path

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
