"""Recognise entrypoints that are plain Python programs, which a forked interpreter can run. Pure.

A program is `python3 [-u] (SCRIPT | -m MODULE | -c CODE) ARGUMENT…`, given as words or as a line in which a shell has
nothing to do but to split it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

from detlab.schemas.runtimes import PROCESS

OPT_OUT = "DETLAB_WARM_POOL"
"""Set to 0 among an experiment's environment variables, it makes its trials start cold."""
KEPT = "DETLAB_WARM_KEPT"
"""Tells the launcher that the node keeps a warm pool, and the runtime that its task has."""
THREADS = "OMP_NUM_THREADS"

_PYTHON = re.compile(r"(?:.*/)?python(?:3(?:\.[0-9]+)?)?")
_SPACE = " \t"
# What is quoted, and what needs no quotes: a shell takes it as it stands.
_PIECE = re.compile(r"""'([^']*)'|"([^"$`\\!]*)"|([A-Za-z0-9_@%+=:,./-]+)""")
_READ_EARLY = re.compile(
    r"(?:PYTHON|LD_|GLIBC_|MALLOC_|ACC_|GFORTRAN_|GOMP_|GOTO_|OMP_|KMP_|MKL_|MKLDNN_|OPENBLAS_|BLIS_|VECLIB_|NUMEXPR_"
    r"|NVPL_|DNNL_|ONEDNN_|INTEL_|I_MPI_|MPI_|OMPI_|OPENSSL_|ATEN_|NPY_|NUMPY_|TORCH|PYTORCH_|TRITON_|KINETO_"
    r"|LC_|CUDA_MODULE_LOADING|CUBLAS_|CUDNN_).*|LANG|LANGUAGE|LOCPATH|TZ|TZDIR|THP_MEM_ALLOC_ENABLE"
)
"""What libraries in C ask for while they are loaded: recorded once under torch 2.13 (docs/decisions/0009)."""
_OURS_TO_SET = frozenset({THREADS, "HOME", "PATH", "USER", "LOGNAME", "TMPDIR", "PWD"})
"""Each task has its own: a fork gets new values of them, and of what was derived from them."""
_BECOMES_ANOTHER = re.compile(r"detlab\.launch(?:\..*)?|torch\.distributed\.(?:run|launch).*")


class StartCold(Exception):
    """A forked interpreter cannot stand in for a new one; the message says why."""


@dataclass(frozen=True)
class Program:
    """A Python program.

    Attributes:
        words: The whole command, the interpreter first.
        kind: What is run.
        target: The script's path, the module's name or the code.
        arguments: What follows it.
        shell: Whether the entrypoint was a line for a shell, which would say where it is (PWD).
    """

    words: tuple[str, ...]
    kind: Literal["script", "module", "code"]
    target: str
    arguments: tuple[str, ...]
    shell: bool = False


def plain_words(line: str) -> list[str] | None:
    """Return the words of a command line, None if a shell would do more than split it at blanks."""
    words: list[str] = []
    at = 0
    while at < len(line):
        if line[at] in _SPACE:
            at += 1
            continue
        word = ""
        while at < len(line) and line[at] not in _SPACE:
            piece = _PIECE.match(line, at)
            if piece is None:
                return None
            word += "".join(part for part in piece.groups() if part)
            at = piece.end()
        words.append(word)
    return words


def read_program(entrypoint: str | Sequence[Any]) -> Program:
    """Return the program that an entrypoint runs.

    Raises:
        StartCold: It is not a plain Python program, or one that soon becomes another program.
    """
    shell = isinstance(entrypoint, str)
    words = plain_words(entrypoint) if isinstance(entrypoint, str) else [str(word) for word in entrypoint]
    if words is None:
        raise StartCold("the entrypoint needs a shell")
    if not words or not _PYTHON.fullmatch(words[0]):
        raise StartCold("the entrypoint is not a Python program")
    rest = words[1:]
    while rest[:1] == ["-u"]:  # which every task is, by PYTHONUNBUFFERED
        rest.pop(0)
    if not rest or rest[0] == "-":
        raise StartCold("Python is started without a program")
    if rest[0] in {"-m", "-c"}:
        if len(rest) < 2:
            raise StartCold(f"{rest[0]} without a program")
        if rest[0] == "-c":
            return Program(tuple(words), "code", rest[1], tuple(rest[2:]), shell)
        if _BECOMES_ANOTHER.fullmatch(rest[1]):
            raise StartCold(f"{rest[1]} starts its own interpreters")
        return Program(tuple(words), "module", rest[1], tuple(rest[2:]), shell)
    if rest[0].startswith("-"):
        raise StartCold(f"the interpreter's option {rest[0]}")
    if not rest[0].endswith(".py"):  # Python runs archives, bytecode and folders too, and tells them by their contents
        raise StartCold(f"{rest[0]} is not a .py file")
    return Program(tuple(words), "script", rest[0], tuple(rest[1:]), shell)


def check_environment(wanted: Mapping[str, str], had: Mapping[str, str], read: Set[str] = frozenset()) -> None:
    """Check that a process whose libraries were loaded under `had` can stand in for one started under `wanted`.

    Args:
        wanted: The environment of the program.
        had: The environment of the process.
        read: What Python modules have looked up in it while they were imported.

    Raises:
        StartCold: A variable that libraries read when they are loaded differs.
    """
    if wanted.get(OPT_OUT) == "0":
        raise StartCold(f"{OPT_OUT}=0")
    for name in sorted({*wanted, *had}):
        early = name in read or _READ_EARLY.fullmatch(name)
        if early and name not in _OURS_TO_SET and wanted.get(name) != had.get(name):
            raise StartCold(f"the environment variable {name} is read when an interpreter starts")
    threads = wanted.get(THREADS)
    if threads is not None and not (threads.isascii() and threads.isdigit() and int(threads) > 0):
        raise StartCold(f"{THREADS}={threads} is not a plain number")


def why_cold(runtime: str | None, launch: Mapping[str, Any]) -> str | None:
    """Return why a node's warm pool cannot serve a task; None if it could, or nobody expects it to.

    Args:
        runtime: The value of `KEPT`; None: the node keeps no warm pool.
        launch: The Launch message as JSON.
    """
    if runtime is None or launch["info"].get("task_type", "TRIAL") != "TRIAL":
        return None
    if launch.get("environment", {}).get(OPT_OUT) == "0":
        return None
    if runtime != PROCESS:
        return "it runs in a container"
    try:
        read_program(launch["entrypoint"])
    except StartCold as reason:
        return str(reason)
    return None
