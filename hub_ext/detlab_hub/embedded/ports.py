"""Ports on loopback: is one free, who has it, which ones are."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

from detlab.errors import DetlabError

_LISTEN = "0A"


def is_free(port: int, ip: str = "127.0.0.1") -> bool:
    """Return whether a server could listen on the port of an address of this machine now.

    Raises:
        DetlabError: This user may not use the port at all.
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


def free_ports(count: int) -> list[int]:
    """Return ports that are free now, all different."""
    probes = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def owner_of(port: int) -> str | None:
    """Return `pid N (name)` of who listens on a port, None if /proc does not tell us."""
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and _holds(process, inodes):
            name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
            return f"pid {process.name} ({name})"
    return None


def _listening_inodes(port: int) -> set[str]:
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found


def _holds(process: Path, inodes: set[str]) -> bool:
    try:
        return any(str(link.readlink()) in inodes for link in (process / "fd").iterdir())
    except OSError:
        return False  # gone, or not ours to see
