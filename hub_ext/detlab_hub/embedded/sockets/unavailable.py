"""Replies on the sockets of a part that is down: clients get an error immediately, instead of a wait."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable, Mapping

from detlab_hub.embedded.sockets.listeners import BACKLOG, Address

SERVER = "detlab-supervisor"
"""The `Server` header of these responses, by which our own requests tell them from the part's."""
_SECONDS = 2.0
_MOST = 64
"""Concurrent connections; further ones are closed without a reply."""
_READ = 64 * 1024


class UnavailableServer:
    """Answers `503` on the sockets of one part; if it uses TLS, connections are closed.

    Args:
        part: Its name, for the response.
        addresses: Where it listens.
    """

    def __init__(self, part: str, addresses: Iterable[Address]) -> None:
        self._addresses = list(addresses)
        self._servers: list[asyncio.Server] = []
        self._open = 0
        text = f"The {part} of this cluster is down; it is being started again.\n"
        self._reply = (
            "HTTP/1.1 503 Service Unavailable\r\n"
            f"Server: {SERVER}\r\nRetry-After: 1\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}"
        ).encode("ascii")

    async def begin(self, sockets: Mapping[int, socket.socket]) -> None:
        """Answer from now on, on duplicates of these sockets."""
        for address in self._addresses:
            if address.port in sockets and not self._servers_on(address.port):
                answer = self._close if address.tls else self._answer
                own = sockets[address.port].dup()
                self._servers.append(await asyncio.start_server(answer, sock=own, backlog=BACKLOG, limit=_READ))

    def end(self) -> None:
        """Stop: new connections then wait for the part."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    def _servers_on(self, port: int) -> bool:
        return any(one.getsockname()[1] == port for server in self._servers for one in server.sockets)

    async def _close(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= _MOST:
                async with asyncio.timeout(_SECONDS):
                    await self._exchange(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the other end's own fault
        finally:
            self._open -= 1
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self._reply)
        with contextlib.suppress(OSError):
            writer.write_eof()
        # closed with bytes unread, a connection is reset, and its client may never see the answer
        for _ in range(_MOST):
            if not await reader.read(_READ):
                return
