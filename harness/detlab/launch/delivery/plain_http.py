"""HTTP with the standard library alone: for masters without TLS, and where an image has nothing but Python."""

from __future__ import annotations

import http.client
import select
from typing import BinaryIO
from urllib.parse import urlsplit

from detlab.launch.delivery.sender import TransportError
from detlab.loopback.connections import LoopbackConnection
from detlab.trust import tls_context

TIMEOUT = 30.0


class PlainTransport:
    """A `Transport` over one kept connection; redirects are not followed, proxies are not used.

    Args:
        api_url: Base of the API, ends with `/api/v1/`.
    """

    def __init__(self, api_url: str) -> None:
        parts = urlsplit(api_url)
        self._path = parts.path
        host, port = parts.hostname or "", parts.port
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = tls_context(api_url)
            self._connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=context)
        else:
            self._connection = LoopbackConnection(host, port, timeout=TIMEOUT)

    def post(self, path: str, body: bytes, token: str) -> tuple[int, bytes]:
        """See `Transport.post`.

        Raises:
            TransportError: No answer came, or the request cannot be sent.
        """
        return self._ask("POST", path, body, {"Content-Type": "application/json"}, token)

    def put_file(self, path: str, file: BinaryIO, size: int, token: str) -> tuple[int, bytes]:
        """See `media.FileTransport.put_file`.

        Raises:
            TransportError: No answer came, or the request cannot be sent.
        """
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        return self._ask("PUT", path, file, headers, token)

    def _ask(
        self, method: str, path: str, body: bytes | BinaryIO, headers: dict[str, str], token: str
    ) -> tuple[int, bytes]:
        try:
            self._drop_if_ended()
            self._connection.request(method, self._path + path, body, headers | {"Authorization": f"Bearer {token}"})
            reply = self._connection.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()  # the next request opens it again
            raise TransportError(f"{type(error).__name__}: {error}") from error
        except ValueError as error:
            self._connection.close()
            # Its words may hold the token: a header that cannot be sent is told as it is.
            raise TransportError(f"the request cannot be sent: {type(error).__name__}") from None

    def _drop_if_ended(self) -> None:
        """Close a kept connection that the master has ended meanwhile: nothing else can wait on an idle one."""
        kept = self._connection.sock
        if kept is not None:
            look = select.poll()
            look.register(kept, select.POLLIN)
            if look.poll(0):
                self._connection.close()

    def close(self) -> None:
        """See `Transport.close`."""
        self._connection.close()
