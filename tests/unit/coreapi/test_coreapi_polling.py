"""The long poll for the preemption signal: kept connection, an end at any moment, a master that comes back."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from detlab.core.preemption.long_poll import PlainPoll, PollClosed

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@contextmanager
def master(replies: list[bytes | None]) -> Iterator[tuple[str, list[bytes]]]:
    """Serve connections one after another: send each reply to a request; None ends the connection instead."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []

    def serve() -> None:
        left = list(replies)
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while data := connection.recv(65536):
                    asked.append(data)
                    if not left:
                        continue  # a long poll: no answer for now
                    if (reply := left.pop(0)) is None:
                        break
                    connection.sendall(reply)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/api/v1/", asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5.0)


def test_two_questions_go_over_one_connection() -> None:
    with master([OK, OK]) as (address, asked):
        poll = PlainPoll(address)
        for _ in range(2):
            assert poll.get("task/preempt?timeout_seconds=0", {"Authorization": "Bearer t"}, 5.0) == (200, b"{}")
        poll.drop()
    assert len(asked) == 2
    assert asked[0].startswith(b"GET /api/v1/task/preempt?timeout_seconds=0 HTTP/1.1\r\n")
    assert b"Authorization: Bearer t\r\n" in asked[0]


def test_closing_ends_a_question_that_waits_for_its_answer() -> None:
    with master([]) as (address, asked):
        poll = PlainPoll(address)
        ended: list[type[BaseException]] = []

        def ask() -> None:
            try:
                poll.get("task/preempt?timeout_seconds=60", {}, 90.0)
            except PollClosed as error:
                ended.append(type(error))
            finally:
                poll.drop()

        thread = threading.Thread(target=ask)
        thread.start()
        while not asked:
            time.sleep(0.005)
        began = time.monotonic()
        poll.close()
        thread.join(5.0)
        assert ended == [PollClosed]
        assert time.monotonic() - began < 2.0


def test_what_is_closed_asks_nothing() -> None:
    with master([OK]) as (address, asked):
        poll = PlainPoll(address)
        poll.close()
        with pytest.raises(PollClosed):
            poll.get("task/preempt", {}, 5.0)
        poll.drop()
    assert asked == []


def test_a_connection_that_was_cut_is_opened_again() -> None:
    with master([None, OK]) as (address, _):
        poll = PlainPoll(address)
        with pytest.raises(OSError, match="closed connection"):
            poll.get("task/preempt", {}, 5.0)
        assert poll.get("task/preempt", {}, 5.0) == (200, b"{}")
        poll.drop()


def test_a_master_that_is_silent_for_too_long_is_no_answer() -> None:
    with master([]) as (address, _):
        poll = PlainPoll(address)
        with pytest.raises(TimeoutError):
            poll.get("task/preempt", {}, 0.05)
