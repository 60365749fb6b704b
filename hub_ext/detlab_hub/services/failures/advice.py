"""What a failure says that is known to mislead: by its words the class, what it means, and what helps. Pure.

One row for each: whoever knows another adds a row. The first that matches counts. Patterns are searched in the message
of the failure, or in the last lines of the output where `of_output` says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SHM = "make /dev/shm larger (resources.shm_size, such as 4G), use fewer num_workers, or smaller batches"
_WORKER = "num_workers=0 shows the error itself"


@dataclass(frozen=True, slots=True)
class Advice:
    """A failure that is known.

    Attributes:
        pattern: Its words.
        kind: The class of the card; "" leaves the one that was found.
        means: What it means, which the card says before its words; "" if they say it.
        helps: What to do.
        of_output: Whether the words stand in the output and not in the message.
    """

    pattern: re.Pattern[str]
    kind: str
    means: str
    helps: str
    of_output: bool = False


KNOWN: tuple[Advice, ...] = (
    Advice(
        re.compile(
            r"insufficient shared memory|out of shared memory|unable to (?:allocate|open|resize|mmap|write).{0,80}"
            r"(?:shared memory|/torch_\d)|killed by signal: Bus error",
            re.IGNORECASE,
        ),
        "oom",
        "shared memory (/dev/shm) is too small for the DataLoader's workers",
        _SHM,
    ),
    Advice(
        re.compile(r"bus error encountered in worker|insufficient shared memory \(shm\)"),
        "oom",
        "shared memory (/dev/shm) is too small for the DataLoader's workers",
        _SHM,
        of_output=True,
    ),
    Advice(
        re.compile(r"DataLoader worker \(pid.{0,40}\) is killed by signal: Killed"),
        "killed",
        "a worker process of the DataLoader was killed, most often because the machine or container ran out of memory",
        "use fewer num_workers (each holds its own data), or ask for more memory (dmesg says whom the kernel ended)",
    ),
    Advice(
        re.compile(r"DataLoader worker \(pid.{0,40}\) is killed by signal: (?:Segmentation fault|Aborted|Illegal)"),
        "killed",
        "a worker process of the DataLoader crashed in native code",
        f"{_WORKER}; the Dataset's libraries (OpenCV, HDF5, …) may not be safe to use after fork",
    ),
    Advice(
        re.compile(r"segmentation fault encountered in worker"),
        "killed",
        "a worker process of the DataLoader crashed in native code (segmentation fault)",
        f"{_WORKER}; the Dataset's libraries (OpenCV, HDF5, …) may not be safe to use after fork",
        of_output=True,
    ),
    Advice(
        re.compile(r"DataLoader worker \(pid.{0,400}\) (?:is killed by|exited unexpectedly)"),
        "killed",
        "a worker process of the DataLoader ended without an exception",
        f"{_WORKER}; it may have called os._exit, or been ended for its memory",
    ),
    Advice(
        re.compile(r"BrokenProcessPool|A process in the process pool was terminated abruptly|TerminatedWorkerError"),
        "killed",
        "a process of the pool was killed, or crashed",
        "often the machine or container ran out of memory (dmesg says whom the kernel ended): use fewer workers",
    ),
    Advice(
        re.compile(
            r"Torch not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available"
            r"|no CUDA-capable device|no kernel image is available"
        ),
        "",
        "the code asked for a GPU that this task does not have, or that this build of torch cannot use",
        "use torch.device('cuda' if torch.cuda.is_available() else 'cpu'), or a pool with GPUs (det slot list)",
    ),
    Advice(
        re.compile(r"invalid device ordinal|Invalid device id"),
        "",
        "the code named a GPU by a number that this task does not have",
        "a task sees its own GPUs alone, numbered from 0: use cuda:0, or LOCAL_RANK, or ask for more slots",
    ),
    Advice(
        re.compile(r"op\.preamble\.length <= op\.nbytes|collective mismatch|Mismatch between collective operations"),
        "exception",
        "the ranks were not in the same collective operation",
        "one of them skipped or added a backward(), forward or all_reduce: all ranks must do the same in each step",
        of_output=True,
    ),
    Advice(
        re.compile(r"^terminate called without an active exception"),
        "exception",
        "the process ended while its threads still communicated with the other ranks",
        "this rank left before the others (sys.exit, an early return, fewer batches): end all ranks at the same step",
        of_output=True,
    ),
)
_SIGNALS = {
    "SIGSEGV": (
        "a crash in native code (segmentation fault)",
        "the output names the line; likely: a library of another version or build, or one that is not safe after fork",
    ),
    "SIGBUS": (
        "a bus error: shared memory (/dev/shm), or a file mapped into memory, was too small or has shrunk",
        f"{_SHM}; or look whether the disk of a mapped file is full",
    ),
    "SIGILL": (
        "an illegal instruction: a library was built for another CPU",
        "install a build of that library for this CPU, or ask for other nodes",
    ),
    "SIGFPE": (
        "an arithmetic error in native code, such as a division by zero",
        "the output names the line",
    ),
    "SIGABRT": (
        "native code gave up (abort)",
        "its reason stands in the output",
    ),
    "SIGSYS": ("a system call that the container forbids", "ask who runs the cluster, or use another library"),
    "SIGXCPU": ("its limit of CPU time", "ask who runs the cluster (ulimit -t)"),
    "SIGXFSZ": ("its limit of file size", "ask who runs the cluster (ulimit -f)"),
    "SIGPIPE": ("it wrote to a program that had ended", "look at the pipe in the entrypoint"),
    "SIGTERM": ("something asked it to end", "if no one stopped it, a program of its own or the machine did"),
}
"""What signals mean besides SIGKILL, which says nothing, and what helps."""
_CPP = re.compile(r"^terminate called after throwing an instance of '(?P<name>[^']{1,300})'")
_WHAT = re.compile(r"^  what\(\):\s+(?P<text>.*)$")
_FATAL = re.compile(r"^(?:Fatal Python error: (?P<fatal>.*)|.{0,300}: Assertion `(?P<claim>.*)' failed\.)$")
_NATIVE = "Segmentation fault", "Aborted", "Bus error", "Illegal instruction", "Floating point exception"


def known(message: str, texts: Sequence[str]) -> Advice | None:
    """Return the first row that a failure matches.

    Args:
        message: Its message.
        texts: The last lines of the output.
    """
    for row in KNOWN:
        if row.pattern.search(message) or (row.of_output and any(row.pattern.search(text) for text in texts)):
            return row
    return None


def of_signal(name: str) -> str:
    """Return what a signal means, "" if nothing is known."""
    return _SIGNALS[name][0] if name in _SIGNALS else ""


def helps_after(name: str | None) -> str:
    """Return what helps after a signal, "" if nothing is known."""
    return _SIGNALS[name][1] if name in _SIGNALS else ""


def native_reason(texts: Iterable[str]) -> str:
    """Return the words of a C++ exception, a failed assertion or the interpreter's fatal error, or ""."""
    reason = thrown = ""
    for text in texts:
        if (cpp := _CPP.match(text)) is not None:
            reason = thrown = f"C++ exception {cpp['name']}"
        elif thrown and (what := _WHAT.match(text)) is not None:
            reason = f"{thrown}: {what['text']}"
        elif (fatal := _FATAL.match(text)) is not None:
            said = fatal["fatal"] or f"assertion failed: {fatal['claim']}"
            reason = reason if said in _NATIVE else said
    return reason
