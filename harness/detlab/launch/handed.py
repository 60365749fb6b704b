"""Runs a module's server on a socket that listens already: `python -m detlab.launch.handed FD MODULE [ARGUMENT…]`.

A port that is drawn first and bound later may be somebody else's by then. Neither Jupyter's servers nor ours take an
open socket, but all of them ask tornado's `bind_sockets` for one at the port of their address.

What they have imported until they ask stays: to look through it for garbage, again and again, would take a tenth of
their start.
"""

from __future__ import annotations

import gc
import os
import runpy
import socket
import sys
from collections.abc import Sequence
from typing import Any


def handing(command: Sequence[str], descriptor: int) -> list[str]:
    """Return `python -m MODULE …` as it is run with a socket that is handed over."""
    python, option, *rest = command
    return [python, option, "detlab.launch.handed", str(descriptor), *rest]


def hand_over(listening: socket.socket) -> None:
    """Give out this socket wherever its port is asked for; before tornado's servers are imported."""
    from tornado import netutil

    port = listening.getsockname()[1]
    plain: Any = netutil.bind_sockets

    def bind_sockets(asked: int, *args: Any, **named: Any) -> Any:
        if asked != port:
            return plain(asked, *args, **named)
        gc.freeze()
        gc.enable()
        return [listening.dup()]

    instead: Any = bind_sockets
    listening.setblocking(False)
    netutil.bind_sockets = instead


def main(arguments: Sequence[str]) -> None:
    """Take the socket, then become the module."""
    gc.disable()
    descriptor, module, *rest = arguments
    os.set_inheritable(int(descriptor), False)  # no kernel or terminal has it
    hand_over(socket.socket(fileno=int(descriptor)))
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
