"""Masters as processes that start quickly and can be made to die at a commit: `Masters` forks them off.

This file is also the program that `Masters` runs: it imports what a master needs, and for each line of JSON that it
reads forks a process that runs `detlab_hub`'s own command line. It says who started and who ended, one line each.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

PATIENCE = 60.0


@dataclass
class Process:
    """One master.

    Attributes:
        code: Its exit status; negative: the signal that ended it; None: it runs.
    """

    pid: int
    code: int | None = None

    def send(self, number: int) -> None:
        """Send it a signal; one that is gone hears nothing."""
        if self.code is None:
            os.kill(self.pid, number)


@dataclass
class Masters:
    """Starts masters; use `masters()`."""

    program: subprocess.Popen[bytes]
    changed: threading.Condition = field(default_factory=threading.Condition)
    processes: dict[int, Process] = field(default_factory=dict)
    _started: list[int] = field(default_factory=list)

    def start(self, arguments: list[str], log: Path, **more: Any) -> Process:
        """Start a master with the arguments of `python -m detlab_hub`.

        Args:
            arguments: Its command line.
            log: Where its output goes, at the end of what is there.
            more: `at` and `after`: the commit at which it dies; `commits`: a file that gets one byte for each commit;
                `lease`: seconds that its lease lasts without renewal, in place of the usual 15.
        """
        assert self.program.stdin is not None
        with self.changed:
            count = len(self._started)
            self.program.stdin.write(json.dumps({"arguments": arguments, "log": str(log), **more}).encode() + b"\n")
            self.program.stdin.flush()
            assert self.changed.wait_for(lambda: len(self._started) > count, PATIENCE), "no master was forked"
            return self.processes[self._started[-1]]

    def wait(self, process: Process, seconds: float = PATIENCE) -> int:
        """Wait for the end of a master; return its exit status."""
        with self.changed:
            assert self.changed.wait_for(lambda: process.code is not None, seconds), "the master did not end"
        assert process.code is not None
        return process.code

    def end(self, process: Process) -> None:
        """Kill a master."""
        process.send(signal.SIGKILL)
        self.wait(process)

    def hear(self) -> None:
        """Read what the program says, until its end."""
        assert self.program.stdout is not None
        for line in self.program.stdout:
            said = json.loads(line)
            with self.changed:
                process = self.processes.setdefault(said["pid"], Process(said["pid"]))
                if "code" in said:
                    process.code = said["code"]
                else:
                    self._started.append(said["pid"])
                self.changed.notify_all()


@contextmanager
def masters(environment: Mapping[str, str]) -> Iterator[Masters]:
    """Run the program; at the end it and all masters are gone.

    Args:
        environment: Without the variables of anybody's cluster.
    """
    command = [sys.executable, str(Path(__file__))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(environment)) as program:
        made = Masters(program)
        ears = threading.Thread(target=made.hear)
        ears.start()
        try:
            yield made
        finally:
            for process in made.processes.values():
                made.end(process)
            assert program.stdin is not None
            program.stdin.close()
            ears.join()


# --- the program


def main() -> None:
    """Fork a master for each line that comes."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import detlab_hub.app  # noqa: F401  (what takes long is imported once)
    import testbed.crash_points  # noqa: F401  (the same)

    signal.signal(signal.SIGCHLD, lambda *_: reap())
    for line in iter(sys.stdin.buffer.readline, b""):
        wanted = json.loads(line)
        signal.pthread_sigmask(
            signal.SIG_BLOCK, [signal.SIGCHLD]
        )  # it is said to have started before it is to have ended
        pid = os.fork()
        if pid == 0:
            become_master(wanted)
        say(pid=pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def say(**what: int) -> None:
    """Write a line."""
    os.write(1, json.dumps(what).encode() + b"\n")


def reap() -> None:
    """Say who ended, and how."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        say(pid=pid, code=os.waitstatus_to_exitcode(status))


def become_master(wanted: dict[str, Any]) -> None:
    """Run the master in this process, and end with it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    output = os.open(wanted["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, number)
    code = 1
    try:
        code = run_master(wanted)
    finally:
        sys.stderr.flush()
        os._exit(code)


def run_master(wanted: dict[str, Any]) -> int:
    """What `python -m detlab_hub` does, with a tripwire at the database."""
    from detlab_hub.__main__ import main as master
    from testbed.crash_points import CrashPoint, Tripwire, watching

    sys.argv = ["detlab_hub", *wanted["arguments"]]
    if "lease" in wanted:
        shorten_lease(wanted["lease"])
    point = CrashPoint(wanted.get("at", 0), wanted.get("after", False))
    wire = Tripwire(point, lambda: os.kill(os.getpid(), signal.SIGKILL), noting(wanted.get("commits")))
    with watching(wire):
        return master()


def noting(path: str | None) -> Callable[[], None]:
    """Return what adds a byte to a file."""
    if path is None:
        return lambda: None
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return lambda: os.write(file, b".") and None


def shorten_lease(seconds: float) -> None:
    """Let the lease last for less than usual, and renew it as much more often."""
    from detlab_hub import app
    from detlab_hub.services import master
    from detlab_hub.store import Store

    master.LEASE_PERIOD *= seconds / 15.0
    app.Store = type("Store", (Store,), {"open": partial(Store.open, lease_ttl=seconds)})


if __name__ == "__main__":
    main()
