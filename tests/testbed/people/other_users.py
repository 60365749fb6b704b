"""Processes of other users: forked from the test, each under a uid of its own. They need root."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

PATIENCE = 60.0


class User:
    """A process of one user that does what it is told; functions of modules only, with what can be pickled.

    Args:
        uid: Of the user, and of the group.
    """

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self._pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=_serve, args=(uid, theirs, self._pipe), daemon=True)
        self._process.start()
        theirs.close()

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Have a function called; return or raise what it returns or raises."""
        self.begin(function, *arguments)
        return self.result()

    def begin(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have a function called, and do not wait for it."""
        self._pipe.send((function, arguments))

    def result(self) -> Any:
        """Wait for the function that was begun first."""
        assert self._pipe.poll(PATIENCE), f"the process of uid {self.uid} does not answer"
        value, error = self._pipe.recv()
        if error is not None:
            raise error
        return value

    def end(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(5)
        self._process.kill()
        self._process.join()


@contextlib.contextmanager
def users(*uids: int) -> Iterator[list[User]]:
    """Give a process for each uid, as long as the block lasts."""
    with contextlib.ExitStack() as stack:
        started = []
        for uid in uids:
            started.append(User(uid))
            stack.callback(started[-1].end)
        yield started


def _serve(uid: int, orders: Connection, parents: Connection) -> None:
    parents.close()
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    os.chdir("/")
    with contextlib.suppress(EOFError):
        while True:
            function, arguments = orders.recv()
            try:
                orders.send((function(*arguments), None))
            except Exception as error:  # raised again where it was asked for
                orders.send((None, error))
