"""The addresses of services, for pods of a real node: what kube-proxy does by rules of the firewall, done by a relay.

Each service of a namespace, and the API server's own, has its address on the bridge of the cluster; whoever connects
there is connected with a pod behind it.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from testbed.kubernetes.api_client import ApiClient, Object
from testbed.kubernetes.control_plane import ControlPlane, bridge_of, ip

_WAIT = 10.0
Behind = Callable[[], tuple[str, int]]
"""Says who is behind an address now; OSError where nobody is."""


@contextmanager
def relayed(plane: ControlPlane, namespace: str) -> Iterator[None]:
    """Relay the services that there are now; it needs root."""
    with plane.admin as admin, ExitStack() as stack:
        bridge = bridge_of(plane.directory)
        api = admin.get("/api/v1/namespaces/default/services/kubernetes")["spec"]["clusterIP"]
        stack.enter_context(_relay(bridge, api, 443, lambda: (plane.address, plane.ports["api"])))
        for service in admin.get(f"/api/v1/namespaces/{namespace}/services")["items"]:
            address = service["spec"].get("clusterIP")
            if address in {None, "", "None"}:
                continue
            for port in service["spec"]["ports"]:
                stack.enter_context(
                    _relay(bridge, address, port["port"], _behind(plane.client(), service, port, stack))
                )
        yield


def _behind(client: ApiClient, service: Object, port: Object, stack: ExitStack) -> Behind:
    """Return what finds a pod behind a port of a service, as it is at each connection."""
    stack.enter_context(client)
    meta, lock = service["metadata"], threading.Lock()

    def found() -> tuple[str, int]:
        with lock:
            ends = client.get(f"/api/v1/namespaces/{meta['namespace']}/endpoints/{meta['name']}").get("subsets") or []
        for part in ends:
            for one in part.get("ports", []):
                if one.get("name") == port.get("name") and part.get("addresses"):
                    return part["addresses"][0]["ip"], one["port"]
        raise OSError("nobody is behind the service")

    return found


@contextmanager
def _relay(bridge: str, address: str, port: int, behind: Behind) -> Iterator[None]:
    if bridge:
        ip("addr", "add", f"{address}/32", "dev", bridge, check=False)
    with socket.create_server((address, port)) as server:
        server.settimeout(0.2)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                with suppress(TimeoutError):
                    client, _ = server.accept()
                    threading.Thread(target=_join, args=(client, behind), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(10)
            if bridge:
                ip("addr", "del", f"{address}/32", "dev", bridge, check=False)


def _join(client: socket.socket, behind: Behind) -> None:
    with client:
        deadline = time.monotonic() + _WAIT
        other = None
        while other is None:  # a pod that is ready is behind its service a moment later
            try:
                other = socket.create_connection(behind(), _WAIT)
            except OSError:
                if time.monotonic() > deadline:
                    return
                time.sleep(0.2)
        with other:
            back = threading.Thread(target=_copy, args=(other, client), daemon=True)
            back.start()
            _copy(client, other)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        source.settimeout(None)
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def shown(plane: ControlPlane, port: int) -> Iterator[str]:
    """Show a port of this machine's loopback to the pods; yield HOST:PORT for them."""
    with _relay("", plane.address, port, lambda: ("127.0.0.1", port)):
        yield f"{plane.address}:{port}"
