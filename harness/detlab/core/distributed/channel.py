"""Authenticated messages between the ranks of one allocation.

One rank serves, the others connect to it. Both sides prove that they know the allocation's secret before any other
message: each sends a nonce, and both answer with an HMAC-SHA256 over the two nonces. A key derived from them then signs
every frame together with its direction and number, so that no frame can be forged, replayed or reflected; the HMAC is
checked before a payload is unpickled.

    frame := length (8 bytes, big endian) || HMAC (32 bytes) || pickle of (operation, value)
"""

from __future__ import annotations

import hashlib
import hmac
import pickle
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from detlab.errors import DetlabError

_LENGTH = struct.Struct(">Q")
_NONCE_BYTES = 32
_MAC_BYTES = 32
_MAX_FRAME = 1 << 40
_HELLO = struct.Struct(">II")  # rank, size


class DistributedError(DetlabError):
    """The ranks of this trial cannot talk to each other: one is missing, has died, or does something else."""

    default_code = "distributed.failed"


class AuthenticationFailed(DistributedError):
    """The other end does not know this allocation's secret."""

    default_code = "distributed.authentication"


def derive_key(secret: bytes) -> bytes:
    """Return the channel key for an allocation's secret."""
    return hmac.new(secret, b"detlab rank channel v1", hashlib.sha256).digest()


def _mac(key: bytes, *parts: bytes) -> bytes:
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


class RankLink:
    """One end of an authenticated connection to one other rank.

    Args:
        sock: A connected stream socket.
        key: From `derive_key`.
        serving: Whether this end is the server.
        peer: The other rank, for messages; the server learns it in the handshake.
    """

    def __init__(self, sock: socket.socket, key: bytes, *, serving: bool, peer: int = 0) -> None:
        self.sock = sock
        if sock.family in {socket.AF_INET, socket.AF_INET6}:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # small messages must not wait for an ACK
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a node that vanished says no goodbye
        self.peer = peer
        self._key = key
        self._serving = serving
        self._sent = 0
        self._received = 0

    @classmethod
    def accept(cls, sock: socket.socket, key: bytes, size: int) -> RankLink:
        """Shake hands as the server.

        Raises:
            AuthenticationFailed: The other end does not know the key or belongs to another group.
            OSError: The connection broke, or time ran out.
        """
        link = cls(sock, key, serving=True)
        mine = secrets.token_bytes(_NONCE_BYTES)
        sock.sendall(mine)
        theirs = link._exactly(_NONCE_BYTES)
        hello = link._exactly(_HELLO.size)
        link._check(_mac(key, b"worker", mine, theirs, hello), link._exactly(_MAC_BYTES))
        sock.sendall(_mac(key, b"chief", mine, theirs, hello))
        rank, claimed = _HELLO.unpack(hello)
        if claimed != size or not 0 < rank < size:
            raise AuthenticationFailed(f"rank {rank} of {claimed} connected to a group of {size}")
        link.peer = rank
        link._key = _mac(key, b"session", mine, theirs, hello)
        return link

    @classmethod
    def connect(cls, sock: socket.socket, key: bytes, rank: int, size: int) -> RankLink:
        """Shake hands as the rank that connects. Raises as `accept` does."""
        link = cls(sock, key, serving=False)
        theirs = link._exactly(_NONCE_BYTES)
        mine = secrets.token_bytes(_NONCE_BYTES)
        hello = _HELLO.pack(rank, size)
        sock.sendall(mine + hello + _mac(key, b"worker", theirs, mine, hello))
        link._check(_mac(key, b"chief", theirs, mine, hello), link._exactly(_MAC_BYTES))
        link._key = _mac(key, b"session", theirs, mine, hello)
        return link

    def send(self, operation: str, value: Any) -> None:
        """Send one message; block while the other rank does not read and the buffers are full.

        Raises:
            DistributedError: The other rank is gone, or did not take the message in time.
        """
        payload = pickle.dumps((operation, value), protocol=pickle.HIGHEST_PROTOCOL)
        mac = self._frame_mac(self._serving, self._sent, payload)
        self._sent += 1
        try:
            self.sock.sendall(b"".join((_LENGTH.pack(len(payload)), mac, payload)))
        except TimeoutError as error:
            raise DistributedError(f"rank {self.peer} did not take a message ({operation}) in time") from error
        except OSError as error:
            raise DistributedError(f"rank {self.peer} is gone: {error}") from error

    def receive(self, operation: str) -> Any:
        """Wait for the next message and return its value.

        Raises:
            DistributedError: The peer is gone, silent for too long, or in another operation.
            AuthenticationFailed: The frame was not signed by the peer.
        """
        try:
            (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
            mac = self._exactly(_MAC_BYTES)
            if length > _MAX_FRAME:
                raise AuthenticationFailed(f"rank {self.peer} announced {length} bytes")
            payload = self._exactly(length)
        except TimeoutError as error:
            raise DistributedError(f"rank {self.peer} did not answer in time ({operation})") from error
        except OSError as error:
            raise DistributedError(
                f"rank {self.peer} is gone ({error}): it died, or left while others still call {operation}()"
            ) from error
        self._check(self._frame_mac(not self._serving, self._received, payload), mac)
        self._received += 1
        theirs, value = pickle.loads(payload)  # noqa: S301  (signed by a rank of this allocation)
        if theirs != operation:
            raise DistributedError(
                f"ranks are out of step: this one called {operation}(), rank {self.peer} called {theirs}()"
            )
        return value

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()

    def _frame_mac(self, from_server: bool, number: int, payload: bytes) -> bytes:
        side = b"S" if from_server else b"C"
        return _mac(self._key, side, _LENGTH.pack(number), _LENGTH.pack(len(payload)), payload)

    def _exactly(self, count: int) -> bytes:
        buffer = bytearray(count)
        view = memoryview(buffer)
        while view:
            got = self.sock.recv_into(view, min(len(view), 1 << 24))
            if got == 0:
                raise ConnectionResetError("connection closed")
            view = view[got:]
        return bytes(buffer)

    def _check(self, expected: bytes, actual: bytes) -> None:
        if not hmac.compare_digest(expected, actual):
            raise AuthenticationFailed("the other end does not know the secret of this allocation")


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Return a listening TCP socket.

    Raises:
        DistributedError: The address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        raise DistributedError(
            f"cannot listen on {host}:{port} for the other ranks: {error}",
            hint="Pass another pub_port= to DistributedContext if another job on this machine uses it.",
        ) from error


def accept_all(listener: socket.socket, key: bytes, size: int, timeout: float) -> dict[int, RankLink]:
    """Wait until ranks 1 … size-1 have connected and return their links.

    Connections that fail the handshake are dropped: they cannot keep a rank out.

    Raises:
        DistributedError: Time ran out; the missing ranks are named.
    """
    links: dict[int, RankLink] = {}
    give_up = time.monotonic() + timeout
    while len(links) < size - 1:
        left = give_up - time.monotonic()
        missing = sorted(set(range(1, size)) - links.keys())
        listener.settimeout(max(left, 0.001))
        try:
            sock, _ = listener.accept()
        except TimeoutError:
            for link in links.values():
                link.close()
            raise DistributedError(
                f"{_ranks(missing)} did not connect to the chief within {timeout:g} s",
                hint="Did each process start, and create its DistributedContext?",
            ) from None
        sock.settimeout(min(10.0, max(left, 0.001)))
        try:
            link = RankLink.accept(sock, key, size)
        except (OSError, AuthenticationFailed):
            sock.close()
            continue
        if link.peer in links:
            links[link.peer].close()
        links[link.peer] = link
    return links


def connect_to(
    address: Callable[[], tuple[str, int] | None], key: bytes, rank: int, size: int, timeout: float
) -> RankLink:
    """Connect to the serving rank, which may not be up yet.

    Args:
        address: Gives the server's host and port, or None while they are not known; asked for each attempt.
        key: From `derive_key`.
        rank: This rank in the group.
        size: Ranks in the group.
        timeout: Seconds until it gives up.

    Raises:
        DistributedError: The chief could not be reached in time.
    """
    give_up = time.monotonic() + timeout
    reason = "it has not said where it listens"
    while time.monotonic() < give_up:
        where = address()
        if where is not None:
            try:
                sock = socket.create_connection(where, timeout=10.0)
            except OSError as error:
                reason = f"{where[0]}:{where[1]}: {error}"
            else:
                try:
                    return RankLink.connect(sock, key, rank, size)
                except (OSError, AuthenticationFailed) as error:
                    sock.close()
                    reason = f"{where[0]}:{where[1]}: {error}"
        # Nothing can be waited on before the other rank listens: try again.
        time.sleep(min(0.1, max(0.0, give_up - time.monotonic())))
    raise DistributedError(
        f"rank {rank} did not reach the chief (rank 0) within {timeout:g} s: {reason}",
        hint="Did the chief start, and create its DistributedContext?",
    )


def gather_from(links: dict[int, RankLink], operation: str, timeout: float | None) -> dict[int, Any]:
    """Receive one message from each link, in any order.

    Raises:
        DistributedError: A rank died or was silent for `timeout` seconds; the missing ranks are named.
    """
    values: dict[int, Any] = {}
    give_up = None if timeout is None else time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for link in links.values():
            selector.register(link.sock, selectors.EVENT_READ, link)
        while len(values) < len(links):
            left = None if give_up is None else give_up - time.monotonic()
            ready = selector.select(left) if left is None or left > 0 else []
            if not ready and left is not None:
                missing = sorted(links.keys() - values.keys())
                raise DistributedError(f"{_ranks(missing)} did not call {operation}() within {timeout:g} s")
            for item, _ in ready:
                peer: RankLink = item.data
                values[peer.peer] = peer.receive(operation)
                selector.unregister(peer.sock)
    return values


def _ranks(ranks: list[int]) -> str:
    names = ", ".join(map(str, ranks))
    return f"rank {names}" if len(ranks) == 1 else f"ranks {names}"
