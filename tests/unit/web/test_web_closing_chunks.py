"""Chunks of a download whose thread takes too long: the download ends at once, and what makes them ends later."""

from __future__ import annotations

import threading
from collections.abc import Generator

from detlab_hub.web.files import _closing


def test_chunks_that_are_still_being_made_are_left_to_their_thread() -> None:
    begun, over = threading.Event(), threading.Event()

    def chunks() -> Generator[bytes]:
        begun.set()
        over.wait(10)
        yield b"late"

    with _closing(chunks()) as found:
        thread = threading.Thread(target=next, args=(found,))
        thread.start()
        assert begun.wait(10)
    over.set()
    thread.join()
    found.close()


def test_chunks_that_nobody_makes_are_closed() -> None:
    closed = []

    def chunks() -> Generator[bytes]:
        try:
            yield b"1"
        finally:
            closed.append(True)

    with _closing(chunks()) as found:
        assert next(found) == b"1"
    assert closed == [True]
