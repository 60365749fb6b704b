"""Programs in processes that are forked from one that has imported torch, which is most of what a short run costs.

Only exec is left out: `python X` starting `python Y` becomes a fork that runs Y. Process ids, sessions, pipes, signals,
exit statuses, torchrun and the wrapper of each rank are the real ones.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import logging
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

PRELOAD = ["torch", "torch._dynamo", "torch.distributed.run", "detlab.pytorch", "detlab.launch.wrap_rank"]
"""torch imports its second entry when the first optimizer is made, which takes as long as the first."""
TESTS = str(Path(__file__).parents[2])
_HANDLER = "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler"
_RENDEZVOUS = "torch.distributed.elastic.rendezvous.dynamic_rendezvous"
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def context() -> Any:
    """Return the multiprocessing context whose processes have imported torch."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(PRELOAD)
    kept = {name: os.environ.get(name) for name in (*_ONE_THREAD, *(key for key in os.environ if key[:4] == "DET_"))}
    for name in kept:
        os.environ.pop(name, None)
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))  # a process with threads cannot be forked
    try:
        from multiprocessing import forkserver

        forkserver.ensure_running()
    finally:
        for name, value in kept.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
    return found


class Program:
    """A running `python arguments`, with the methods of `subprocess.Popen` that tests use.

    Args:
        arguments: As of the interpreter: `script.py …` or `-m module …`.
        env: Its whole environment.
        cwd: Where it runs.
        output: Where what it prints goes: `stdout` and `stderr` in this folder.
        apart: Whether the two are kept apart; else all is in the former.
    """

    def __init__(
        self, arguments: Sequence[str], env: Mapping[str, str], cwd: Path, output: Path, *, apart: bool = False
    ) -> None:
        output.mkdir(parents=True, exist_ok=True)
        self._files = [output / "stdout", output / "stderr"] if apart else [output / "stdout"]
        for file in self._files:
            file.write_bytes(b"")
        paths = [str(file) for file in self._files]
        self._process = context().Process(target=_start, args=(list(arguments), dict(env), str(cwd), paths))
        self._process.start()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def read(self) -> tuple[str, str]:
        """What it has printed so far: stdout and stderr, the latter empty if they are one."""
        texts = [file.read_text() for file in self._files]
        return texts[0], "".join(texts[1:])

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Wait for its end; return what it printed.

        Raises:
            subprocess.TimeoutExpired: It runs on.
        """
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a forked program", timeout, output="".join(self.read()))
        return self.read()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int | None:
        self._process.join()
        return self.returncode


def _start(arguments: list[str], env: dict[str, str], cwd: str, output: list[str]) -> NoReturn:
    """In the new process: be the interpreter, and have those that it starts be forked too."""
    for number, path in ((1, output[0]), (2, output[-1])):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(cwd)
    subprocess.Popen = ForkedPopen  # type: ignore[misc]
    sys.modules[_HANDLER].Popen = ForkedPopen  # type: ignore[attr-defined]
    # Names of events that nobody reads: to find each, all of the many modules are walked through, for 2 s in a run.
    sys.modules[_RENDEZVOUS].get_method_name = lambda depth=2: "unnamed"  # type: ignore[attr-defined]
    os.execve = _execute  # type: ignore[assignment]
    _be_python(arguments, env)


class ForkedPopen(subprocess.Popen):  # type: ignore[type-arg]
    """`subprocess.Popen` that forks instead of starting a new interpreter."""

    def __init__(self, args: Any, *more: Any, env: Mapping[str, str] | None = None, **options: Any) -> None:
        if args[0] == sys.executable:
            found = dict(os.environ if env is None else env)
            options["preexec_fn"] = lambda: _be_python(list(args[1:]), found)  # never returns: nothing is executed
        super().__init__(args, *more, env=env, **options)


def _execute(path: str, arguments: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    assert path == sys.executable
    _be_python(list(arguments[1:]), env)


def _be_python(arguments: list[str], env: Mapping[str, str]) -> NoReturn:
    """Run a script or module as `python` would, and end."""
    _forget_parent()
    os.environ.clear()
    os.environ.update(env)
    places = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*places, *(path for path in sys.path if path not in places and not path.startswith(TESTS))]
    status = 0
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            sys.path.insert(0, str(Path.cwd()))
            sys.modules.pop(arguments[1], None)
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            sys.path.insert(0, str(Path(arguments[0]).parent))
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as stop:
        if stop.code is not None and not isinstance(stop.code, int):
            print(stop.code, file=sys.stderr)
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        status = 1
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status & 0xFF)


def _forget_parent() -> None:
    """Leave what exec would have left: signals, open files, output buffers, logging."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.set_wakeup_fd(-1)
    multiprocessing.set_start_method(None, force=True)  # that of a new interpreter
    # The numbers stay taken: an object of the parent that is deleted later must not close another file.
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for entry in list(Path("/proc/self/fd").iterdir()):
        number = int(entry.name)
        if number not in (0, 1, 2, nothing):
            with contextlib.suppress(OSError):
                os.fstat(number)
                os.dup2(nothing, number, inheritable=False)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "wb", closefd=False)))
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "wb", closefd=False), write_through=True)  # type: ignore[arg-type]
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    sys.excepthook = sys.__excepthook__
