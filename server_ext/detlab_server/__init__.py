"""The Jupyter Server extension: relays front ends to the cluster with the user's own token.

A browser never holds a cluster token: it asks its own Jupyter Server (cookie and XSRF checked there), and the
server asks the master.
"""

from detlab_server.extension import DetlabServer

__all__ = ["DetlabServer"]


def _jupyter_server_extension_points() -> list[dict[str, object]]:
    return [{"module": "detlab_server", "app": DetlabServer}]
