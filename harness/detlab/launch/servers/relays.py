"""TLS for a server that speaks plain HTTP on this machine: towards the Hub's proxy, and from it to the Hub.

A server on another node than the Hub's is reached over a network. It listens on a Unix socket in a private folder; a
relay beside it has its public port and the certificate that came with the launch. The Hub's API is on the loopback of
the *master's* machine; a relay on the node's own loopback leads there, by the way that the agent takes to the master
and with the agent's pin. Only the standard library is imported here.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHUNK = 64 * 1024
HANDSHAKE_SECONDS = 10.0
_START_SECONDS = 30.0


@dataclass(frozen=True)
class Target:
    """Where a relay leads.

    Attributes:
        host: Name or address.
        port: Its port.
        trust: Certificates to trust there; None: no TLS.
        name: What requests are to say in `Host`, one for each connection; None: bytes pass as they are.
        path: A Unix socket, in the place of host and port.
    """

    host: str = ""
    port: int = 0
    trust: ssl.SSLContext | None = None
    name: str | None = None
    path: Path | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect.

        Raises:
            OSError: Nothing listens there, or its certificate is not trusted.
        """
        if self.path is not None:
            return await asyncio.open_unix_connection(self.path)
        named: dict[str, Any] = {"ssl": self.trust, "server_hostname": self.host} if self.trust else {}
        return await asyncio.open_connection(self.host, self.port, **named)


class Relays:
    """Relays of byte streams, in a thread of their own until the process ends."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="relays", daemon=True).start()

    def add(self, listening: socket.socket, target: Target, shown: ssl.SSLContext | None = None) -> int:
        """Relay what comes to a socket; return its port.

        Args:
            listening: A socket that already listens, so that no other program can take its port.
            target: Where it leads.
            shown: The certificate to show; None: no TLS.

        Raises:
            OSError: The socket cannot be used.
        """
        begun = asyncio.run_coroutine_threadsafe(self._listen(listening, target, shown), self._loop)
        return begun.result(_START_SECONDS)

    async def _listen(self, listening: socket.socket, target: Target, shown: ssl.SSLContext | None) -> int:
        async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _relay(reader, writer, target)

        secure: dict[str, Any] = {"ssl": shown, "ssl_handshake_timeout": HANDSHAKE_SECONDS} if shown else {}
        await asyncio.start_server(meet, sock=listening, backlog=socket.SOMAXCONN, **secure)
        return int(listening.getsockname()[1])


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Target) -> None:
    """Carry both directions until one of them ends."""
    try:
        far_reader, far_writer = await target.open()
    except OSError:  # who asked sees a closed connection, as it would without a relay
        writer.close()
        return
    if target.name is not None and not await _pass_head(reader, far_writer, target.name):
        for end in (writer, far_writer):
            end.close()
        return
    ways = [asyncio.create_task(_pump(reader, far_writer)), asyncio.create_task(_pump(far_reader, writer))]
    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    for end in (writer, far_writer):
        end.close()  # what is still to be written is written before
    await asyncio.wait(ways)
    for end in (writer, far_writer):
        with contextlib.suppress(OSError):
            await end.wait_closed()


async def _pass_head(source: asyncio.StreamReader, sink: asyncio.StreamWriter, name: str) -> bool:
    """Pass on the head of a request with another `Host`; return whether it came.

    The answer is to end the connection: a second request would have a head of its own in the midst of the bytes.
    """
    try:
        first, *lines = (await source.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
        return False
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in {b"host", b"connection"}]
    own = [b"Host: " + name.encode("ascii" if name.isascii() else "idna"), b"Connection: close"]
    sink.write(b"\r\n".join([first, *own, *kept, b"", b""]))
    return True


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):  # either end went away
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()


def showing(certificate_file: str, key_file: str) -> ssl.SSLContext:
    """Return the context of a server with this certificate.

    Raises:
        OSError: The files cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate_file, key_file)
    return context
