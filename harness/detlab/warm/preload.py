"""Work that a zygote does once for all trials: import torch and take one optimizer step, in one thread.

Nothing here may start a thread, draw on a GPU or leave a trace that a program could see. `backward` is not called: on a
build with CUDA the first one counts the devices and starts a thread for each, and costs a fork only milliseconds.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from detlab.launch.host.procfs import PROC

MODULES = (
    "numpy",
    "detlab.launch.task",
    "detlab.launch.become",
    "detlab.launch.delivery.plain_http",
    "detlab.core",
    "detlab.pytorch",
    "httpx",
    "httpcore",  # which httpx imports with its first client
    "certifi",
    "anyio._backends._asyncio",  # and with its first request in a loop
    "encodings.idna",  # which http.client needs for its first connection
)
"""Imported as far as they are installed."""
MODELS = ("BestValidationReply", "CheckpointView", "CommitCheckpoint", "PreemptReply", "RefusedRecord")
"""Of `detlab.schemas.wire`: what trials validate by, which pydantic builds on its first use."""


class Unfit(Exception):
    """What is forked from this process would not be as good as new; the message says why."""


def thread_count() -> int:
    """Return how many threads the kernel counts in this process."""
    for line in (PROC / "self" / "status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("Threads:"):
            return int(line.split()[1])
    return 0


def check_single() -> None:
    """Check that this process may be forked.

    Raises:
        Unfit: It has more than one thread; a child would hang in its first parallel operation.
    """
    count = thread_count()
    if count != 1:
        raise Unfit(f"it has {count} threads")


def check_private(maps: Path = PROC / "self" / "maps") -> None:
    """Check that all memory that this process may write to is copied by a fork.

    Raises:
        Unfit: Some of it is shared, such as that of GPU drivers: trials would write into each other's memory.
    """
    for line in maps.read_text(encoding="utf-8", errors="replace").splitlines():
        _, permissions, *rest = line.split(None, 5)
        if "w" in permissions and permissions.endswith("s"):
            raise Unfit(f"it shares memory with its forks: {rest[3] if len(rest) > 3 else 'without a name'}")


def check_no_cuda(torch: Any) -> None:
    """Check that CUDA has not been used.

    Raises:
        Unfit: It was initialised, or its devices were counted by the driver: neither survives a fork.
    """
    if torch.cuda.is_initialized():
        raise Unfit("CUDA was initialised before the fork")
    # Only a child can tell: torch notes in each one whether its parent had spoken to the driver.
    pid = os.fork()
    if pid == 0:
        os._exit(int(getattr(torch.cuda, "_is_in_bad_fork", bool)()))
    if os.waitpid(pid, 0)[1] != 0:
        raise Unfit("CUDA was used before the fork")


def preload() -> list[str]:
    """Import and step; return the names of the optional modules that are not installed.

    Raises:
        ImportError: There is no torch.
        Unfit: Something started a thread, shared memory or used a GPU.
    """
    missing = []
    with _silence():
        torch = importlib.import_module("torch")
        # OMP_NUM_THREADS=1 of the agent keeps it to one thread. set_num_threads would make a pool whose size a fork
        # cannot change.
        step(torch)
        for name in MODULES:
            try:
                importlib.import_module(name)
            except ImportError:
                missing.append(name)
        wire = importlib.import_module("detlab.schemas.wire")
        for name in MODELS:
            getattr(wire, name).model_rebuild()
    check_single()
    check_private()
    check_no_cuda(torch)
    return missing


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Show no warning, which would then not be shown to the trial; keep the filters that libraries set."""
    warnings.simplefilter("ignore")
    ours = warnings.filters[0]
    try:
        yield
    finally:
        warnings.filters.remove(ours)  # type: ignore[attr-defined]  # a list, whatever the stubs say
        warnings.resetwarnings.__globals__["_filters_mutated"]()


def step(torch: Any) -> None:
    """Take a step of each of the usual optimizers on the CPU: the first one imports a second's worth of modules."""
    with _no_gpus(torch):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
            optimizer = make(model.parameters(), lr=0.01)
            torch.nn.functional.cross_entropy(model(torch.ones(2, 4)), torch.tensor([0, 1]))
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
            optimizer.zero_grad()


@contextlib.contextmanager
def _no_gpus(torch: Any) -> Iterator[None]:
    """Answer for the driver: asking it how many GPUs there are would load it, and it does not survive a fork."""
    asked = torch.cuda.is_available
    torch.cuda.is_available = lambda: False
    try:
        yield
    finally:
        torch.cuda.is_available = asked


@contextlib.contextmanager
def noting_variables() -> Iterator[set[str]]:
    """Note which variables of the environment Python looks up, found or not."""
    kind: Any = type(os.environ)
    look = kind.__getitem__
    names: set[str] = set()

    def noted(environ: Any, name: str) -> str:
        names.add(name)
        found: str = look(environ, name)
        return found

    kind.__getitem__ = noted
    try:
        yield names
    finally:
        kind.__getitem__ = look


def loaded_names() -> frozenset[str]:
    """Return the top-level names of what is imported: a file of the same name would never be."""
    return frozenset(name.partition(".")[0] for name in sys.modules)
