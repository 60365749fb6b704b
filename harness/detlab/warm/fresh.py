"""Reset inherited state in a forked process: handlers, descriptors, seeds, caches, threads."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import site
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from detlab.launch.host.procfs import PROC

_SET_THREADS = tuple(
    f"{prefix}openblas_set_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "_64", "")
)


def reset_signals() -> None:
    """Undo the handlers of the launcher; what was ignored before the agent began stays so, as exec keeps it."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def keep_only(kept: Sequence[int]) -> None:
    """Close every other descriptor."""
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number not in kept:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(number)


def oom_score() -> str:
    """Return how gladly the kernel would end this process for want of memory; "" where it does not say."""
    try:
        return (PROC / "self" / "oom_score_adj").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def set_oom_score(score: str) -> None:
    """Set the score, unless it has this value already.

    Raises:
        OSError: The kernel refused.
    """
    if oom_score() != score:
        (PROC / "self" / "oom_score_adj").write_text(score, encoding="ascii")


def forget_start(cwd: str) -> None:
    """Refresh what modules noted about the process when they were imported."""
    _set("multiprocessing.process", "ORIGINAL_DIR", cwd)
    _set("tempfile", "tempdir", None)
    _set("logging", "_startTime", time.time())
    # The kernel's number of the thread, which Python 3.11 keeps through a fork.
    getattr(threading.main_thread(), "_set_native_id", lambda: None)()
    spawn = sys.modules.get("multiprocessing.spawn")
    if spawn is not None:
        spawn.set_executable(sys.executable)
    site.USER_BASE = site.USER_SITE = None
    site.getusersitepackages()


def draw_seeds() -> None:
    """Draw new random seeds: else all trials of this node would have the same. `random` does so itself."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy.random")
    if torch is not None:
        torch.default_generator.seed()  # the CPU's; those of GPUs are made when CUDA is
    if numpy is not None:
        numpy.seed()
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)


def set_threads(omp_num_threads: str | None) -> None:
    """Take as many threads as a new process would."""
    torch: Any = sys.modules.get("torch")
    asked = int(omp_num_threads) if omp_num_threads else 0
    if torch is not None:
        torch.set_num_threads(asked or (physical_cores() if torch.backends.mkl.is_available() else _usable_cores()))
    _set_blas_threads(asked or _usable_cores())


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def physical_cores() -> int:
    """Return on how many cores this process may run, two hardware threads of one core counted once."""
    cores = set()
    for cpu in os.sched_getaffinity(0):
        try:
            cores.add(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text("ascii"))
        except OSError:
            cores.add(str(cpu))
    return len(cores)


@functools.cache
def blas_libraries() -> tuple[str, ...]:
    """Return where numpy's OpenBLAS lies, if it is loaded when it is first asked: by the zygote."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    return tuple(sorted({line.split(None, 5)[5] for line in maps if "openblas" in line and line.count("/")}))


def _set_blas_threads(count: int) -> None:
    """Tell numpy's OpenBLAS, which read OMP_NUM_THREADS when it was loaded."""
    for path in blas_libraries():
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
            name = next((name for name in _SET_THREADS if hasattr(library, name)), None)
            if name is not None:
                getattr(library, name)(ctypes.c_int(count))


def _set(module: str, name: str, value: Any) -> None:
    loaded = sys.modules.get(module)
    if loaded is not None and hasattr(loaded, name):
        setattr(loaded, name, value)
