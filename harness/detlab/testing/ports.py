"""Ports for servers that a test starts, and perhaps starts again: nobody else gets them meanwhile."""

from __future__ import annotations

import os
import secrets
import socket
from collections import deque
from contextlib import closing

from detlab.launch.host.ports import lasting_ports

_TRIES = 1000
_MOST = 256
"""Ports that a process keeps to itself; older ones may be given out again."""
_kept: deque[int] = deque()
"""Descriptors of names in the abstract space of Unix sockets, which the kernel forgets with the process."""


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port on which nothing listens: no connection's own end, and no other test of this machine, gets it.

    Args:
        address: The address of this machine where it is to be free.

    Raises:
        OSError: The address is not this machine's, or no port is free.
    """
    candidates = lasting_ports()
    for _ in range(_TRIES if candidates else 0):
        port = secrets.choice(candidates)
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0detlab-test-port-{port}")
            _try(address, port)
        except OSError:
            name.close()
            continue
        _kept.append(name.detach())
        if len(_kept) > _MOST:
            os.close(_kept.popleft())
        return port
    return _try(address, 0)  # a machine whose connections may have any port


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Return several of them, all different."""
    return [free_port(address) for _ in range(count)]


def _try(address: str, port: int) -> int:
    with closing(socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)) as probe:
        probe.bind((address, port))
        return int(probe.getsockname()[1])
