"""Authenticated links between ranks, over real sockets."""

from __future__ import annotations

import pickle
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from detlab.core import AuthenticationFailed, DistributedError
from detlab.core.distributed.channel import RankLink, accept_all, connect_to, derive_key, listen

KEY, OTHER = derive_key(b"secret"), derive_key(b"other")


class Trap:
    """Unpickling this would leave a mark."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    left.settimeout(5)
    right.settimeout(5)
    yield left, right
    left.close()
    right.close()


def shake(left: socket.socket, right: socket.socket, *, worker_key: bytes = KEY) -> tuple[RankLink, RankLink]:
    box: list[RankLink] = []
    worker = threading.Thread(target=lambda: box.append(RankLink.connect(right, worker_key, 1, 2)))
    worker.start()
    server = RankLink.accept(left, KEY, 2)
    worker.join()
    return server, box[0]


def test_messages_pass_both_ways(pair: tuple[socket.socket, socket.socket]) -> None:
    server, worker = shake(*pair)
    assert server.peer == 1
    worker.send("gather", {"x": [1, 2]})
    assert server.receive("gather") == {"x": [1, 2]}
    for number in range(3):
        server.send("broadcast", number)
        assert worker.receive("broadcast") == number


def test_a_rank_without_the_secret_is_turned_away(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair

    def intrude() -> None:
        with pytest.raises((AuthenticationFailed, OSError)):
            RankLink.connect(right, OTHER, 1, 2)

    worker = threading.Thread(target=intrude)
    worker.start()
    with pytest.raises(AuthenticationFailed):
        RankLink.accept(left, KEY, 2)
    left.close()
    worker.join()


def test_a_rank_of_another_group_is_turned_away(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    worker = threading.Thread(target=lambda: RankLink.connect(right, KEY, 5, 8))
    worker.start()
    with pytest.raises(AuthenticationFailed, match="rank 5 of 8"):
        RankLink.accept(left, KEY, 2)
    worker.join()


@pytest.mark.parametrize("forgery", ["no mac", "flipped bit", "replayed", "reflected"])
def test_a_forged_frame_is_never_unpickled(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path, forgery: str
) -> None:
    left, right = pair
    server, worker = shake(left, right)
    mark = tmp_path / "unpickled"
    payload = pickle.dumps(("gather", Trap(mark)))
    if forgery in {"no mac", "flipped bit"}:
        mac = bytes(32) if forgery == "no mac" else worker._frame_mac(False, 0, payload[:-1] + b"\x00")
        right.sendall(struct.pack(">Q", len(payload)) + mac + payload)
    elif forgery == "replayed":
        right.sendall(struct.pack(">Q", len(payload)) + worker._frame_mac(False, 7, payload) + payload)
    else:
        right.sendall(struct.pack(">Q", len(payload)) + worker._frame_mac(True, 0, payload) + payload)
    with pytest.raises(AuthenticationFailed):
        server.receive("gather")
    assert not mark.exists()


def test_the_trap_works(tmp_path: Path) -> None:
    """The forgery tests would notice an unpickling."""
    pickle.loads(pickle.dumps(Trap(tmp_path / "mark")))
    assert (tmp_path / "mark").exists()


def test_ranks_in_different_operations_are_told(pair: tuple[socket.socket, socket.socket]) -> None:
    server, worker = shake(*pair)
    worker.send("gather", 1)
    with pytest.raises(DistributedError, match=r"called allgather\(\), rank 1 called gather\(\)"):
        server.receive("allgather")


def test_a_dead_peer_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    server, worker = shake(*pair)
    worker.close()
    with pytest.raises(DistributedError, match="rank 1 is gone"):
        server.receive("gather")


@pytest.mark.slow
def test_missing_ranks_are_named_and_strangers_do_not_count() -> None:
    with listen("127.0.0.1", 0, 4) as listener:
        where = listener.getsockname()
        stranger = socket.create_connection(where)
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
        links: list[RankLink] = []
        worker = threading.Thread(target=lambda: links.append(connect_to(lambda: where, KEY, 2, 4, 10)))
        worker.start()
        with pytest.raises(DistributedError, match="ranks 1, 3 did not connect to the chief within 1 s"):
            accept_all(listener, KEY, 4, 1)
        worker.join()
        stranger.close()
        for link in links:
            link.close()


def test_a_chief_that_never_comes_is_an_error() -> None:
    with pytest.raises(DistributedError, match=r"rank 1 did not reach the chief \(rank 0\) within 0.3 s"):
        connect_to(lambda: None, KEY, 1, 2, 0.3)


def test_a_taken_port_is_an_error() -> None:
    with listen("127.0.0.1", 0, 1) as listener, pytest.raises(DistributedError, match="pub_port"):
        listen("127.0.0.1", listener.getsockname()[1], 1)


def test_small_messages_do_not_wait_for_each_other() -> None:
    """Regression: header and payload in two writes met Nagle's algorithm, 40 ms a message."""
    with listen("127.0.0.1", 0, 2) as listener:
        box: list[RankLink] = []
        worker = threading.Thread(target=lambda: box.append(connect_to(listener.getsockname, KEY, 1, 2, 10)))
        worker.start()
        server = accept_all(listener, KEY, 2, 10)[1]
        worker.join()
    start = time.monotonic()
    for number in range(100):
        box[0].send("allgather", number)
        assert server.receive("allgather") == number
        server.send("allgather", number)
        assert box[0].receive("allgather") == number
    assert time.monotonic() - start < 2.0
    server.close()
    box[0].close()
