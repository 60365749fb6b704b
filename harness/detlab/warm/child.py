"""The launcher in a forked process: its directory, its user, and starting the trial by forking once more."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from detlab.launch.become import REFUSED, python_needs, settle
from detlab.launch.entrypoint import EntrypointCommand, EntrypointProcess, start_cold
from detlab.launch.host.cgroup import join
from detlab.launch.host.mounts import Need, Unreachable
from detlab.launch.network import NetworkFailed
from detlab.launch.python_program import Program, StartCold, read_program
from detlab.launch.task import CANNOT_START, Launcher
from detlab.launch.taskdir import TaskDir
from detlab.launch.warm_wire import BEGUN, GO, ForkRequest
from detlab.warm.fresh import keep_only, set_oom_score
from detlab.warm.interpreter import Interpreter
from detlab.warm.running import ReadyProgram
from detlab.warm.title import Title

_PR_SET_DUMPABLE = 4
_NEVER_STARTED = 3


class BecomeTrial(BaseException):
    """Unwinds the launcher's stack in the process that is to be the trial."""

    def __init__(self, program: Program, entry: EntrypointCommand) -> None:
        super().__init__()
        self.program = program
        self.entry = entry


@dataclass
class ForkedChild:
    """The trial's process, a child of the launcher."""

    pid: int
    returncode: int | None = None


def run_launcher(
    request: ForkRequest, descriptors: Sequence[int], interpreter: Interpreter, title: Title
) -> ReadyProgram:
    """Run the task's launcher to its end, which ends this process; return in the trial's process.

    Args:
        request: What the agent asked for.
        descriptors: Log, status pipe, and the pipe on which the agent gives the signal to continue.
        interpreter: What the zygote knows about itself.
        title: Where the process table reads about this process.
    """
    try:
        _take_place(request, descriptors, interpreter)
        code = Launcher(TaskDir(Path(request.directory)), WarmStart(interpreter)).run()
    except BecomeTrial as trial:
        program, entry = trial.program, trial.entry  # and with the exception goes the launcher
    except SystemExit as error:
        sys.stderr.write(f"{error}\n")
        _end(1)
    except BaseException:  # whatever it is, its place is the launcher's log, as if python showed it
        traceback.print_exc()
        _end(1)
    else:
        _end(code if code >= 0 else 128 - code)
    try:
        return interpreter.become(program, entry, title)
    except OSError as error:
        _cannot_start(entry, error)


def _take_place(request: ForkRequest, descriptors: Sequence[int], interpreter: Interpreter) -> None:
    """Stand where a launcher that was started cold stands: session, directory, files, user."""
    log, status, go = descriptors
    os.setsid()
    os.chdir("/")
    os.umask(0o022)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if os.read(go, 1) != GO:  # the agent gave us up, or is gone
        os._exit(_NEVER_STARTED)
    set_oom_score(interpreter.oom_score)
    keep_only((0, 1, 2, status))
    if request.uid is not None and request.gid is not None:
        needs = [
            *python_needs(),
            *(Need(Path(path)) for path in request.reach_read),
            *(Need(Path(path), writable=True) for path in request.reach),
        ]
        try:
            join(Path(path) for path in request.cgroups)
            settle(request.uid, request.gid, request.groups, needs, request.network, request.env)
        except (Unreachable, NetworkFailed, OSError, ValueError) as error:
            os.write(status, json.dumps({"error": str(error)}).encode() + b"\n")
            os._exit(REFUSED)
        # exec would have said so: the user may look at processes of their own.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    os.write(status, BEGUN)
    os.close(status)


def _end(status: int) -> NoReturn:
    """End the launcher: what it runs at its exit is the zygote's, not its own."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


class WarmStart:
    """Start a Python program by forking this process, anything else cold; see `Start`.

    Args:
        interpreter: What this process can stand in for.
    """

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter

    def __call__(self, entry: EntrypointCommand) -> EntrypointProcess:
        """See `Start`.

        Raises:
            BecomeTrial: In the forked child, which is to run the program.
        """
        try:
            program = read_program(entry.entrypoint)
            self._interpreter.check(program, entry)
        # What cannot even be looked at is a new interpreter's to report.
        except (StartCold, OSError, ValueError, RuntimeError) as reason:
            return _cold(entry, reason)
        # The handlers of the launcher must not run in the trial: signals wait until it has its own.
        waiting = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
        except OSError as reason:
            signal.pthread_sigmask(signal.SIG_SETMASK, waiting)
            return _cold(entry, reason)
        if pid == 0:
            _take_output(entry)
            raise BecomeTrial(program, entry)
        with contextlib.suppress(OSError):  # it was quicker, or is gone
            os.setpgid(pid, pid)
        signal.pthread_sigmask(signal.SIG_SETMASK, waiting)
        return ForkedChild(pid)


def _cold(entry: EntrypointCommand, reason: Exception) -> EntrypointProcess:
    sys.stderr.write(f"started cold: {reason}\n")
    if entry.on_cold is not None:
        entry.on_cold(str(reason))
    return start_cold(entry)


def _take_output(entry: EntrypointCommand) -> None:
    """Be a process group with the program's output. No error may reach the launcher, of which this is a copy."""
    try:
        os.dup2(entry.stdout, 1)
        os.dup2(entry.stderr, 2)
        os.setpgid(0, 0)
    except OSError as error:
        _cannot_start(entry, error)


def _cannot_start(entry: EntrypointCommand, error: OSError) -> NoReturn:
    """End the trial's process before its program began, with the status of a program that cannot be started."""
    with contextlib.suppress(OSError):
        os.write(2, f"detlab: cannot start {entry.words[0]!r}: {error}\n".encode(errors="backslashreplace"))
    os._exit(CANNOT_START)
