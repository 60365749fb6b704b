"""How the ranks of one trial find each other, and the secret that they share.

In a task on one node the chief takes a free port and writes it to the task directory; across nodes it is the one that
the launchers agreed on (`DET_CHIEF_PORT`, `detlab.launch.ranks.rendezvous`), elsewhere a fixed one, as in Determined.
The secret is `$DET_TASK_DIR/rank_key` on one node, `DET_RANK_KEY` (hex) across nodes, and a private file of the user
off-cluster.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_state_dir

from detlab.core.distributed.channel import DistributedError, listen
from detlab.files import write_atomic

_KEY_VARIABLE = "DET_RANK_KEY"
_PORT_VARIABLE = "DET_CHIEF_PORT"
_KEY_BYTES = 32
_LOCALHOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class RendezvousAddress:
    """Where the serving rank listens.

    Attributes:
        host: Its address.
        port: Its port; 0 means a free one, published in `file`.
        file: Where a free port is published.
        listener: A socket that listens already, if any.
    """

    host: str
    port: int
    file: Path | None = None
    listener: socket.socket | None = None

    @classmethod
    def choose(cls, task_dir: Path | None, port: int, chief_ip: str | None, *, one_node: bool) -> RendezvousAddress:
        """Return the place of the world group: by file within a task's node, else by port."""
        if not one_node:
            return cls(chief_ip or _LOCALHOST, port)
        if task_dir is None:
            return cls(_LOCALHOST, port)
        return cls(_LOCALHOST, 0, task_dir / f"rank_address.{port}")

    @classmethod
    def fixed(cls, host: str, port: int, listener: socket.socket | None) -> RendezvousAddress:
        """Return a place that is known already."""
        return cls(host, port, None, listener)

    @contextlib.contextmanager
    def serve(self, size: int) -> Iterator[socket.socket]:
        """Listen, and publish the address, while the block lasts."""
        listener = self.listener or listen(self.host, self.port, size)
        try:
            if self.file is not None:
                write_atomic(self.file, f"{self.host} {listener.getsockname()[1]}\n".encode("ascii"), mode=None)
            yield listener
        finally:
            listener.close()
            if self.file is not None:
                self.file.unlink(missing_ok=True)

    def address(self) -> tuple[str, int] | None:
        """Return where to connect, or None while that is not published."""
        if self.file is None:
            return self.host, self.port
        try:
            host, port = self.file.read_text(encoding="ascii").split()
        except (FileNotFoundError, ValueError):
            return None
        return host, int(port)


def agreed_port() -> int | None:
    """Return the port of the chief that the launchers of several nodes agreed on; None without such an agreement."""
    port = os.environ.get(_PORT_VARIABLE, "")
    return int(port) if port.isdecimal() else None


def shared_secret(task_dir: Path | None, *, one_node: bool) -> bytes:
    """Return the secret that all ranks of this trial know.

    Raises:
        DistributedError: Ranks on several nodes were given no secret, or it cannot be read.
    """
    given = os.environ.get(_KEY_VARIABLE)
    if given:
        try:
            return bytes.fromhex(given)
        except ValueError as error:
            raise DistributedError(f"{_KEY_VARIABLE} is not hexadecimal") from error
    if not one_node:
        raise DistributedError(
            f"ranks on several nodes share a secret through the environment variable {_KEY_VARIABLE}, which is not set"
        )
    path = (task_dir or Path(user_state_dir("detlab"))) / "rank_key"
    try:
        return _read_or_make(path)
    except OSError as error:
        raise DistributedError(f"the secret of this trial's ranks cannot be read: {error}") from error


def _read_or_make(path: Path) -> bytes:
    """Return the secret in a file, made by the first process that needs it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        write_atomic(path, secrets.token_bytes(_KEY_BYTES), replace=False)
    status = path.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(f"{path} must belong to this user alone (mode 0600)")
    return path.read_bytes()
