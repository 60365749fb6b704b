"""Wiring of the Jupyter Server extension."""

from __future__ import annotations

from jupyter_server.extension.application import ExtensionApp

from detlab_server.relay import RelayHandler, StatusHandler


class DetlabServer(ExtensionApp):
    """`/detlab/api/...` on the user's own server: the cluster's API under the user's identity."""

    name = "detlab_server"
    description = "Relay from Jupyter front ends to the detlab master"

    def initialize_handlers(self) -> None:
        """Register the two routes: which cluster this is, and the relay to it."""
        self.handlers.extend(
            [
                (r"/detlab/status", StatusHandler),
                (r"/detlab/api/(.*)", RelayHandler),
            ]
        )
