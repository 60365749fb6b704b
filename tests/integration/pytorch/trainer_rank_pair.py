"""Two processes that stay: each test has both run one function of its module, and gets what they returned."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import sys
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from trainer_forked import context

SIZE = 2
SECONDS = 90.0
"""How long one function may take; a collective that hangs takes longer."""


class RankFailed(AssertionError):
    """A rank raised or did not answer; the message has its traceback."""


class Pair:
    """The two processes.

    Args:
        module: Where the functions are.
        directory: For the file through which the processes meet.
    """

    def __init__(self, module: str, directory: Path) -> None:
        self._context = context()
        self._module, self._directory = module, directory
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []
        self._starts = 0

    def run(self, function: str, *args: Any) -> list[Any]:
        """Have both ranks call `function(context_maker, *args)`; return the results by rank.

        Raises:
            RankFailed: One raised or did not answer; in the latter case both are replaced.
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
        for rank in range(SIZE):
            ours, theirs = self._context.Pipe()
            meeting = str(self._directory / f"meeting{self._starts}")
            process = self._context.Process(
                target=_serve, args=(theirs, self._module, rank, port, meeting), daemon=True
            )
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


def _serve(pipe: Connection, module: str, rank: int, port: int, meeting: str) -> None:
    import torch
    import torch.distributed as dist

    from detlab import core

    torch.set_num_threads(1)
    os.environ.pop("DET_TASK_DIR", None)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=SIZE)
    distributed = core.DistributedContext(
        rank=rank, size=SIZE, local_rank=rank, local_size=SIZE, cross_rank=0, cross_size=1, pub_port=port
    )
    core_context = core.init(distributed=distributed)
    functions = importlib.import_module(module)
    for function, args in _orders(pipe):
        try:
            pipe.send((True, getattr(functions, function)(_maker(core_context), *args)))
        except BaseException:
            pipe.send((False, traceback.format_exc()))
    sys.stdout.flush()


def _orders(pipe: Connection) -> Iterator[tuple[str, tuple[Any, ...]]]:
    with contextlib.suppress(EOFError):
        while True:
            yield pipe.recv()


def _maker(core_context: Any) -> Any:
    from detlab.pytorch.context.trial_context import PyTorchTrialContext

    def make_context(**changes: Any) -> PyTorchTrialContext:
        arguments: dict[str, Any] = {
            "core_context": core_context,
            "trial_seed": 1,
            "hparams": {},
            "slots_per_trial": SIZE,
            "num_gpus": 0,
            "exp_conf": {},
        }
        return PyTorchTrialContext(**{**arguments, **changes})

    return make_context
