"""The agent's zygote: kept ready to fork launchers, replaced when it dies, and not kept if memory is short.

The zygote is a process without a task, of the agent's own user, with a scrubbed environment and one thread. It receives
messages only from this agent, on a socket without a name. Without a zygote tasks start cold: nothing waits for it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import site
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detlab.files import write_atomic
from detlab.launch.environment import base_environment, source_path
from detlab.launch.host import procfs
from detlab.launch.warm_wire import CONTROL, GO, ROOM, ForkRequest
from detlab_agent.capacity import free_memory
from detlab_agent.runtimes.process.task import sparing

_log = logging.getLogger(__name__)

PROGRAM = "from detlab.warm.zygote import main; __zygote__ = True; main()"
ROOM_FOR_COMMAND = 1 << 10
ROOM_FOR_ENVIRONMENT = 1 << 16
MEMORY_TO_START = 2 << 30
"""Bytes that must be free for a zygote to be started: it takes about 0.3 GiB, and tasks come first."""
MEMORY_TO_KEEP = 512 << 20
"""Bytes that must be free to keep it."""
ANSWER_TIMEOUT = 5.0
"""Seconds that a fork may take; then the task starts cold and the zygote is replaced."""
RESTART_PAUSE = 10.0
"""Seconds until a zygote is restarted that never became ready, or reported that it cannot be forked."""
REFUSAL_PAUSE = 600.0
"""Seconds until one is restarted that reported why it cannot start (there is no torch), unless packages change."""
END_TIMEOUT = 5.0
"""Seconds that a killed zygote may take to end; one that hangs in the kernel is abandoned."""


@dataclass(frozen=True)
class ForkedLauncher:
    """A launcher that became our child when the process that forked it ended."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """Reap it, unless another caller has."""
        with contextlib.suppress(ChildProcessError):
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return 0


class WarmPool:
    """Keep one zygote.

    Args:
        agent_env: The agent's own environment.
        memory: Returns how many bytes are free.
        note: File that says which process it is, or why there is none, for `det status`; None: no file.
    """

    def __init__(self, agent_env: Mapping[str, str], memory: Any = None, note: Path | None = None) -> None:
        self._env = agent_env
        self._note_file = note
        self._memory = memory or free_memory
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._ready = False
        self._not_before = float("-inf")
        self._packages: tuple[int, ...] = ()
        self._closed = False
        self._code = ""

    # --- its life -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a zygote if there is none and there is room for one; it becomes ready by itself."""
        with self._lock:
            self._keep()

    def close(self) -> None:
        """End the zygote; the launchers that it forked live on."""
        with self._lock:
            self._closed = True
            self._discard()

    @property
    def pid(self) -> int | None:
        """Pid of the zygote."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def ready(self) -> bool:
        """Whether it could fork now."""
        with self._lock:
            return self._look()

    def code(self) -> str:
        """Return the digest of the code that the zygote has loaded, as it has said; "" without one."""
        with self._lock:
            return self._code if self._look() else ""

    def _keep(self) -> None:
        """Start a zygote whenever there should be one."""
        if self._closed or self._process is not None:
            return
        packages = _package_times()
        if time.monotonic() < self._not_before and packages == self._packages:
            return
        free = self._memory()
        if free < MEMORY_TO_START:
            _log.debug("no zygote: %d MiB of memory are free", free >> 20)
            self._note(f"{free / 2**30:.1f} GiB of memory are free; it starts with {MEMORY_TO_START >> 30} GiB")
            return
        self._not_before = time.monotonic() + RESTART_PAUSE
        self._packages = packages
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with sparing() as spared:
                self._process = self._spawn(theirs.fileno())
                spared.add(self._process.pid)
        except OSError as error:
            _log.warning("no zygote: %s", error)
            self._note(str(error))
            ours.close()
            return
        finally:
            theirs.close()
        self._control, self._ready = ours, False
        self._note("")

    def _spawn(self, control: int) -> subprocess.Popen[bytes]:
        env = zygote_environment(self._env)
        env[CONTROL], env[ROOM] = str(control), "x" * ROOM_FOR_ENVIRONMENT
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "x" * ROOM_FOR_COMMAND],
            cwd="/",
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(control,),
            start_new_session=True,
            umask=0o022,
        )

    def _discard(self) -> None:
        """Kill the zygote now."""
        process, control = self._process, self._control
        self._process, self._control, self._ready = None, None, False
        if control is not None:
            control.close()
        if process is not None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # an orphan then, and reaped as one
                process.wait(END_TIMEOUT)
            with sparing() as spared:
                spared.discard(process.pid)

    def _look(self) -> bool:
        """Whether the zygote is alive and has reported that it is ready; discard one that is no longer usable."""
        process, control = self._process, self._control
        if process is None or control is None:
            return False
        reason = None
        # What it said comes first: one that was ready before it died is replaced at once, one that never was, later.
        if not self._ready and select.select([control], [], [], 0)[0]:
            answer = _receive(control)
            self._ready, self._code = answer.get("ready") is True, str(answer.get("code", ""))
            if self._ready:
                self._not_before = float("-inf")
            elif "error" in answer:
                self._not_before = time.monotonic() + REFUSAL_PAUSE
                _log.warning("no warm pool, trials start cold: %s", answer["error"])
            reason = None if self._ready else str(answer.get("error", "it ended"))
        reason = reason or self._objection(process)
        if reason is not None:
            _log.info("the zygote is given up: %s", reason)
            self._discard()
            self._note(reason)
        return self._ready

    def _note(self, reason: str) -> None:
        """Write down which process the zygote is, or why there is none."""
        if self._note_file is None:
            return
        pid = self.pid
        told = {"pid": pid, "started": procfs.start_time(pid) if pid else None, "reason": reason}
        try:
            write_atomic(self._note_file, json.dumps(told).encode())
        except OSError as error:
            _log.warning("%s: %s", self._note_file, error)

    def _objection(self, process: subprocess.Popen[bytes]) -> str | None:
        if process.poll() is not None:
            return f"it ended with status {process.returncode}"
        if self._memory() < MEMORY_TO_KEEP:
            return "memory is short"
        if self._packages != _package_times():
            return "packages were installed or removed"
        return None

    # --- its use ------------------------------------------------------------------------------------------

    def fork(self, request: ForkRequest, log: int, status: int) -> HeldLauncher | None:
        """Fork a launcher, which waits for `HeldLauncher.go`; return None if the task must start cold.

        Args:
            request: The launcher.
            log: Descriptor of its log.
            status: Descriptor on which it reports why it cannot become its user; closed once it has become it.
        """
        with self._lock:
            try:
                return self._fork(request, log, status)
            except OSError as error:  # of descriptors, say: the zygote only saves time
                _log.warning("%s starts cold: %s", request.directory, error)
                return None

    def _fork(self, request: ForkRequest, log: int, status: int) -> HeldLauncher | None:
        if not self._look():
            _log.debug("%s starts cold: no zygote is ready", request.directory)
            self._keep()
            return None
        go_read, go_write = os.pipe()
        try:
            answer = self._ask(request, (log, status, go_read))
        finally:
            os.close(go_read)
        if "pid" in answer:
            return HeldLauncher(ForkedLauncher(int(answer["pid"])), go_write)
        os.close(go_write)  # processes that wait for it end
        _log.warning("%s starts cold: %s", request.directory, answer.get("error", "the zygote died"))
        self._discard()
        self._keep()
        return None

    def _ask(self, request: ForkRequest, descriptors: Sequence[int]) -> dict[str, Any]:
        control = self._control
        assert control is not None
        try:
            socket.send_fds(control, [request.encode()], list(descriptors))
            if not select.select([control], [], [], ANSWER_TIMEOUT)[0]:
                return {"error": f"no answer from the zygote in {ANSWER_TIMEOUT:g} s"}
        except OSError as error:
            return {"error": f"the zygote cannot be asked: {error}"}
        answer = _receive(control)
        if "error" in answer:  # of its own: the next one may say the same
            self._not_before = time.monotonic() + RESTART_PAUSE
        return answer


@dataclass
class HeldLauncher:
    """A launcher that has not started: it ends when the agent does, or when it is dropped without `go`.

    Attributes:
        launcher: Its process.
        pipe: The pipe on which it waits.
    """

    launcher: ForkedLauncher
    pipe: int

    def go(self) -> None:
        """Let it start."""
        with contextlib.suppress(BrokenPipeError):  # killed already: its end is noticed as any other
            os.write(self.pipe, GO)
        self.drop()

    def drop(self) -> None:
        """Drop the launcher; it ends unless `go` was called."""
        os.close(self.pipe)


def zygote_environment(agent_env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which libraries are loaded: like a task's, without a task's own variables."""
    nowhere = Path("/nonexistent")
    env = base_environment(agent_env, bin_dir=Path(sys.executable).parent, home=nowhere, user="nobody", tmp=nowhere)
    # One thread until after the fork; an interpreter as every task gets it.
    interpreter = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
    return {**env, **source_path(agent_env), "OMP_NUM_THREADS": "1", **interpreter}


def _package_times() -> tuple[int, ...]:
    """Return a value that changes when packages are installed: the zygote has imported the earlier ones."""
    times = []
    here = ""  # if it was removed
    with contextlib.suppress(OSError):
        here = str(Path.cwd())  # on the path of `python -m`, and where anything may be written
    for folder in dict.fromkeys([*site.getsitepackages(), *sys.path]):
        with contextlib.suppress(OSError):
            if folder not in {"", here}:
                times.append(Path(folder).stat().st_mtime_ns)
    return tuple(times)


def _receive(control: socket.socket) -> dict[str, Any]:
    try:
        value = json.loads(control.recv(1 << 16) or b"{}")
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
