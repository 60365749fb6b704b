"""How the launcher starts the entrypoint: as a new program, unless the caller passes another way."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class EntrypointProcess(Protocol):
    """The entrypoint's process; the launcher itself waits for it and sets `returncode`."""

    pid: int
    returncode: int | None


@dataclass(frozen=True)
class EntrypointCommand:
    """What to start.

    Attributes:
        entrypoint: A line for `sh -c`, or words.
        cwd: Its working directory.
        env: Its whole environment.
        stdout: Descriptor for its output.
        stderr: Descriptor for its errors.
        passed: Further descriptors that it gets, under the same numbers.
        on_cold: Called with the reason where a forked interpreter cannot stand in for a new one.
    """

    entrypoint: str | list[str]
    cwd: Path
    env: Mapping[str, str]
    stdout: int
    stderr: int
    passed: tuple[int, ...] = ()
    on_cold: Callable[[str], None] | None = None

    @property
    def words(self) -> list[str]:
        """The command as words."""
        return ["sh", "-c", self.entrypoint] if isinstance(self.entrypoint, str) else list(self.entrypoint)


HOOK = "startup-hook.sh"
"""A script at the top of a task's code that runs before its entrypoint, in the same shell, as Determined's does."""


def with_hook(entrypoint: str | list[str], folder: Path) -> str | list[str]:
    """Return an entrypoint that first runs the folder's startup hook, if there is one; where that fails, it ends."""
    if not (folder / HOOK).is_file():
        return entrypoint
    words = ["sh", "-c", entrypoint] if isinstance(entrypoint, str) else entrypoint
    shell = "bash" if shutil.which("bash") else "sh"
    return [shell, "-ec", f'. ./{HOOK}; exec "$@"', HOOK, *words]


Start = Callable[[EntrypointCommand], EntrypointProcess]
"""Starts an entrypoint as a process group of its own, without input."""


def start_cold(entry: EntrypointCommand) -> EntrypointProcess:
    """Start it as a new program.

    Raises:
        OSError: It cannot be started.
        ValueError: A word holds a NUL.
    """
    return subprocess.Popen(
        entry.words,
        cwd=entry.cwd,
        env=dict(entry.env),
        stdin=subprocess.DEVNULL,
        stdout=entry.stdout,
        stderr=entry.stderr,
        process_group=0,
        pass_fds=entry.passed,
    )
