"""An interrupt of a call that waits: one line in a notebook, in place of the frames of the HTTP library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Interrupted(KeyboardInterrupt):
    """The user interrupted a call that waited; what runs on the cluster continues.

    Args:
        message: What was interrupted, and what continues without it.
    """

    def _render_traceback_(self) -> list[str]:
        """IPython shows these lines instead of a traceback."""
        return [f"\x1b[0;31mInterrupted\x1b[0m: {self}"]


@contextmanager
def short_interrupts(message: str) -> Iterator[None]:
    """Raise `Interrupted` with a message for an interrupt of the block.

    Args:
        message: What was interrupted, and what continues without it.

    Raises:
        Interrupted: The block was interrupted.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(message) from None


def stopped_waiting(what: str, number: object) -> str:
    """Return the message of an interrupted wait.

    Args:
        what: `experiment` or `task`, as the command is called.
        number: Its id.
    """
    return f"stopped waiting; {what} {number} continues (det {what} kill {number} ends it)"
