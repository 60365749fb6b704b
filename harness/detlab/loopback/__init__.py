"""Checks the peer of a connection over loopback before a secret is sent to it.

All users of a machine share its loopback. Each of them can take a port of 1024 or more while the program whose port it
is does not run, and would then receive tokens. So clients with a token check the peer first: it must belong to root,
to the client's own user, or to a user that DET_TRUSTED_UIDS names. A peer that is not on this network (a forwarded or
translated port) needs privileges that ordinary users do not have, so it is trusted.

Only the standard library is imported here, and nothing is looked up where TLS authenticates the server.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import httpx

_CONNECTED = "connection.connect_tcp.complete"
"""What httpx reports before it sends anything over a connection."""
VARIABLE = "DET_TRUSTED_UIDS"
"""Environment variable: uids, separated by commas, of users of this machine whose servers are believed as well."""
_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
"""Of linux/netlink.h and linux/sock_diag.h."""
_LISTENS = 10
_MAPPED = bytes(10) + b"\xff\xff"
"""What an IPv4 address begins with where it is written as one of IPv6."""
_UNPRIVILEGED = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")


class StrangersPort(ConnectionError):
    """Another user of this machine answers at the address; nothing was sent."""


def check_peer(connection: socket.socket) -> None:
    """Refuse a connection that another ordinary user of this machine has accepted, before anything is sent.

    Args:
        connection: It is connected, and nothing was sent yet.

    Raises:
        StrangersPort: The other end belongs to another user.
    """
    there = connection.getpeername()
    if connection.family not in {socket.AF_INET, socket.AF_INET6} or not _is_local(there[0]):
        return
    port = int(there[1])
    if port < _first_unprivileged():
        return
    strangers = _owners(connection) - _believed()
    if strangers:
        names = " and ".join(f"uid {uid}" for uid in sorted(strangers))
        raise StrangersPort(
            f"port {port} of this machine belongs to {names}, who is neither root nor you: nothing was sent there."
            f" Is the cluster down? (ss -ltnpe 'sport = {port}'; where that user's cluster is meant,"
            f" {VARIABLE}={','.join(map(str, sorted(strangers)))})"
        )


def _is_local(address: str) -> bool:
    """Whether an address in numbers, as the system writes it, is one of loopback."""
    return address.removeprefix("::ffff:").startswith("127.") or address == "::1"


def _first_unprivileged() -> int:
    try:
        return int(_UNPRIVILEGED.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 1024


def _believed() -> set[int]:
    """Return the uids that may be at the other end; entries of the variable that are not numbers are ignored."""
    named = {int(uid) for uid in os.environ.get(VARIABLE, "").split(",") if uid.strip().isdigit()}
    return {0, os.geteuid(), *named, *_unmapped()}


def _unmapped() -> set[int]:
    """Return what the kernel shows for users that this user namespace does not know; root may be among them."""
    try:
        if Path("/proc/self/uid_map").read_text(encoding="ascii").split() == ["0", "0", "4294967295"]:
            return set()
        return {int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))}
    except (OSError, ValueError):
        return set()


def _owners(connection: socket.socket) -> set[int]:
    """Return whose the other end is: who accepted the connection, or who listens while it is not accepted.

    Older kernels show a connection that is not accepted yet as root's. What the kernel does not find when it is asked
    for one socket is looked up in its table: a server that is bound to a device (SO_BINDTODEVICE, which any user may
    set) is only there.
    """
    family, here, there = connection.family, connection.getsockname()[:2], connection.getpeername()[:2]
    with contextlib.suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        if _ask(kernel, family, here, there) is not None:  # else it knows not even our own end, and cannot be asked
            accepted = _ask(kernel, family, there, here)
            if accepted is not None and accepted.state != _LISTENS:
                listening = _ask(kernel, family, there, ("0.0.0.0" if family == socket.AF_INET else "::", 0))  # noqa: S104  (any)
                return _judged({accepted.uid}, {listening.uid} if listening else set())
    return _owners_by_table(str(there[0]), int(there[1]), int(here[1]))


def _judged(accepted: set[int], listening: set[int]) -> set[int]:
    """Return whose it is; empty if the other end is not on this network."""
    return accepted if accepted - {0} else accepted | listening


class _Found(NamedTuple):
    state: int
    uid: int


def _ask(kernel: socket.socket, family: int, local: tuple[Any, ...], remote: tuple[Any, ...]) -> _Found | None:
    """Ask for one TCP socket of this network (sock_diag(7)): the connection's, else a listening one."""
    packed = [socket.inet_pton(family, address).ljust(16, b"\0") for address in (local[0], remote[0])]
    ends = struct.pack("!HH16s16s", local[1], remote[1], *packed) + struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
    wanted = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends
    kernel.send(struct.pack("=IHHII", 16 + len(wanted), _BY_FAMILY, _REQUEST, 0, 0) + wanted)
    reply = kernel.recv(4096)
    if struct.unpack_from("=H", reply, 4)[0] != _BY_FAMILY:
        return None
    return _Found(reply[17], struct.unpack_from("=I", reply, 16 + 64)[0])


def _owners_by_table(address: str, port: int, ours: int) -> set[int]:
    """Return the same from a table, which takes a hundred times as long; empty where there is no table."""
    accepted: set[int] = set()
    listening: set[int] = set()
    heard_at = _table_names(address)
    for table in _TABLES:
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split(None, 8)
            local, remote = (int(field.rpartition(":")[2], 16) for field in fields[1:3])
            if local != port or fields[1].rpartition(":")[0] not in heard_at:
                continue
            if fields[3] == f"{_LISTENS:02X}":
                listening.add(int(fields[7]))
            elif remote == ours:
                accepted.add(int(fields[7]))
    return _judged(accepted, listening)


def _table_names(address: str) -> set[str]:
    """Return how the tables write an address, and those of servers that listen on all addresses."""
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    if len(packed) == len(_MAPPED) + 4 and packed.startswith(_MAPPED):
        packed = packed[len(_MAPPED) :]
    written = {packed} if len(packed) > 4 else {packed, _MAPPED + packed}
    return {"0" * 8, "0" * 32, *map(_words, written)}


def _words(packed: bytes) -> str:
    """Return bytes as the kernel prints them: words of four bytes, each in this machine's order."""
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))


# --- for httpx -------------------------------------------------------------------------------------------


def hooks(url: str) -> dict[str, list[Callable[..., Any]]]:
    """Return `event_hooks` by which a client of httpx looks who answers at an address; none where TLS tells it."""
    return {"request": [_watch]} if _is_plain(url) else {}


def async_hooks(url: str) -> dict[str, list[Callable[..., Any]]]:
    """Return the same for an asynchronous client."""
    return {"request": [_watch_async]} if _is_plain(url) else {}


def _is_plain(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and (parts.hostname == "localhost" or _is_local(parts.hostname or ""))


def _watch(request: httpx.Request) -> None:
    def judge(event: str, info: dict[str, Any]) -> None:
        if event == _CONNECTED:
            try:
                _judge(info)
            except BaseException:
                info["return_value"].close()
                raise

    request.extensions = {**request.extensions, "trace": judge}


async def _watch_async(request: httpx.Request) -> None:
    async def judge(event: str, info: dict[str, Any]) -> None:
        if event == _CONNECTED:
            try:
                _judge(info)
            except BaseException:
                await info["return_value"].aclose()
                raise

    request.extensions = {**request.extensions, "trace": judge}


def _judge(info: dict[str, Any]) -> None:
    """Look at a connection that httpx has just opened.

    Raises:
        httpx.ConnectError: Another ordinary user's program answers.
    """
    import httpx

    made = info["return_value"].get_extra_info("socket")
    try:
        if made is not None:
            check_peer(made)
    except StrangersPort as error:
        raise httpx.ConnectError(str(error)) from error
