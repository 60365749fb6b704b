"""What a zygote does once so that no trial need do it: import torch and take one optimizer step, in one thread.

Nothing here may start a thread, draw on a GPU or leave a trace that a program could see. `backward` is not called: on a
build with CUDA the first one counts the devices and starts a thread for each, and costs a fork only milliseconds.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from detlab.launch.procfs import PROC

MODULES = (
    "numpy",
    "detlab.launch.task",
    "detlab.launch.become",
    "detlab.core",
    "detlab.pytorch",
    "httpx",
    "httpcore",  # which httpx imports with its first client
    "certifi",
)
"""Imported as far as they are installed."""


class NotSingle(Exception):
    """The process has more than one thread: what is forked from it would hang in its first parallel operation."""


def thread_count() -> int:
    """Return how many threads the kernel counts in this process."""
    for line in (PROC / "self" / "status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("Threads:"):
            return int(line.split()[1])
    return 0


def check_single() -> None:
    """Look whether this process may be forked.

    Raises:
        NotSingle: It has more than one thread.
    """
    count = thread_count()
    if count != 1:
        raise NotSingle(f"{count} threads")


def preload() -> list[str]:
    """Import and step; return the names of the optional modules that are not installed.

    Raises:
        ImportError: There is no torch.
        NotSingle: Something started a thread.
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
    check_single()
    if torch.cuda.is_initialized():
        raise RuntimeError("CUDA was initialised before the fork")
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


def loaded_names() -> frozenset[str]:
    """Return the top-level names of what is imported: a file of the same name would never be."""
    return frozenset(name.partition(".")[0] for name in sys.modules)
