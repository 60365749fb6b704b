"""Connections of the standard library that check their peer; see the package."""

from __future__ import annotations

import http.client
import urllib.request

from detlab.loopback import check_peer


class LoopbackConnection(http.client.HTTPConnection):
    """A connection of the standard library that looks who answers."""

    def connect(self) -> None:
        """Connect.

        Raises:
            OSError: There is no answer, or another ordinary user's program answers.
        """
        super().connect()
        try:
            check_peer(self.sock)
        except BaseException:
            self.close()
            raise


class LoopbackHandler(urllib.request.HTTPHandler):
    """For `urllib.request.build_opener`: plain HTTP by such connections."""

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Open an address."""
        reply: http.client.HTTPResponse = self.do_open(LoopbackConnection, request)
        return reply
