"""Wiring of the Jupyter Server extension."""

from __future__ import annotations

from jupyter_server.extension.application import ExtensionApp

from detlab_server.handlers import (
    CodeHandler,
    JudgeHandler,
    SchemaHandler,
    SubmitHandler,
    TutorialHandler,
    VersionHandler,
)
from detlab_server.relay import RelayHandler, StatusHandler


class DetlabServer(ExtensionApp):
    """`/detlab/api/...` on the user's own server: the cluster's API under the user's identity."""

    name = "detlab_server"
    description = "Relay from Jupyter front ends to the detlab master"

    def initialize_handlers(self) -> None:
        """Register the routes: which cluster this is and of which version, the relay to it, submitting from here."""
        self.handlers.extend(
            [
                (r"/detlab/status", StatusHandler),
                (r"/detlab/version", VersionHandler),
                (r"/detlab/schema", SchemaHandler),
                (r"/detlab/code", CodeHandler),
                (r"/detlab/judge", JudgeHandler),
                (r"/detlab/submit", SubmitHandler),
                (r"/detlab/tutorial", TutorialHandler),
                (r"/detlab/api/(.*)", RelayHandler),
            ]
        )
