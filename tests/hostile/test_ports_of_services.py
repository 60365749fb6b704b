"""An ordinary user who wants the ports of the cluster's own services while these are down for a moment.

Who has such a port is sent the Hub's tokens, the agent's key and other tasks' tokens.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from detlab_hub.embedded.sockets.ports import first_unprivileged
from testbed.cluster import Cluster, running_cluster
from testbed.people.other_users import User
from testbed.waiting import until

pytestmark = [
    pytest.mark.hub,
    pytest.mark.timeout(180),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users"),
]

MALLORY = 23456
SERVICES = {"proxy": ("port", "proxy_api_port"), "hub": ("hub_port",), "master": ("master_port",)}
PRIVATE = ("proxy_api_port", "hub_port", "master_port")


def grab(ports: list[int], stop: str, seconds: float) -> tuple[list[int], int]:
    """Try to listen on these ports, on all addresses, again and again; return those had, and the number of tries.

    Args:
        ports: What to try.
        stop: A file at whose appearance to end.
        seconds: The most that it lasts.
    """
    had, tries, ends = set(), 0, time.monotonic() + seconds
    while not Path(stop).exists() and time.monotonic() < ends:
        for port in ports:
            for ip in ("127.0.0.1", "0.0.0.0"):
                with socket.socket() as wanted:
                    wanted.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    wanted.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                    tries += 1
                    try:
                        wanted.bind((ip, port))
                        wanted.listen()
                    except OSError as error:
                        if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                            raise
                    else:
                        had.add(port)
        time.sleep(0.0005)  # the services need a processor as well
    return sorted(had), tries


@contextmanager
def grabbing(ports: list[int], folder: Path) -> Iterator[None]:
    """Have mallory try to get these ports during the block; fail if that was possible at any moment."""
    stop = folder / "stop-grabbing"
    stop.unlink(missing_ok=True)
    mallory = User(MALLORY)
    try:
        mallory.begin(grab, ports, str(stop), 60.0)
        yield
        stop.touch()
        had, tries = mallory.result()
        assert had == []
        assert tries > 20
    finally:
        stop.touch()
        mallory.end()


@pytest.fixture
def folder(open_folder: Path) -> Path:
    found = open_folder / "ports"
    found.mkdir(mode=0o755, exist_ok=True)
    return found


def ports_of(cluster: Cluster, *fields: str) -> list[int]:
    return [int(cluster.plan[field]) for field in fields]


def kill(cluster: Cluster, *parts: str) -> None:
    for pid in [cluster.pid(part) for part in parts]:
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def back(cluster: Cluster, part: str, before: int | None) -> bool:
    return cluster.pid(part) not in {None, before}


def kill_and_wait(cluster: Cluster, part: str) -> None:
    before = cluster.pid(part)
    kill(cluster, part)
    until(lambda: back(cluster, part, before), lambda: f"the {part} does not come back\n{cluster.logs()}", 30)


def holders(port: int) -> set[int]:
    """The processes that hold the socket which listens on a port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port}
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if str(link.readlink()) in inodes:
                found.add(int(link.parts[2]))
    return found


@pytest.mark.soak
def test_no_moment_in_which_a_port_of_a_killed_service_is_free(folder: Path) -> None:
    with running_cluster(folder) as cluster:
        for part, fields in SERVICES.items():
            for port in ports_of(cluster, *fields):
                assert holders(port) == {cluster.pid("supervisor"), cluster.pid(part)}, (part, port)
        with grabbing(ports_of(cluster, "port", *PRIVATE), folder):
            for _ in range(2):
                for part in SERVICES:
                    kill_and_wait(cluster, part)
            until(lambda: cluster.det("status").returncode == 0, cluster.logs, 60)

            # a supervisor that is killed leaves its sockets with the parts, and the next one takes them back
            kill(cluster, "supervisor")
            assert cluster.up().returncode == 0
            for part, fields in SERVICES.items():
                for port in ports_of(cluster, *fields):
                    assert holders(port) == {cluster.pid("supervisor"), cluster.pid(part)}, (part, port)
            kill_and_wait(cluster, "master")
            until(lambda: cluster.det("status").returncode == 0, cluster.logs, 60)


def test_private_ports_cannot_be_had_though_everything_is_dead(folder: Path) -> None:
    if first_unprivileged() <= 600:
        pytest.skip("every user may bind every port here (ip_unprivileged_port_start)")
    with running_cluster(folder) as cluster:
        private = ports_of(cluster, *PRIVATE)
        with grabbing(private, folder):
            kill(cluster, "supervisor", "proxy", "hub", "master")
            again = cluster.up()
            assert again.returncode == 0, again.stderr
            assert ports_of(cluster, *PRIVATE) == private
