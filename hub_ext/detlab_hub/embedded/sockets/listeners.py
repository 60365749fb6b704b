"""The listening sockets of the cluster: bound by `det up`, held by the supervisor, inherited by the parts.

A port that is free for a moment can be bound by a task of any user, and tokens would be sent to that task. So
the sockets outlive the parts: each part inherits its own (as with systemd), and while it is down the supervisor holds
them. A killed supervisor leaves them with the running parts, from which the next one takes them back.
See docs/decisions/0016-listening-sockets.md.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import socket
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from detlab.errors import DetlabError

log = logging.getLogger("detlab.supervisor")

VARIABLE = "DETLAB_LISTENERS"
"""Environment variable of a part: `PORT=DESCRIPTOR,PORT=DESCRIPTOR`. `listeners.cjs` reads it as well."""
BACKLOG = 511
LOOPBACK = "127.0.0.1"
_LISTEN = "0A"
_PIDFD_GETFD = 438
"""Number of the system call, which is the same on all architectures; Python has no function for it."""


@dataclass(frozen=True)
class Address:
    """Where a part listens.

    Attributes:
        ip: Numeric address of this machine.
        port: Its port.
        tls: Whether it uses TLS there.
    """

    ip: str
    port: int
    tls: bool = False


def listen(ip: str, port: int) -> socket.socket:
    """Return a listening socket that child processes do not inherit.

    It listens immediately: a port that is only bound could be bound by others as well.

    Raises:
        OSError: The port cannot be bound.
    """
    made = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((ip, port))
        made.listen(BACKLOG)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made


def inherited(environ: MutableMapping[str, str] = os.environ) -> dict[int, socket.socket]:
    """Return the sockets inherited from the parent process, by port; remove the variable.

    Raises:
        DetlabError: The variable names a descriptor that is not such a socket.
    """
    text = environ.pop(VARIABLE, "")
    found = {}
    try:
        for pair in filter(None, text.split(",")):
            port, _, descriptor = pair.partition("=")
            held = socket.socket(fileno=int(descriptor))
            held.set_inheritable(False)
            held.setblocking(False)
            found[int(port)] = held
    except (ValueError, OSError) as error:
        raise DetlabError(f"{VARIABLE}={text!r} names a socket that this process does not have: {error}") from error
    return found


def lent(sockets: Mapping[int, socket.socket]) -> dict[str, str]:
    """Return the environment in which a child finds the sockets; they must be passed to it as well."""
    pairs = [f"{port}={held.fileno()}" for port, held in sorted(sockets.items())]
    return {VARIABLE: ",".join(pairs)} if pairs else {}


class Listeners:
    """Sockets by port.

    Args:
        sockets: The sockets that we have already.
    """

    def __init__(self, sockets: Mapping[int, socket.socket] | None = None) -> None:
        self._sockets = dict(sockets or {})

    def __enter__(self) -> Listeners:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all sockets."""
        for held in self._sockets.values():
            held.close()
        self._sockets.clear()

    def add(self, made: socket.socket) -> int:
        """Hold one more socket; return its port."""
        port = int(made.getsockname()[1])
        self._sockets[port] = made
        return port

    def all(self) -> dict[int, socket.socket]:
        """Return all of them."""
        return dict(self._sockets)

    def held(self, addresses: Iterable[Address]) -> dict[int, socket.socket]:
        """Return the sockets that we have for these addresses."""
        return {one.port: self._sockets[one.port] for one in addresses if one.port in self._sockets}

    def ensure(self, addresses: Iterable[Address]) -> dict[int, socket.socket]:
        """Return the sockets for these addresses, binding missing ones.

        Raises:
            OSError: Another process has the port.
        """
        wanted = list(addresses)
        for one in wanted:
            if one.port not in self._sockets:
                try:
                    self.add(listen(one.ip, one.port))
                except OSError as error:
                    raise OSError(
                        error.errno, f"port {one.port} of {one.ip}: {os.strerror(error.errno or 0)}"
                    ) from error
        return self.held(wanted)

    def take_back(self, pid: int, addresses: Iterable[Address]) -> None:
        """Take the sockets that we do not have from a running process that listens on them.

        If the kernel does not permit it, this is logged, and they are bound when that process has ended.
        """
        for one in addresses:
            if one.port in self._sockets:
                continue
            try:
                self.add(_taken(pid, one.port))
                log.info("port %d: taken back from pid %d", one.port, pid)
            except OSError as error:
                log.warning(
                    "port %d: pid %d has it and it cannot be shared with us (%s); it is bound anew when that ends",
                    one.port,
                    pid,
                    error.strerror,
                )


def _taken(pid: int, port: int) -> socket.socket:
    """Return a duplicate of the socket with which a process listens on a port.

    Raises:
        OSError: The process has none, or we lack the permission.
    """
    handle = os.pidfd_open(pid)
    try:
        for inode in listening_inodes(port):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                if str(link.readlink()) == inode:
                    return _duplicate(handle, int(link.name))
    finally:
        os.close(handle)
    raise OSError(errno.ENOENT, "it does not listen there")


def _duplicate(pidfd: int, descriptor: int) -> socket.socket:
    libc = ctypes.CDLL(None, use_errno=True)
    got = libc.syscall(_PIDFD_GETFD, pidfd, descriptor, 0)  # close-on-exec from the start
    if got < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    made = socket.socket(fileno=got)
    made.setblocking(False)
    return made


def listening_inodes(port: int) -> list[str]:
    """Return all sockets that listen on a port, as links in /proc/PID/fd name them: `socket:[INODE]`."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.append(f"socket:[{fields[9]}]")
    return found
