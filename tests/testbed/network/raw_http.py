"""A request whose target goes out as it stands: ordinary clients tidy it up first."""

from __future__ import annotations

import http.client
from collections.abc import Mapping


def ask(port: int, verb: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> tuple[int, bytes]:
    """Send it to a port of this machine; return the reply's status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        first = f"{verb} {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(body)}\r\n"
        rest = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        connection.connect()
        connection.sock.sendall(f"{first}{rest}Connection: close\r\n\r\n".encode() + body)
        reply = http.client.HTTPResponse(connection.sock, method=verb)
        reply.begin()
        return reply.status, reply.read()
    finally:
        connection.close()
