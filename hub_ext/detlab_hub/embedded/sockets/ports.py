"""Ports of this machine: whether one is free, which process has it, and the ports for private services."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import time
from pathlib import Path

from detlab.errors import DetlabError
from detlab.launch.host.ports import lasting_ports
from detlab.launch.host.procfs import read_process
from detlab_hub.embedded.sockets.listeners import LOOPBACK, listen, listening_inodes

_TRIES = 1000
_LOWEST = 600
"""Ports below this are those of well-known services."""


def is_free(port: int, ip: str = "127.0.0.1") -> bool:
    """Return whether a server could listen on the port of an address of this machine now.

    Raises:
        DetlabError: This user may not bind the port at all.
    """
    with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ip, port))
        except PermissionError as error:
            raise DetlabError(f"you may not use port {port}", hint="Take one above 1023: det up --port N") from error
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise DetlabError(f"port {port} of {ip} cannot be used: {error.strerror}") from error
    return True


def becomes_free(port: int, ip: str = "127.0.0.1", seconds: float = 3.0) -> bool:
    """Return whether a port is free now or within some seconds: a killed process keeps its ports until it is gone.

    Raises:
        DetlabError: This user may not bind the port at all.
    """
    ends = time.monotonic() + seconds
    while not (free := is_free(port, ip)) and time.monotonic() < ends:
        time.sleep(0.05)
    return free


def first_unprivileged() -> int:
    """Return the lowest port that an ordinary user may bind."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 1024


def privileged_ports() -> range:
    """Return the ports for private services that ordinary users cannot bind; empty if not root."""
    return range(_LOWEST, max(_LOWEST, min(first_unprivileged(), 1024)) if os.geteuid() == 0 else _LOWEST)


def listen_privately(ip: str = LOOPBACK) -> socket.socket:
    """Return a socket that listens on a free port of an address: if possible one that no ordinary user may bind.

    Otherwise it is, where there are such ports, one that can be had again when the cluster is started anew.
    """
    for candidates in (privileged_ports(), lasting_ports()):
        for port in random.sample(candidates, min(_TRIES, len(candidates))):
            if not _is_named(port):
                with contextlib.suppress(OSError):
                    return listen(ip, port)
    return listen(ip, 0)


def _is_named(port: int) -> bool:
    """Whether a service is assigned to this port (/etc/services), which may be started here some day."""
    try:
        return bool(socket.getservbyport(port, "tcp"))
    except OSError:
        return False


def owner_of(port: int) -> str | None:
    """Return `pid N (name)` of the process that listens on a port, None if /proc does not show it.

    If several processes share the socket, it is the youngest: the one that was started to serve there.
    """
    inodes = set(listening_inodes(port))
    holders = [
        int(one.name) for one in Path("/proc").iterdir() if inodes and one.name.isdigit() and _holds(one, inodes)
    ]
    for pid in sorted(holders, key=_started, reverse=True):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
            return f"pid {pid} ({name})"
    return None


def _started(pid: int) -> int:
    found = read_process(pid)
    return found.start_time if found is not None else 0


def _holds(process: Path, inodes: set[str]) -> bool:
    try:
        return any(str(link.readlink()) in inodes for link in (process / "fd").iterdir())
    except OSError:
        return False  # gone, or not ours to see
