"""An ordinary user who has a port at which others look for their cluster: they send nothing there.

In place of the cluster's own port it is one that mallory listens on, as after a crash of everything.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from detlab import loopback
from detlab.cli.terminal import hub_server
from detlab.client.transport.calls import Call, Retries
from detlab.client.transport.discovery import ClusterAddress
from detlab.client.transport.session import AsyncSession, Session
from detlab.core.preemption.long_poll import PlainPoll
from detlab.errors import DetlabError
from detlab.launch.delivery.plain_http import PlainTransport
from detlab.launch.delivery.sender import HttpTransport, TransportError
from detlab.loopback.connections import LoopbackConnection
from detlab_agent.connection import dial
from detlab_hub.embedded.hubapi import HubApi
from detlab_hub.embedded.master import MasterClient
from testbed.people.other_users import User, users

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

MALLORY, ADA = 23456, 23457
SECRET = "dttask_secret"
_KEPT: list[socket.socket] = []


def listen(seen: str, ip: str = "127.0.0.1") -> int:
    """Answer everybody on a free port, and keep what they send in a file; return the port."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    server = socket.create_server((ip, 0), family=family, dualstack_ipv6=ip == "::")
    _KEPT.append(server)
    threading.Thread(target=_serve, args=(server, seen), daemon=True).start()
    return int(server.getsockname()[1])


def _serve(server: socket.socket, seen: str) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(connection, seen), daemon=True).start()


def _answer(connection: socket.socket, seen: str) -> None:
    with connection:
        data = connection.recv(65536)
        with Path(seen).open("ab") as file:
            file.write(data)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")


def listen_without_accepting() -> int:
    """Listen on a free port, and let those who connect wait; return the port."""
    _KEPT.append(socket.create_server(("127.0.0.1", 0)))
    return int(_KEPT[-1].getsockname()[1])


def accept_and_stop_listening() -> int:
    """Accept one connection on the port that is listened on, and give the port up."""
    server = _KEPT.pop()
    connection, _ = server.accept()
    _KEPT.append(connection)
    server.close()
    return os.getuid()


@pytest.fixture(scope="module")
def people() -> Iterator[tuple[User, User]]:
    with users(MALLORY, ADA) as (mallory, ada):
        yield mallory, ada


@pytest.fixture
def seen(open_folder: Path) -> Iterator[Path]:
    """What was sent to a server; every user may write it."""
    file = open_folder / "seen"
    file.write_bytes(b"")
    file.chmod(0o666)
    yield file
    file.unlink()


def api(port: int) -> str:
    return f"http://127.0.0.1:{port}/services/detlab/api/v1/"


def address(port: int) -> ClusterAddress:
    return ClusterAddress(f"http://127.0.0.1:{port}/services/detlab/", SECRET, "a test")


def by_async_session(port: int) -> None:
    async def go() -> None:
        session = AsyncSession(address(port), backoff=Retries(attempts=0, refused=0))
        try:
            await session.send(Call("GET", "me", parse=str))
        finally:
            await session.close()

    asyncio.run(go())


def by_session(port: int) -> None:
    session = Session(address(port), backoff=Retries(attempts=0, refused=0))
    try:
        session.send(Call("GET", "me", parse=str))
    finally:
        session.close()


def by_poll(port: int) -> None:
    PlainPoll(api(port)).get("task/preempt", {"Authorization": f"Bearer {SECRET}"}, 5.0)


def by_supervisor(port: int) -> None:
    assert asyncio.run(HubApi(f"http://127.0.0.1:{port}/hub/api", SECRET).restore_routes(0.0))


def by_det_status(port: int) -> None:
    client = MasterClient(f"http://127.0.0.1:{port}/services/detlab/", SECRET)
    try:
        assert client.healthy()
    finally:
        client.close()


CLIENTS: dict[str, Callable[[int], object]] = {
    "launcher": lambda port: PlainTransport(api(port)).post("task/records", b"{}", SECRET),
    "launcher, with httpx": lambda port: HttpTransport(api(port)).post("task/records", b"{}", SECRET),
    "core api": by_poll,
    "agent": lambda port: asyncio.run(dial(f"ws://127.0.0.1:{port}/agents/connect", SECRET)),
    "command line": by_session,
    "notebook": by_async_session,
    "command line, at a server": lambda port: hub_server.ask(address(port), "GET", f"http://127.0.0.1:{port}/user/a/"),
    "supervisor": by_supervisor,
    "det status": by_det_status,
}
REFUSALS = (TransportError, OSError, DetlabError, httpx.ConnectError, AssertionError)


@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_is_sent_to_a_port_that_another_user_has(client: str, people: tuple[User, User], seen: Path) -> None:
    port = people[0](listen, str(seen))
    with pytest.raises(REFUSALS) as refused:
        CLIENTS[client](port)
    assert SECRET.encode() not in seen.read_bytes()
    assert seen.read_bytes() == b""
    if not isinstance(refused.value, AssertionError):
        assert f"port {port} of this machine belongs to uid {MALLORY}" in str(refused.value)


@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "agent"])
def test_to_a_server_of_root_it_is_sent(client: str, seen: Path) -> None:
    port = listen(str(seen))
    try:
        CLIENTS[client](port)
    except DetlabError:  # it is no answer of a master's
        pass
    assert client == "det status" or SECRET.encode() in seen.read_bytes()


def test_what_is_refused_is_said_with_who_and_what_to_do(people: tuple[User, User], seen: Path) -> None:
    port = people[0](listen, str(seen))
    with pytest.raises(loopback.StrangersPort) as refused:
        LoopbackConnection("127.0.0.1", port).connect()
    said = str(refused.value)
    assert f"uid {MALLORY}" in said
    assert "nothing was sent" in said
    assert f"DET_TRUSTED_UIDS={MALLORY}" in said


def connect(ip: str, port: int) -> None:
    """Connect as the client that looks."""
    connection = LoopbackConnection(ip, port, timeout=5)
    try:
        connection.connect()
    finally:
        connection.close()


def test_a_user_believes_root_and_themselves_and_whom_they_name(
    people: tuple[User, User], seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mallory, ada = people
    roots, theirs, own = listen(str(seen)), mallory(listen, str(seen)), ada(listen, str(seen))
    ada(connect, "127.0.0.1", roots)
    ada(connect, "127.0.0.1", own)
    with pytest.raises(ConnectionError):
        ada(connect, "127.0.0.1", theirs)
    monkeypatch.setenv(loopback.VARIABLE, f"1, {MALLORY}, x")
    connect("127.0.0.1", theirs)


@pytest.mark.parametrize("ip", ["::1", "::"])
def test_so_it_is_over_ipv6(ip: str, people: tuple[User, User], seen: Path) -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    port, own = people[0](listen, str(seen), ip), listen(str(seen), ip)
    for host in ("::1", "127.0.0.1") if ip == "::" else ("::1",):
        connect(host, own)
        with pytest.raises(loopback.StrangersPort):
            connect(host, port)


def test_whoever_waits_with_accepting_or_gives_the_port_up_is_seen_too(people: tuple[User, User]) -> None:
    mallory, _ = people
    port = mallory(listen_without_accepting)
    with socket.create_connection(("127.0.0.1", port)) as made:
        with pytest.raises(loopback.StrangersPort):
            loopback.check_peer(made)
        mallory(accept_and_stop_listening)
        # now root has the port, and mallory the connection
        with socket.create_server(("127.0.0.1", port)), pytest.raises(loopback.StrangersPort):
            loopback.check_peer(made)


def listen_on_the_device() -> int:
    """Listen on a free port of the device `lo` alone, so that the kernel finds the socket by no address."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
    server.bind(("127.0.0.1", 0))
    server.listen()
    _KEPT.append(server)
    return int(server.getsockname()[1])


def test_a_server_that_is_bound_to_a_device_is_seen_too(people: tuple[User, User]) -> None:
    mallory, _ = people
    port = mallory(listen_on_the_device)
    with socket.create_connection(("127.0.0.1", port)) as made:
        with pytest.raises(loopback.StrangersPort):
            loopback.check_peer(made)
        mallory(accept_and_stop_listening)
        with pytest.raises(loopback.StrangersPort):
            loopback.check_peer(made)


def test_who_listens_elsewhere_at_the_same_port_is_not_taken_for_the_server(people: tuple[User, User]) -> None:
    mallory, _ = people
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
        assert mallory(listen_at, port, "127.0.0.2") == port
        with socket.create_connection(("127.0.0.1", port)) as made:
            assert loopback._owners_by_table("127.0.0.1", port, int(made.getsockname()[1])) == {0}


def listen_at(port: int, ip: str) -> int:
    """Listen at a port of an address; return it."""
    _KEPT.append(socket.create_server((ip, port)))
    return port


def test_the_table_says_what_the_kernel_says(people: tuple[User, User], seen: Path) -> None:
    for port in (people[0](listen, str(seen)), listen(str(seen))):
        with socket.create_connection(("127.0.0.1", port)) as made:
            ours = int(made.getsockname()[1])
            assert loopback._owners(made) == loopback._owners_by_table("127.0.0.1", port, ours) != set()


def test_ports_that_only_root_may_have_and_other_machines_are_not_looked_up() -> None:
    here, there = socket.socketpair()
    with here, there:
        loopback.check_peer(here)
    assert loopback.hooks("https://127.0.0.1:8642/") == {}
    assert loopback.hooks("http://hub.example.org:8642/") == {}
    assert loopback.hooks("http://localhost:8642/")


def test_a_look_takes_less_than_a_millisecond(seen: Path) -> None:
    with socket.create_connection(("127.0.0.1", listen(str(seen)))) as made:
        taken = []
        for _ in range(50):
            began = time.perf_counter()
            loopback.check_peer(made)
            taken.append(time.perf_counter() - began)
    assert statistics.median(taken) < 0.001
