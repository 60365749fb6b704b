"""Ports for the tasks that serve HTTP: bound by the agent, reported to the task and to the master."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from detlab_agent.runtimes.base import RefusedTask

_TRIES = 50
_OFFER_SECONDS = 120.0
"""Seconds that a container may take from its start to the request for its socket."""
HOLD_SECONDS = 90.0
"""Seconds that a port stays bound after its task: the Hub checks its servers every 30 s, then forgets ended ones."""


@dataclass(frozen=True)
class ServiceAddress:
    """The address at which a task serves.

    Attributes:
        address: The address for clients.
        port: Its port there.
        listen: The numeric address on which it listens, or is published.
        descriptor: Of the socket that listens there, for a task that inherits it.
    """

    address: str
    port: int
    listen: str
    descriptor: int | None = None

    def environment(self, listen: str | None = None) -> dict[str, str]:
        """Return the variables for the task; `listen` is the address to bind if not `self.listen`."""
        return {"DET_SERVICE_ADDRESS": listen or self.listen, "DET_SERVICE_PORT": str(self.port)}

    def inherited(self) -> dict[str, str]:
        """Return the variable that names a process's descriptor of its listening socket."""
        return {} if self.descriptor is None else {"DET_SERVICE_FD": str(self.descriptor)}


def as_number(address: str) -> str:
    """Return a host name or address as an address.

    Raises:
        RefusedTask: The name cannot be resolved here.
    """
    try:
        return str(socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise RefusedTask(f"this agent cannot listen on {address}: {error}; see its option --address") from error


@dataclass
class HeldPorts:
    """The ports of this agent's services: each is bound from the moment it is chosen until well after its task.

    So a program that waits for a port to become free never gets one to which the Hub's proxy still routes.

    Attributes:
        allowed: First and last port that may be used; None for any.
    """

    allowed: tuple[int, int] | None = None
    _held: dict[Path, socket.socket] = field(default_factory=dict, init=False)
    _known: dict[Path, int] = field(default_factory=dict, init=False)
    _ended: list[tuple[float, socket.socket]] = field(default_factory=list, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def take(self, record: Path, address: str) -> ServiceAddress:
        """Return a service at a port that no other program can bind from now on.

        Args:
            record: The task's record, the key here.
            address: The address for clients.

        Raises:
            RefusedTask: None is free, or the address is not this machine's.
        """
        listen = as_number(address)
        with self._lock:  # several tasks are made at once
            self._forget_ended()
            self._known = {known: port for known, port in self._known.items() if known.exists()}
            made = hold_port(listen, self.allowed, frozenset(self._known.values()))
            self._held[record] = made
        return ServiceAddress(address, int(made.getsockname()[1]), listen, made.fileno())

    def know(self, record: Path, port: int | None) -> None:
        """Note that an earlier task has this port, which its launcher holds."""
        if port is not None:
            self._known[record] = port

    def offer(self, record: Path, path: Path, uid: int) -> None:
        """Give the listening socket to the first process of a user that connects to a Unix socket.

        A container in the host's network cannot inherit it: its launcher requests it at this path in its directory.

        Args:
            record: The task's record.
            path: Path of the Unix socket.
            uid: The user's uid.

        Raises:
            OSError: It cannot be made.
        """
        held = self._held[record]
        asked = _listening_for(path, uid)
        threading.Thread(target=_give, args=(asked, held.dup(), uid), name="port", daemon=True).start()

    def close(self) -> None:
        """Close all ports; those of running tasks are still held by their launchers."""
        with self._lock:
            for held in (*self._held.values(), *(held for _, held in self._ended)):
                held.close()
            self._held, self._ended = {}, []

    def hand_back(self, record: Path) -> None:
        """Close a port that another process is about to bind for the task."""
        with self._lock:
            held = self._held.pop(record, None)
        if held is not None:
            self._known[record] = int(held.getsockname()[1])
            held.close()

    def retire(self, record: Path, address: str | None, port: int | None) -> None:
        """Refuse connections to a task that has ended, and keep its port until the Hub's proxy has forgotten it.

        Args:
            record: The task's record.
            address: Its address for clients.
            port: Its port there.
        """
        if address is None or port is None:
            return
        with self._lock:
            self._forget_ended()
            held = self._held.pop(record, None) or _bound_again(address, port)
            if held is not None:
                with contextlib.suppress(OSError):
                    held.shutdown(socket.SHUT_RDWR)  # ends the listening, not the binding
                self._ended.append((time.monotonic() + HOLD_SECONDS, held))

    def _forget_ended(self) -> None:
        now = time.monotonic()
        for until, held in self._ended:
            if until <= now:
                held.close()
        self._ended = [(until, held) for until, held in self._ended if until > now]


def _listening_for(path: Path, uid: int) -> socket.socket:
    """Return a Unix socket of a user that listens at a path in a folder of theirs.

    It is made and its owner is changed in a folder that only the agent can enter: in the user's own folder, another
    process of theirs could replace it by a link to a file of root's before the change. The folder is beside the user's,
    in the agent's directory of tasks, so that the socket can be moved.

    Raises:
        OSError: It cannot be made.
    """
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".port-", dir=path.parent.parent) as made,  # mode 0700
            _folder(Path(made)) as ours,
            _folder(path.parent) as theirs,
        ):
            asked.bind(f"/proc/self/fd/{ours}/{path.name}")  # the whole path may be too long for the kernel
            os.chown(path.name, uid, -1, dir_fd=ours, follow_symlinks=False)
            asked.listen()
            os.rename(path.name, path.name, src_dir_fd=ours, dst_dir_fd=theirs)
    except OSError:
        asked.close()
        raise
    return asked


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _give(asked: socket.socket, held: socket.socket, uid: int) -> None:
    """Send a socket to the first process of this user that requests it in time."""
    until = time.monotonic() + _OFFER_SECONDS
    with asked, held, contextlib.suppress(OSError):
        while (left := until - time.monotonic()) > 0:
            asked.settimeout(left)
            with asked.accept()[0] as far:
                _, peer, _ = struct.unpack("3i", far.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                if peer == uid:
                    socket.send_fds(far, [b"s"], [held.fileno()])
                    return


def hold_port(
    address: str, allowed: tuple[int, int] | None = None, taken: frozenset[int] = frozenset()
) -> socket.socket:
    """Return a socket that listens at a port of `address`.

    Args:
        address: An address of this machine.
        allowed: First and last port that may be used; None for any.
        taken: Ports that belong to tasks of this agent, although they may not be listening now.

    Raises:
        RefusedTask: None is free, or the address is not this machine's.
    """
    try:
        if allowed is None:
            for _ in range(_TRIES):
                if (made := listen_at(address, _any_port(address))) is not None:
                    return made
        else:
            ports = [port for port in range(allowed[0], allowed[1] + 1) if port not in taken]
            for port in random.sample(ports, len(ports)):  # one that was just given up may still be in use elsewhere
                if (made := listen_at(address, port)) is not None:
                    return made
    except OSError as error:
        raise RefusedTask(f"this agent cannot listen on {address}: {error}; see its option --address") from error
    where = f"in {allowed[0]}-{allowed[1]}" if allowed else ""
    raise RefusedTask(f"no free port {where} on {address} for the task's service; see the agent's --service-ports")


def listen_at(address: str, port: int) -> socket.socket | None:
    """Return a socket that listens there; None if another program has the port.

    Raises:
        OSError: The address is not this machine's.
    """
    family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind, protocol)
    try:
        # Connections of an earlier server that are still closing do not count.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        made.listen(socket.SOMAXCONN)
        # From here on nobody shares the port, not even when it does not listen any more.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except OSError as error:
        made.close()
        if error.errno in {errno.EADDRINUSE, errno.EACCES}:
            return None
        raise
    return made


def _bound_again(address: str, port: int) -> socket.socket | None:
    """Bind the port of a task whose launcher held it, since this agent was started after it."""
    try:
        return listen_at(as_number(address), port)
    except (OSError, RefusedTask):
        return None


def _any_port(address: str) -> int:
    """Return a port that is free now. Only a port that was bound by number stays bound when it stops listening."""
    family, kind, protocol, _, where = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.bind(where)
        return int(probe.getsockname()[1])
