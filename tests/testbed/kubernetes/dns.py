"""The names of a cluster, answered over UDP as its DNS would: headless services and the pods behind them.

It asks the API server each time, so that an answer is never older than what the server knows.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from testbed.kubernetes.api_client import Answer
from testbed.kubernetes.control_plane import ControlPlane

DOMAIN = "svc.cluster.local"
_TTL = 1
_NO_SUCH_NAME, _FAILED = 3, 2
Resolve = Callable[[str], list[str]]


def addresses_in(plane: ControlPlane) -> Resolve:
    """Return what finds the addresses of a name in a cluster."""

    def resolve(name: str) -> list[str]:
        labels = name.removesuffix(f".{DOMAIN}").split(".")
        if not name.endswith(f".{DOMAIN}") or len(labels) not in {2, 3}:
            return []
        *host, service, namespace = labels
        with plane.admin as admin:
            at = f"/api/v1/namespaces/{namespace}"
            found = admin.get(f"{at}/services/{service}")["spec"]
            if found.get("clusterIP") not in {None, "", "None"}:
                return [found["clusterIP"]]
            ends = admin.get(f"{at}/endpoints/{service}").get("subsets") or []
        early = bool(found.get("publishNotReadyAddresses"))
        ready = [one for part in ends for one in part.get("addresses") or []]
        waiting = [one for part in ends for one in part.get("notReadyAddresses") or []] if early else []
        return [one["ip"] for one in [*ready, *waiting] if not host or one.get("hostname") == host[0]]

    return resolve


def answer(query: bytes, resolve: Resolve) -> bytes:
    """Return the answer to a query for one name."""
    number, count = struct.unpack("!H", query[:2])[0], struct.unpack("!H", query[4:6])[0]
    at, labels = 12, []
    while count and query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("ascii", errors="replace"))
        at += 1 + query[at]
    question = query[12 : at + 5]
    kind = struct.unpack("!H", query[at + 1 : at + 3])[0]
    try:
        found, code = resolve(".".join(labels).lower()), 0
    except Answer as error:
        found, code = [], _NO_SUCH_NAME if error.code == 404 else _FAILED
    except httpx.HTTPError:  # the API server is away
        found, code = [], _FAILED
    code = code or (0 if found else _NO_SUCH_NAME)
    shown = found if kind == 1 else []
    head = struct.pack("!HHHHHH", number, 0x8580 | code, 1, len(shown), 0, 0)
    records = [struct.pack("!HHHIH", 0xC00C, 1, 1, _TTL, 4) + socket.inet_aton(address) for address in shown]
    return head + question + b"".join(records)


@contextmanager
def names(plane: ControlPlane) -> Iterator[None]:
    """Answer for a cluster on port 53 of its address, which is what its pods ask. It needs root."""
    resolve, over = addresses_in(plane), threading.Event()
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((plane.address, 53))
    server.settimeout(0.2)

    def serve() -> None:
        while not over.is_set():
            try:
                query, who = server.recvfrom(4096)
            except TimeoutError:
                continue
            if len(query) > 16:
                server.sendto(answer(query, resolve), who)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)
        server.close()
