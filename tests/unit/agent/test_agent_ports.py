"""How a container of the host's network gets the socket of its port, whatever else its user does meanwhile."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from detlab_agent.runtimes.ports import HeldPorts

UID = 23_999


@pytest.fixture
def offered(tmp_path: Path) -> Any:
    """Ports with one that is taken, and the folder of its task: `tasks/1.1`."""
    ports, record = HeldPorts(), tmp_path / "tasks" / "1.1.json"
    (tmp_path / "tasks" / "1.1").mkdir(parents=True)
    record.touch()
    ports.take(record, "127.0.0.1")
    yield ports, record, tmp_path / "tasks" / "1.1" / "listening"
    ports.close()


def test_a_link_in_the_place_of_the_socket_is_not_given_away(offered: Any, tmp_path: Path) -> None:
    """Another task of the user acts in the moment before the agent gives the socket away."""
    ports, record, path = offered
    victim = tmp_path / "shadow"
    victim.touch()
    before, moments, armed = victim.stat(), [], [True]

    def attack(event: str, _: tuple[Any, ...]) -> None:
        if armed and event == "os.chown":
            moments.append(path.exists())
            path.unlink(missing_ok=True)
            os.link(victim, path)

    sys.addaudithook(attack)
    try:
        ports.offer(record, path, UID if os.geteuid() == 0 else os.geteuid())
    finally:
        armed.clear()
    assert moments == [False], "given away while nobody else can reach it"
    assert (victim.stat().st_uid, victim.stat().st_gid) == (before.st_uid, before.st_gid)
    assert path.is_socket(), "the link is replaced"
    assert [entry.name for entry in path.parent.parent.iterdir() if entry.name.startswith(".")] == []


def test_the_user_who_asks_gets_the_listening_socket(offered: Any) -> None:
    ports, record, path = offered
    ports.offer(record, path, os.geteuid())
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(path))
        _, descriptors, _, _ = socket.recv_fds(asking, 1, 1)
    with socket.socket(fileno=descriptors[0]) as got:
        socket.create_connection(got.getsockname()).close()


def test_a_folder_that_is_a_link_is_refused(offered: Any, tmp_path: Path) -> None:
    ports, record, path = offered
    path.parent.rmdir()
    path.parent.symlink_to(tmp_path)
    with pytest.raises(OSError, match="directory"):
        ports.offer(record, path, os.geteuid())
    assert not (tmp_path / "listening").exists()
