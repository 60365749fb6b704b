"""`python -m detlab_hub.embedded.hub_process`: JupyterHub on the socket that it inherits from the supervisor.

The start is also faster this way. Imported modules are frozen for the garbage collector: scanning them again and again
takes a tenth of the start.
"""

from __future__ import annotations

import gc
import socket
from typing import Any

from detlab_hub.embedded.sockets.listeners import inherited


def main() -> None:
    """Do what `python -m jupyterhub` does, with the same arguments."""
    gc.disable()
    from jupyterhub.app import JupyterHub

    gc.freeze()
    gc.enable()
    _listen_on(inherited())
    JupyterHub.launch_instance()


def _listen_on(sockets: dict[int, socket.socket]) -> None:
    """Make tornado's servers use these sockets for their ports: the Hub has no option for that."""
    from tornado import tcpserver

    bind = vars(tcpserver)["bind_sockets"]

    def bind_sockets(port: int, address: str | None = None, *arguments: Any, **named: Any) -> list[socket.socket]:
        lent = sockets.get(port)
        if lent is None:
            found: list[socket.socket] = bind(port, address, *arguments, **named)
            return found
        if address and address != lent.getsockname()[0]:
            raise SystemExit(
                f"c.JupyterHub.hub_bind_url: the Hub cannot listen on {address}:{port}, since det up has bound"
                f" {lent.getsockname()[0]}:{port}; for servers in containers set c.EmbeddedCluster.hub_ip"
            )
        return [sockets.pop(port)]

    vars(tcpserver)["bind_sockets"] = bind_sockets


if __name__ == "__main__":
    main()
