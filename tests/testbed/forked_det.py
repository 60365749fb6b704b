"""`det` in a fork of a process that has imported what `det` imports, which is most of what a command takes.

    done = run(["experiment", "list"], cwd=folder, env=environment, timeout=60)
    agent = start(["agent", "run", …], cwd=folder, env=environment, output=log)

It is a process of its own as ever: its directory, environment, output and exit status. The process that is forked
(`python forked_det.py FD`) is started at the first call, has one thread, and ends when its starter has ended.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

PRELOADED = ("detlab.client", "detlab_hub.commands", "detlab_hub.embedded.lifecycle", "detlab_agent.commands")
"""Beside all modules of `detlab.cli`."""
READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC_")
"""Variables that an interpreter reads before it runs anything begin with these."""
MESSAGE = 1 << 20
"""Bytes of a request at most."""


class CannotFork(Exception):
    """What is asked for needs a new interpreter."""


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, __file__, str(theirs.fileno())]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])

    @atexit.register
    def end() -> None:
        ours.close()  # it reads that nobody asks any more
        process.wait(10)

    return ours


def run(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run `det` with arguments and return what it printed, as `subprocess.run` does.

    Raises:
        CannotFork: The environment has to be there when the interpreter starts.
        subprocess.TimeoutExpired: It was killed after `timeout` seconds.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = _fork(arguments, cwd, env, out, err)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.wait()
            error.output, error.stderr = _read(out), _read(err)
            raise
        return subprocess.CompletedProcess(["det", *arguments], status, _read(out), _read(err))


def start(arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: IO[bytes]) -> Forked:
    """Start `det` with arguments, for as long as it likes; what it prints goes to a file.

    Raises:
        CannotFork: The environment has to be there when the interpreter starts.
    """
    return _fork(arguments, cwd, env, output, output)


@dataclass
class Forked:
    """A `det` that was started; it is not a child of this process, and else like `subprocess.Popen`."""

    args: list[str]
    pid: int
    _reply: IO[str]
    returncode: int | None = None
    """Exit status; negative: the signal that ended it; None: it is not known to have ended."""

    def poll(self) -> int | None:
        """Its exit status if it has ended."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit status.

        Raises:
            subprocess.TimeoutExpired: It has not ended after so many seconds.
        """
        if self.returncode is None:
            if not select.select([self._reply], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = int(self._reply.readline())
            self._reply.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it is there."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def _fork(arguments: Sequence[str], cwd: Path, env: Mapping[str, str], out: IO[Any], err: IO[Any]) -> Forked:
    if _of_the_start(env) != _of_the_start(os.environ):
        raise CannotFork
    request = json.dumps({"arguments": list(arguments), "cwd": os.fspath(cwd), "env": dict(env)}).encode()
    ended, ends = os.pipe()
    try:
        socket.send_fds(_server(), [request], [out.fileno(), err.fileno(), ends])
    finally:
        os.close(ends)
    reply = os.fdopen(ended)
    return Forked(["det", *arguments], int(reply.readline()), reply)


def _of_the_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


def _read(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


# --- the process that is forked ---------------------------------------------------------------------------


def serve(requests: socket.socket) -> list[str] | None:
    """Fork for each request. Returns the arguments of `det` in a fork, and None when nobody can ask any more."""
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_event: None)
    replies: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_of_ended(replies)
        if requests not in ready:
            continue
        message, fds, _, _ = socket.recv_fds(requests, MESSAGE, 3)
        if not message:
            return None
        out, err, reply = fds
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(out, 1)
            os.dup2(err, 2)
            for fd in (*fds, *replies.values(), woken, wakes, requests.detach()):
                os.close(fd)
            request = json.loads(message)
            os.chdir(request["cwd"])
            os.environ.clear()
            os.environ.update(request["env"])
            return list(request["arguments"])
        os.close(out)
        os.close(err)
        os.write(reply, f"{pid}\n".encode())
        replies[pid] = reply


def _tell_of_ended(replies: dict[int, int]) -> None:
    while replies:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        reply = replies.pop(pid)
        os.write(reply, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os.close(reply)


def _preload() -> None:
    import gc

    import detlab.cli

    for name in [*PRELOADED, *(found.name for found in pkgutil.iter_modules(detlab.cli.__path__, "detlab.cli."))]:
        importlib.import_module(name)
    gc.freeze()  # a fork copies the pages that it writes to, and looking for garbage writes to all of them


if __name__ == "__main__":
    sys.path[0] = ""
    _preload()
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        from detlab.cli import main

        sys.argv = ["-c", *asked]
        main()
