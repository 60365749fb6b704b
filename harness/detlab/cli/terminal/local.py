"""A terminal of a server of the Hub, in the local terminal.

Jupyter's terminals speak JSON lists over a WebSocket: we send `["stdin", text]` and `["set_size", rows, columns]`,
and get `["setup", {}]`, `["stdout", text]` and, when the remote program has ended, `["disconnect", 1]`. One
thread reads the socket and writes to standard output; the main thread waits for keys, for a changed window size and
for the end. A lost connection is made again: the remote terminal continues without one.
"""

from __future__ import annotations

import codecs
import itertools
import json
import os
import selectors
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any

from detlab.cli.terminal.output import TerminalOutput, write
from detlab.cli.terminal.server import Terminals
from detlab.client.transport.discovery import ClusterAddress
from detlab.errors import DetlabError, NotFound

if TYPE_CHECKING:
    from websocket import WebSocket

PING_SECONDS = 20.0
RECONNECTS = (0.2, 1.0, 2.0, 4.0, 8.0)
"""Pauses before each attempt to come back; the last one again and again."""
COME_BACK_SECONDS = 600.0
"""Time without a connection after which we give up; the terminal continues."""
INTERRUPT = "\x03"
END_SECONDS = 0.5
"""Pause before the end of the input is sent again: a running program may have consumed it."""
CHUNK = 65536
END_OF_INPUT = "\x04"


class TerminalEnd(Enum):
    """How an attached terminal came to an end."""

    OVER = "over"
    """The program at the other end is gone."""
    LEFT = "left"
    """This terminal detached; the shell continues."""


class EscapeWatch:
    """Finds `~.` typed after Enter, the way out of a terminal that hangs (`~~` sends one `~`)."""

    def __init__(self) -> None:
        self._at_start = True
        self._tilde = False

    def feed(self, text: str) -> tuple[str, bool]:
        """Return the part of the text to send, and whether the escape sequence was typed."""
        kept: list[str] = []
        for key in text:
            if self._tilde:
                self._tilde = False
                if key == ".":
                    return "".join(kept), True
                kept.append(key if key == "~" else f"~{key}")
                self._at_start = key in "\r\n"
            elif key == "~" and self._at_start:
                self._tilde = True
            else:
                kept.append(key)
                self._at_start = key in "\r\n"
        return "".join(kept), False


def attach(address: ClusterAddress, server_url: str, name: str | None = None) -> tuple[TerminalEnd, str]:
    """Connect standard input and output with a terminal of a server until one side ends.

    Args:
        address: Of the cluster, with the token.
        server_url: The server at the Hub, with a slash at the end.
        name: A terminal that exists; None makes a new one.

    Returns:
        How it ended, and the terminal's name.

    Raises:
        DetlabError: The server cannot be reached, or the connection was lost for good.
    """
    need_library()
    terminals = Terminals(address, server_url)
    if name is None:
        name = terminals.make()
    elif not terminals.has(name):
        raise NotFound(f"terminal {name!r} no longer exists", hint=f"There are: {terminals.names()}")
    return _Attached(terminals, name).run(), name


def need_library() -> None:
    """Raise an error without what a terminal needs here.

    Raises:
        DetlabError: A package is missing, or the system has no terminals like Linux's.
    """
    try:
        import termios  # noqa: F401  (is it there?)
    except ImportError as error:
        raise DetlabError(
            "terminals open here on Linux and macOS only", hint="Open it in the browser: det shell open ID --browser"
        ) from error
    try:
        import websocket  # noqa: F401  (is it there?)
    except ImportError as error:
        raise DetlabError(
            "opening a shell here needs another package",
            hint="Install it: pip install 'detlab[shell]'\nor open it in the browser: det shell open ID --browser",
        ) from error


class _Attached:
    """One terminal, attached."""

    def __init__(self, terminals: Terminals, name: str) -> None:
        self._terminals = terminals
        self._name = name
        self._wake_read, self._wake_write = os.pipe()
        self._over = threading.Event()
        self._lost = threading.Event()
        self._resized = True
        self._output = TerminalOutput()
        self._escape = EscapeWatch()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line_open = False
        self._input_over = False

    def run(self) -> TerminalEnd:
        """Attach until one side ends."""
        stdin = sys.stdin.fileno()
        try:
            socket = self._terminals.connect(self._name)
            with _raw(stdin), _on_resize(self._note_resize), _ended_by_signal():
                return self._serve(stdin, socket)
        finally:
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _serve(self, stdin: int, socket: WebSocket) -> TerminalEnd:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
            try:
                selector.register(stdin, selectors.EVENT_READ)
            except PermissionError:  # a plain file, which is always ready: send it at once
                self._send_file(socket, stdin)
            while True:
                reader = threading.Thread(target=self._read, args=(socket,), daemon=True)
                reader.start()
                left = self._type(selector, stdin, socket)
                socket.close(timeout=1)
                reader.join(2)
                if left:
                    return TerminalEnd.LEFT
                if self._over.is_set():
                    return TerminalEnd.OVER
                fresh = self._come_back(selector, stdin)
                if isinstance(fresh, TerminalEnd):
                    return fresh
                socket = fresh

    def _type(self, selector: selectors.BaseSelector, stdin: int, socket: WebSocket) -> bool:
        """Send keys, sizes and pings until the connection ends; return whether the way out was typed."""
        self._lost.clear()
        self._resized = True
        try:
            while not (self._over.is_set() or self._lost.is_set()):
                if self._resized:
                    self._resized = False
                    size = shutil.get_terminal_size()
                    _send(socket, "set_size", size.lines, size.columns)
                ready = {key.fd for key, _ in selector.select(END_SECONDS if self._input_over else PING_SECONDS)}
                if not ready and self._input_over:
                    _send(socket, "stdin", END_OF_INPUT)
                elif not ready:
                    socket.ping()
                if self._wake_read in ready:
                    os.read(self._wake_read, CHUNK)
                if stdin in ready and self._keys(selector, stdin, socket):
                    return True
        except (OSError, _websocket_error()):
            self._lost.set()
        return False

    def _keys(self, selector: selectors.BaseSelector, stdin: int, socket: WebSocket) -> bool:
        data = os.read(stdin, CHUNK)
        if not data:
            selector.unregister(stdin)
            self._end_input(socket)
            return False
        text = self._decoder.decode(data)
        if not os.isatty(stdin):
            self._line_open = not text.endswith("\n")
            _send(socket, "stdin", text)
            return False
        text, leave = self._escape.feed(text)
        if text:
            _send(socket, "stdin", text)
        return leave

    def _send_file(self, socket: WebSocket, stdin: int) -> None:
        while data := os.read(stdin, CHUNK):
            text = self._decoder.decode(data)
            self._line_open = not text.endswith("\n")
            _send(socket, "stdin", text)
        self._end_input(socket)

    def _end_input(self, socket: WebSocket) -> None:
        self._input_over = True
        _send(socket, "stdin", f"\n{END_OF_INPUT}" if self._line_open else END_OF_INPUT)

    def _read(self, socket: WebSocket) -> None:
        """Write what comes; runs in a thread of its own."""
        try:
            while True:
                data = socket.recv()
                if not data:
                    break
                kind, *rest = json.loads(data)
                if kind == "stdout" and rest:
                    self._output.take(str(rest[0]))
                elif kind == "disconnect":
                    self._over.set()
                    break
        except (OSError, ValueError, TypeError, _websocket_error()):
            pass  # the main thread comes back, or says why it cannot
        self._lost.set()
        self._wake()

    def _come_back(self, selector: selectors.BaseSelector, stdin: int) -> WebSocket | TerminalEnd:
        """Connect again, after which the other end repeats its recent output; or return how it ended meanwhile.

        Raises:
            DetlabError: There was no connection for too long.
        """
        self._output.note("connection lost; reconnecting; Ctrl-C detaches")
        deadline = time.monotonic() + COME_BACK_SECONDS
        for pause in itertools.chain(RECONNECTS, itertools.repeat(RECONNECTS[-1])):
            if self._leaves(selector, stdin, pause):
                return TerminalEnd.LEFT
            try:
                if not self._terminals.has(self._name):
                    return TerminalEnd.OVER
                socket = self._terminals.connect(self._name)
            except DetlabError as error:
                if time.monotonic() < deadline:
                    continue
                hint = f"{error.hint or ''}\nWhat runs in terminal {self._name} continues: --terminal {self._name}"
                raise DetlabError(error.message, hint=hint.strip(), code=error.code) from error
            self._output.reconnected()
            return socket
        raise AssertionError  # the pauses never end

    def _leaves(self, selector: selectors.BaseSelector, stdin: int, pause: float) -> bool:
        """Wait; return whether the escape sequence was typed in the meantime. Other keys are dropped."""
        until = time.monotonic() + pause
        while (left := until - time.monotonic()) > 0:
            ready = {key.fd for key, _ in selector.select(left)}
            if self._wake_read in ready:
                os.read(self._wake_read, CHUNK)
            if stdin not in ready:
                continue
            data = os.read(stdin, CHUNK)
            if not data:
                selector.unregister(stdin)
                self._input_over = True
            elif os.isatty(stdin):
                text, leave = self._escape.feed(self._decoder.decode(data))
                if leave or INTERRUPT in text:
                    return True
        return False

    def _note_resize(self) -> None:
        self._resized = True
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"x")
        except OSError:
            pass  # it is all over


def _websocket_error() -> type[Exception]:
    from websocket import WebSocketException

    error: type[Exception] = WebSocketException
    return error


def _send(socket: WebSocket, *message: Any) -> None:
    socket.send(json.dumps(message))


@contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """Pass every key through, Ctrl-C too; always restore the terminal at the end."""
    if not os.isatty(descriptor):
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)  # what was typed meanwhile counts
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        if os.isatty(sys.stdout.fileno()):
            write(sys.stdout.fileno(), "\r\n")


@contextmanager
def _on_resize(changed: Callable[[], None]) -> Iterator[None]:
    before = signal.signal(signal.SIGWINCH, lambda *_: changed())
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """Unwind on SIGTERM and SIGHUP, so that the terminal is put back."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
