"""A task directory, real processes in it, and the task API that they talk to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from detlab.testing.master import MasterDouble
from testbed.task_dirs import make_task_dir


@pytest.fixture
def api() -> Iterator[MasterDouble]:
    with MasterDouble() as server:
        yield server


@dataclass
class Task:
    """A task directory and the processes that run in it."""

    root: Path
    checkpoints: Path

    def records(self) -> list[dict[str, Any]]:
        path = self.root / "spool" / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def set_info(self, **changes: Any) -> None:
        path = self.root / "info.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    def start(self, code: str, **extra: str) -> subprocess.Popen[str]:
        base = {key: value for key, value in os.environ.items() if not key.startswith("DET_")}
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**base, "DET_TASK_DIR": str(self.root), **extra},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.root / "work",
        )

    def run(self, code: str, timeout: float = 60, **extra: str) -> tuple[int, str]:
        process = self.start(code, **extra)
        try:
            output, _ = process.communicate(timeout=timeout)
        finally:
            process.kill()
            process.wait()
        return process.returncode, output


@pytest.fixture
def task(tmp_path: Path, api: MasterDouble) -> Task:
    checkpoints = tmp_path / "checkpoints"
    storage = {"type": "shared_fs", "host_path": str(checkpoints)}
    return Task(make_task_dir(tmp_path / "task", api.url, storage=storage), checkpoints)


@pytest.fixture
def in_task(task: Task, monkeypatch: pytest.MonkeyPatch) -> Task:
    """This very process is the task."""
    for name in [name for name in os.environ if name.startswith("DET_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DET_TASK_DIR", str(task.root))
    return task


HEAD = """
import os, sys
from pathlib import Path
import detlab as det
rank, size = int(os.environ["R"]), int(os.environ["N"])
def context(**more):
    args = dict(rank=rank, size=size, local_rank=rank, local_size=size, cross_rank=0, cross_size=1)
    return det.core.DistributedContext(**{"timeout": 30, **args, **more})
def start():
    return det.core.init(distributed=context())
"""


@pytest.fixture
def ranks(task: Task) -> Callable[..., list[tuple[int, str]]]:
    """Run one piece of code as N ranks of the task; return exit code and output of each."""

    def run(code: str, size: int, timeout: float = 60, **extra: str) -> list[tuple[int, str]]:
        task.set_info(slot_ids=list(range(size)))
        text = HEAD + textwrap.dedent(code)
        processes = [task.start(text, R=str(rank), N=str(size), **extra) for rank in range(size)]
        try:
            outputs = [process.communicate(timeout=timeout)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]

    return run


@pytest.fixture
def agree(ranks: Callable[..., list[tuple[int, str]]]) -> Callable[..., list[str]]:
    """As `ranks`, but all must end well; return what each printed."""

    def run(code: str, size: int, **extra: str) -> list[str]:
        results = ranks(code, size, **extra)
        assert [status for status, _ in results] == [0] * size, results
        return [output.strip() for _, output in results]

    return run
