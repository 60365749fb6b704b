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


HOOK_VARIABLE = "DET_STARTUP_HOOK"
"""Holds the script that the operator has run before each entrypoint (`task_container_defaults.startup_hook`)."""


def with_hook(entrypoint: str | list[str], folder: Path, env: Mapping[str, str] | None = None) -> str | list[str]:
    """Return an entrypoint that first runs the startup hooks, if there are any; where one fails, it ends.

    Args:
        entrypoint: A line for `sh -c`, or words.
        folder: Of the code; its hook runs after that of the environment.
        env: The environment of the task.
    """
    own, given = (folder / HOOK).is_file(), bool((env or {}).get(HOOK_VARIABLE))
    if not own and not given:
        return entrypoint
    words = ["sh", "-c", entrypoint] if isinstance(entrypoint, str) else entrypoint
    shell = "bash" if shutil.which("bash") else "sh"
    hooks = [*([f'eval "${HOOK_VARIABLE}"'] if given else []), *([f". ./{HOOK}"] if own else [])]
    return [shell, "-ec", "; ".join([*hooks, 'exec "$@"']), HOOK, *words]


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
