"""Kernels whose death is explained: by which signal, in which cell, and whether memory ran out meanwhile."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from jupyter_client.manager import AsyncKernelManager

_COUNTS = (Path("/proc/vmstat"), Path("/sys/fs/cgroup/memory.events"))
"""Where the system counts processes that it killed for want of memory: on the node, and in a container's own group."""
_NATIVE = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT")


class WatchedKernel(AsyncKernelManager):
    """A kernel whose exit code is kept when it is gone."""

    exit_code: ClassVar[int | None] = None

    async def is_alive(self) -> bool:  # type: ignore[override]  # as that of its base class, which says it of neither
        """Whether the kernel runs."""
        alive = bool(await super().is_alive())
        if not alive and self.provisioner is not None:
            code = await self.provisioner.poll()
            type(self).exit_code = code if isinstance(code, int) else None
        return alive


def memory_kills() -> int:
    """Return how many processes the system has killed for want of memory, as far as this process may know."""
    found = 0
    for path in _COUNTS:
        with contextlib.suppress(OSError, ValueError):
            found += sum(
                int(value) for name, _, value in _lines(path.read_text(encoding="ascii")) if name == "oom_kill"
            )
    return found


def _lines(text: str) -> Iterator[tuple[str, str, str]]:
    return (line.partition(" ") for line in text.splitlines())


def why_died(exit_code: int | None, *, memory_killed: bool) -> str:
    """Say why a kernel is gone.

    Args:
        exit_code: Of its process; negative: a signal; None: unknown.
        memory_killed: Whether the system killed a process for want of memory while the notebook ran.
    """
    if memory_killed:
        return "its process was killed, as the machine or the task's limit ran out of memory"
    if exit_code is None:
        return "its process is gone; it may have run out of memory"
    if exit_code >= 0:
        return f"its process ended with code {exit_code}, as by os._exit or a library that ends the process"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    if name == "SIGKILL":
        return "its process was killed by SIGKILL; it probably ran out of memory"
    if name in _NATIVE:
        return f"its process ended by {name}, a fault in native code (a library, a GPU driver), not in Python"
    return f"its process was ended by {name}"


def cell_that_ran(notebook: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the cell that ran last: papermill notes the start of each."""
    begun = [
        cell
        for cell in notebook.get("cells", [])
        if ((cell.get("metadata") or {}).get("papermill") or {}).get("start_time")
    ]
    return begun[-1] if begun else None


def with_death(notebook: Mapping[str, Any], message: str) -> bool:
    """Write into a notebook that its kernel died in the cell that ran last; return whether there is such a cell."""
    cell = cell_that_ran(notebook)
    if cell is None:
        return False
    traceback = [f"KernelDied: {message}", "the output above is what had arrived before"]
    error = {"output_type": "error", "ename": "KernelDied", "evalue": message, "traceback": traceback}
    cell["outputs"] = [*(cell.get("outputs") or []), error]
    return True
