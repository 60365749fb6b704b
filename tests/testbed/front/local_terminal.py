"""A program on a terminal of its own, whose keys we press and whose screen we read.

with on_a_terminal([sys.executable, "-c", "print(input())"]) as terminal:
    terminal.type(b"hello\\n")
    terminal.until(b"hello")
    assert terminal.end() == 0
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

WAIT_SECONDS = 30.0
# Makes the terminal the controlling one of its session, so that Ctrl-C there is an interrupt.
_OWN = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"


@dataclass
class LocalTerminal:
    """The other side of a program's terminal."""

    process: subprocess.Popen[bytes]
    descriptor: int
    seen: bytes = b""

    def until(self, text: bytes, seconds: float = WAIT_SECONDS) -> None:
        """Read until a text has come."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} did not come within {seconds} s; this did: {self.seen!r}"
            assert self._read(left), f"it ended without {text!r}: {self.seen!r}"

    def press_ctrl_d(self, after: bytes, seconds: float = WAIT_SECONDS) -> None:
        """End the input of a shell once its prompt has come after some output; a key before the prompt is lost."""
        self.until(after, seconds)
        deadline = time.monotonic() + seconds
        while not re.search(rb"[$#] ", self.seen.rpartition(after)[2]):
            left = deadline - time.monotonic()
            assert left > 0, f"no prompt came within {seconds} s; this did: {self.seen!r}"
            assert self._read(left), f"it ended without a prompt: {self.seen!r}"
        self.type(b"\x04")

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self.descriptor], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self.descriptor, 65536)
        except OSError:  # nobody holds the other side any more
            return False
        self.seen += data
        return bool(data)

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.descriptor, keys)

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the window."""
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end(self, seconds: float = WAIT_SECONDS) -> int:
        """Read to the end and return the exit status."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and self._read(left):
            pass
        assert left > 0, f"it did not end within {seconds} s: {self.seen!r}"
        return self.process.wait(seconds)


@contextmanager
def on_a_terminal(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    cwd: str | os.PathLike[str] | None = None,
    rows: int = 40,
    columns: int = 150,
) -> Iterator[LocalTerminal]:
    """Run a program on a new terminal of this size; it is killed at the end."""
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name not in {"LINES", "COLUMNS"}}
    process = subprocess.Popen(
        [sys.executable, "-c", _OWN, *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={**kept, "TERM": "xterm", **(environment or {})},
        start_new_session=True,
    )
    terminal = LocalTerminal(process, ours)
    terminal.resize(rows, columns)
    os.close(theirs)
    try:
        yield terminal
    finally:
        process.kill()
        process.wait(WAIT_SECONDS)
        os.close(ours)
