"""Processes that stay and form one trial: each test has all of them run a function, and gets what they returned.

ranks = Ranks("my_tests.on_ranks", tmp_path, size=2)
weights = ranks.run("train", 3)          # [what train(contexts, 3) returned on rank 0, …]
ranks.close()
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import socket
import sys
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detlab import core
    from detlab.pytorch import PyTorchTrialContext

__all__ = ["Contexts", "RankFailed", "Ranks"]

SECONDS = 90.0
"""How long one function may take; a collective that hangs takes longer."""


class RankFailed(AssertionError):
    """A rank raised or did not answer; the message has its traceback."""


class Contexts:
    """Makes trial contexts on one rank: the first argument of each function that `Ranks` runs.

    Attributes:
        core_context: The rank's Core API; its `distributed` connects the ranks.
    """

    def __init__(self, core_context: core.Context) -> None:
        self.core_context = core_context

    def __call__(self, **changes: Any) -> PyTorchTrialContext:
        """Return a context on the CPU.

        Args:
            **changes: Arguments of `PyTorchTrialContext` that differ.
        """
        from detlab.pytorch import PyTorchTrialContext

        arguments: dict[str, Any] = {
            "core_context": self.core_context,
            "trial_seed": 1,
            "hparams": {},
            "slots_per_trial": self.core_context.distributed.size,
            "num_gpus": 0,
            "exp_conf": {},
        }
        return PyTorchTrialContext(**{**arguments, **changes})


class Ranks:
    """The processes, connected by gloo and by `detlab.core` if there are several; started when they are first used.

    Args:
        module: Where the functions are, to be imported in the processes.
        directory: For the file through which the processes meet.
        size: How many.
        processes: A context of `multiprocessing`; by default each process is a new interpreter.
    """

    def __init__(self, module: str, directory: Path, *, size: int = 2, processes: Any = None) -> None:
        self._context = processes or multiprocessing.get_context("spawn")
        self._module, self._directory, self._size = module, directory, size
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._starts = 0

    def run(self, function: str, *args: Any) -> list[Any]:
        """Have all ranks call `function(contexts, *args)`; return the results by rank.

        Raises:
            RankFailed: One raised or did not answer; in the latter case all are replaced.
        """
        if not self._processes:
            self._start()
        for pipe in self._pipes:
            pipe.send((function, args))
        answers = [pipe.recv() if pipe.poll(SECONDS) else (False, "no answer") for pipe in self._pipes]
        if (False, "no answer") in answers:
            self.close()
        if not all(done for done, _ in answers):
            raise RankFailed("\n".join(f"rank {rank}: {said}" for rank, (done, said) in enumerate(answers) if not done))
        return [said for _, said in answers]

    def _start(self) -> None:
        self._starts += 1
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
            port = listener.getsockname()[1]
        meeting = str(self._directory / f"meeting{self._starts}")
        for rank in range(self._size):
            ours, theirs = self._context.Pipe()
            arguments = (theirs, self._module, rank, self._size, port, meeting)
            process = self._context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def close(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(2)
            process.kill()
            process.join()
        self._pipes, self._processes = [], []


def _serve(pipe: Connection, module: str, rank: int, size: int, port: int, meeting: str) -> None:
    import torch

    from detlab import core

    torch.set_num_threads(1)
    os.environ.pop("DET_TASK_DIR", None)
    contexts = Contexts(core.init(distributed=_connect(rank, size, port, meeting) if size > 1 else None))
    functions = importlib.import_module(module)
    for function, args in _orders(pipe):
        try:
            pipe.send((True, getattr(functions, function)(contexts, *args)))
        except BaseException:  # told to the test, whatever it is
            pipe.send((False, traceback.format_exc()))
    sys.stdout.flush()


def _connect(rank: int, size: int, port: int, meeting: str) -> core.DistributedContext:
    import torch.distributed as dist

    from detlab import core

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    return core.DistributedContext(
        rank=rank, size=size, local_rank=rank, local_size=size, cross_rank=0, cross_size=1, pub_port=port
    )


def _orders(pipe: Connection) -> Iterator[tuple[str, tuple[Any, ...]]]:
    with contextlib.suppress(EOFError):
        while True:
            yield pipe.recv()
