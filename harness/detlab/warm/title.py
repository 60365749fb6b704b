"""Let a forked process show its own command and environment in /proc, where the kernel shows those of its parent.

The agent knows the processes of a task by the DET_TASK_DIR in their environment, and a launcher by its command. The
kernel reads both from the memory in which the process was started, so that they are changed by writing there; the
zygote is started with a long variable that makes room.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from detlab.launch.host.procfs import PROC

_FIRST = "DET_TASK_DIR"


def packed(items: Iterable[bytes], room: int) -> bytes:
    """Return the items, each ended by NUL, in exactly `room` bytes; those that do not fit are left out."""
    data = b""
    for item in items:
        if len(data) + len(item) + 1 <= room:
            data += item + b"\0"
    return data.ljust(room, b"\0")


@dataclass(frozen=True)
class Title:
    """Where the kernel reads the command and the environment of this process, and of those forked from it."""

    command_at: int
    command_room: int
    environment_at: int
    environment_room: int

    @classmethod
    def find(cls) -> Title:
        """Ask the kernel where this process's command line and environment are in memory.

        Raises:
            OSError: The kernel does not report it.
        """
        text = (PROC / "self" / "stat").read_text(encoding="utf-8", errors="replace")
        fields = text[text.rindex(")") + 2 :].split()
        command, command_end, environment, environment_end = (int(field) for field in fields[45:49])
        if not 0 < command < command_end <= environment < environment_end:
            raise OSError("the kernel does not report where the command line is")
        return cls(command, command_end - command, environment, environment_end - environment)

    def write(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Show this command and environment. First call `set_environment`: C's environment pointed to this memory."""
        first = {name: environment[name] for name in (_FIRST,) if name in environment}
        pairs = {**first, **environment}
        lines = (os.fsencode(f"{name}={value}") for name, value in pairs.items())
        _copy(self.command_at, packed(map(os.fsencode, command), self.command_room))
        _copy(self.environment_at, packed(lines, self.environment_room))


def set_environment(environment: Mapping[str, str]) -> None:
    """Make this the whole environment, for Python and for C."""
    os.environ.clear()
    os.environ.update(environment)


def _copy(address: int, data: bytes) -> None:
    ctypes.memmove(address, data, len(data))
