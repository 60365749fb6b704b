"""Runs a module's server on sockets that listen already: `python -m detlab.launch.handed PORT FD[,FD…] MODULE [ARG…]`.

A port that is chosen first and bound later may be in use by then. Neither Jupyter's servers nor detlab's accept an open
socket, but all of them call tornado's `bind_sockets` for the port of their address.

Modules imported until that call are excluded from garbage collection, which would take a tenth of the start.
"""

from __future__ import annotations

import gc
import os
import runpy
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RECEIVE_SECONDS = 30.0


def handing(command: Sequence[str], port: int, descriptors: Sequence[int]) -> list[str]:
    """Return the command for `python -m MODULE …` that takes open sockets in place of a port."""
    python, option, *rest = command
    return [python, option, "detlab.launch.handed", str(port), ",".join(map(str, descriptors)), *rest]


def receive(path: Path) -> int:
    """Return the descriptor that the agent gives to any process of the task's user that connects to a Unix socket.

    Raises:
        OSError: The agent is not there, or gives none.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as near:
            near.settimeout(RECEIVE_SECONDS)
            near.connect(f"/proc/self/fd/{folder}/{path.name}")  # the whole path may be too long for the kernel
            _, descriptors, _, _ = socket.recv_fds(near, 1, 1)
    finally:
        os.close(folder)
    if not descriptors:
        raise OSError(f"{path}: no listening socket came")
    return descriptors[0]


def hand_over(port: int, listening: Sequence[socket.socket]) -> None:
    """Give out these sockets wherever this port is asked for; before tornado's servers are imported."""
    from tornado import netutil

    plain: Any = netutil.bind_sockets

    def bind_sockets(asked: int, *args: Any, **named: Any) -> Any:
        if asked != port:
            return plain(asked, *args, **named)
        gc.freeze()
        gc.enable()
        return [one.dup() for one in listening]

    instead: Any = bind_sockets
    for one in listening:
        one.setblocking(False)
    netutil.bind_sockets = instead


def main(arguments: Sequence[str]) -> None:
    """Take the sockets, then become the module."""
    gc.disable()
    port, numbers, module, *rest = arguments
    descriptors = [int(number) for number in numbers.split(",")]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # no kernel or terminal has it
    hand_over(int(port), [socket.socket(fileno=descriptor) for descriptor in descriptors])
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
