"""Sockets that outlive the parts: lent, answered on meanwhile, and taken back from parts of a killed supervisor."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from detlab.errors import DetlabError
from detlab.testing.ports import free_ports
from detlab_hub.embedded import lifecycle
from detlab_hub.embedded import parts as names
from detlab_hub.embedded.master import answers
from detlab_hub.embedded.parts import ClusterPart
from detlab_hub.embedded.report import PartReport, PartState, read_report
from detlab_hub.embedded.sockets import ports
from detlab_hub.embedded.sockets.listeners import LOOPBACK, VARIABLE, Address, Listeners, inherited, lent, listen
from detlab_hub.embedded.state import TAKE_OVER_NOTE, StartPlan, StateFolder
from detlab_hub.embedded.supervisor import Supervisor
from testbed.waiting import soon

SERVES = """
import time
from detlab_hub.embedded.sockets.listeners import inherited
for held in inherited().values():
    held.setblocking(True)
time.sleep({start})
while True:
    one, _ = held.accept()
    one.recv(1000)
    one.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nup")
    one.close()
"""
FAILS = "raise SystemExit(3)"


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    found = StateFolder(tmp_path / "state")
    found.create()
    found.make_secrets(["ann"], "ann")
    return found


@pytest.fixture
def sockets() -> Iterator[Listeners]:
    with Listeners() as found:
        yield found


@asynccontextmanager
async def supervised(
    folder: StateFolder, sockets: Listeners, *addresses: Address, code: str = SERVES.format(start=0)
) -> AsyncIterator[None]:
    """A supervisor in this process whose master is this program."""
    plan = StartPlan(port=1, hub_port=1, proxy_api_port=1, master_port=addresses[0].port, operator="ann")
    idle = "import time; time.sleep(600)"
    parts = {
        name: ClusterPart(name, (sys.executable, "-c", idle), folder.log(name), folder.root, stop_grace=0.5)
        for name in names.NAMES
    }
    argv = (sys.executable, "-c", code)
    parts["master"] = ClusterPart("master", argv, folder.log("master"), folder.root, stop_grace=0.5, listens=addresses)
    supervisor = Supervisor(folder, plan, parts, sockets)
    task = asyncio.create_task(supervisor.run())
    try:
        yield
    finally:
        supervisor.request_stop()
        await task


def master(folder: StateFolder) -> PartReport:
    report = read_report(folder)
    return report.parts["master"] if report else PartReport()


async def ask(port: int, timeout: float = 10.0) -> tuple[int, str, str]:
    """Ask once; return status, `Retry-After` and body."""

    def one() -> tuple[int, str, str]:
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout)
        try:
            connection.request("POST", "/", b"x" * 100_000)
            reply = connection.getresponse()
            return reply.status, reply.getheader("Retry-After", ""), reply.read().decode()
        finally:
            connection.close()

    return await asyncio.to_thread(one)


async def test_a_request_during_a_restart_waits_and_is_answered(folder: StateFolder, sockets: Listeners) -> None:
    port = sockets.add(listen(LOOPBACK, 0))
    async with supervised(folder, sockets, Address(LOOPBACK, port), code=SERVES.format(start=1)):
        await soon(lambda: master(folder).running is not None)
        assert (await ask(port))[0] == 200


async def test_while_a_part_is_down_callers_are_told_at_once(folder: StateFolder, sockets: Listeners) -> None:
    port = sockets.add(listen(LOOPBACK, 0))
    async with supervised(folder, sockets, Address(LOOPBACK, port), code=FAILS):
        await soon(lambda: master(folder).restarts >= 3)  # its pauses are seconds now
        await soon(lambda: master(folder).state is PartState.WAITING)
        assert await ask(port) == (503, "1", "The master of this cluster is down; it is being started again.\n")
        assert not await asyncio.to_thread(answers, f"http://{LOOPBACK}:{port}/")


async def test_where_a_part_speaks_tls_nothing_is_said_in_plain_text(folder: StateFolder, sockets: Listeners) -> None:
    port = sockets.add(listen(LOOPBACK, 0))
    async with supervised(folder, sockets, Address(LOOPBACK, port, tls=True), code=FAILS):
        await soon(lambda: master(folder).restarts >= 3)
        await soon(lambda: master(folder).state is PartState.WAITING)
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        assert await reader.read() == b""
        writer.close()


async def test_many_callers_who_say_nothing_do_not_silence_it(folder: StateFolder, sockets: Listeners) -> None:
    port = sockets.add(listen(LOOPBACK, 0))
    async with supervised(folder, sockets, Address(LOOPBACK, port), code=FAILS):
        await soon(lambda: master(folder).restarts >= 4)
        await soon(lambda: master(folder).state is PartState.WAITING)
        silent = [await asyncio.open_connection(LOOPBACK, port) for _ in range(100)]
        ended = [reader for reader, _ in silent if await asyncio.wait_for(reader.read(), 5) == b""]
        assert len(ended) == 100  # the last ones at once, the others after seconds
        assert (await ask(port))[0] == 503
        for _, writer in silent:
            writer.close()


async def test_a_port_that_another_has_is_said_and_tried_again(folder: StateFolder, sockets: Listeners) -> None:
    taken = listen(LOOPBACK, 0)
    port = int(taken.getsockname()[1])
    async with supervised(folder, sockets, Address(LOOPBACK, port)):
        await soon(lambda: master(folder).restarts >= 1)
        assert f"port {port} of {LOOPBACK}" in folder.log("master").read_text()
        taken.close()
        await soon(lambda: master(folder).running is not None)
        assert (await ask(port))[0] == 200


async def test_sockets_are_taken_back_from_running_parts(folder: StateFolder, sockets: Listeners) -> None:
    port = sockets.add(listen(LOOPBACK, 0))
    argv = [sys.executable, "-c", SERVES.format(start=0)]
    environment = {**os.environ, **lent(sockets.all())}
    with subprocess.Popen(argv, env=environment, pass_fds=[sockets.all()[port].fileno()]) as part:
        assert (await ask(port))[0] == 200
        sockets.close()
        assert not ports.is_free(port)
        sockets.take_back(part.pid, [Address(LOOPBACK, port)])
        assert port in sockets.all()
        part.send_signal(signal.SIGKILL)
        part.wait()
        assert not ports.is_free(port)
    sockets.close()
    assert ports.is_free(port)


def test_a_socket_that_cannot_be_taken_back_is_said(sockets: Listeners, caplog: pytest.LogCaptureFixture) -> None:
    sockets.take_back(os.getpid(), [Address(LOOPBACK, 1)])
    assert "port 1" in caplog.text
    assert not sockets.all()


def test_what_is_lent_is_inherited_once(sockets: Listeners) -> None:
    port = sockets.add(listen(LOOPBACK, 0))
    copy = os.dup(sockets.all()[port].fileno())
    environment = {VARIABLE: f"{port}={copy}"}
    found = inherited(environment)
    assert environment == {}
    assert found[port].getsockname() == (LOOPBACK, port)
    assert not found[port].get_inheritable()
    found[port].close()


@pytest.mark.parametrize("text", ["80=100000", "x=1", "80"])
def test_a_variable_that_names_no_socket_is_refused(text: str) -> None:
    with pytest.raises(DetlabError, match=VARIABLE):
        inherited({VARIABLE: text})


# --- which ports ------------------------------------------------------------------------------------------


def chosen(folder: StateFolder, before: StartPlan | None) -> list[int]:
    """The private ports of a start after a plan, none of whose parts runs."""
    if before is not None:
        folder.write_plan(before)
    with Listeners() as bound:
        plan = lifecycle.make_plan(folder, lifecycle.UpOptions(port=free_ports(1)[0]), bound)
        found = [plan.hub_port, plan.proxy_api_port, plan.master_port]
        assert set(bound.all()) == {plan.port, *found}
    return found


needs_privileged = pytest.mark.skipif(
    not ports.privileged_ports(), reason="needs root, and ports that only root may bind"
)


@needs_privileged
def test_root_has_ports_that_no_user_may_bind(folder: StateFolder) -> None:
    found = chosen(folder, None)
    assert len(set(found)) == 3
    assert all(600 <= port < ports.first_unprivileged() for port in found)
    for port in found:  # none that a well-known service may want
        with pytest.raises(OSError, match="not found"):
            socket.getservbyport(port, "tcp")


@needs_privileged
def test_last_times_ports_are_kept_while_tasks_may_know_them(folder: StateFolder) -> None:
    old = free_ports(3)
    before = StartPlan(port=1, hub_port=old[0], proxy_api_port=old[1], master_port=old[2], operator="ann")
    (folder.root / "agent" / "tasks" / "1").mkdir(parents=True)
    assert chosen(folder, before) == old
    (folder.root / "agent" / "tasks" / "1").rmdir()
    moved = chosen(folder, before)
    assert not set(moved) & set(old)
    again = StartPlan(port=1, hub_port=moved[0], proxy_api_port=moved[1], master_port=moved[2], operator="ann")
    assert chosen(folder, again) == moved


def test_a_port_that_was_taken_meanwhile_is_replaced(folder: StateFolder) -> None:
    (folder.root / "agent" / "tasks" / "1").mkdir(parents=True)
    old = free_ports(3)
    with listen(LOOPBACK, old[1]):
        found = chosen(
            folder, StartPlan(port=1, hub_port=old[0], proxy_api_port=old[1], master_port=old[2], operator="ann")
        )
    assert found[0] == old[0]
    assert found[1] != old[1]
    assert found[2] == old[2]


def test_the_clusters_own_port_is_waited_for_while_its_killed_proxy_still_has_it(folder: StateFolder) -> None:
    """A killed process has its sockets until the last of its threads is gone, and is not named as their owner then."""
    port = free_ports(1)[0]
    options, has_it = lifecycle.UpOptions(port=port), listen(LOOPBACK, port)
    with has_it, Listeners() as bound, pytest.raises(DetlabError, match=f"port {port} of 127.0.0.1 is taken by pid"):
        lifecycle.make_plan(folder, options, bound)
    folder.write_plan(StartPlan(port=port, hub_port=1, proxy_api_port=1, master_port=1, operator="ann"))
    has_it = listen(LOOPBACK, port)
    ending = threading.Timer(0.5, has_it.close)
    ending.start()
    try:
        with Listeners() as bound:
            assert lifecycle.make_plan(folder, options, bound).port == port
    finally:
        ending.join()


def test_a_start_that_failed_takes_nothing_over_the_next_time(folder: StateFolder) -> None:
    port, note = free_ports(1)[0], folder.root / "db" / TAKE_OVER_NOTE
    with listen(LOOPBACK, port), Listeners() as bound, pytest.raises(DetlabError, match="is taken by"):
        lifecycle.make_plan(folder, lifecycle.UpOptions(port=port, take_over=True), bound)
    assert note.exists()
    with Listeners() as bound:
        lifecycle.make_plan(folder, lifecycle.UpOptions(port=port), bound)
    assert not note.exists()
