"""`python -m detlab_hub.embedded.hub_process`: JupyterHub on the socket that the supervisor lends it.

It also starts faster so. What it imports stays: to look through it for garbage, again and again, takes a tenth of the
start.
"""

from __future__ import annotations

import gc
import socket
from typing import Any

from detlab_hub.embedded.listeners import inherited


def main() -> None:
    """Be `python -m jupyterhub`, with the same arguments."""
    gc.disable()
    from jupyterhub.app import JupyterHub

    gc.freeze()
    gc.enable()
    _listen_on(inherited())
    JupyterHub.launch_instance()


def _listen_on(sockets: dict[int, socket.socket]) -> None:
    """Have tornado's servers use these sockets for their ports: the Hub has no option for that."""
    from tornado import tcpserver

    bind = vars(tcpserver)["bind_sockets"]

    def bind_sockets(port: int, *arguments: Any, **named: Any) -> list[socket.socket]:
        lent = sockets.pop(port, None)
        found: list[socket.socket] = [lent] if lent is not None else bind(port, *arguments, **named)
        return found

    vars(tcpserver)["bind_sockets"] = bind_sockets


if __name__ == "__main__":
    main()
