"""A trial's task in which a program of a framework trains, in the environment that has the frameworks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from detlab.testing.master import MasterDouble
from testbed.task_dirs import make_task_dir

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-frameworks" / "bin" / "python"
EXAMPLES = ROOT / "examples" / "frameworks"
METRICS = re.compile(r"(\[rank=\d+\] )?\{'")


def needs_frameworks() -> None:
    """Skip the test where the frameworks are not installed."""
    if not PYTHON.exists():
        assert "CI" not in os.environ, "make setup-test makes .venv-frameworks"
        pytest.skip("no .venv-frameworks: make setup-test")


@dataclass
class FrameworkTask:
    """The directory of a trial's task."""

    root: Path
    api: MasterDouble
    python: Path = PYTHON
    """Of the environment that has the framework."""
    launcher: str = "detlab.launch.torch_distributed"

    def records(self, kind: str) -> list[dict[str, Any]]:
        path = self.root / "spool" / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [record for record in map(json.loads, lines) if record["kind"] == kind]

    def metrics(self, group: str) -> dict[int, dict[str, Any]]:
        """What was reported for a group, by step; a step that was reported twice fails the test."""
        found: dict[int, dict[str, Any]] = {}
        for record in self.records("metrics"):
            if record["group"] == group:
                assert record["steps_completed"] not in found, record
                found[record["steps_completed"]] = record["metrics"]
        return found

    def set_info(self, **changes: Any) -> None:
        path = self.root / "info.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    def set_config(self, **changes: Any) -> None:
        config = json.loads((self.root / "info.json").read_text())["config"]
        self.set_info(config={**config, **changes})

    def checkpoints(self) -> list[dict[str, Any]]:
        return sorted(self.api.checkpoints.values(), key=lambda view: view["steps_completed"])

    def start(self, program: str | Path, *, ranks: int = 1, **extra: Any) -> subprocess.Popen[str]:
        """Start a program of examples/frameworks, or another one."""
        self.set_info(slot_ids=list(range(ranks)), container_slot_counts=[ranks])
        base = {key: value for key, value in os.environ.items() if not key.startswith("DET_")}
        script = os.fspath(EXAMPLES / program)
        launch = [] if ranks == 1 else ["-m", self.launcher, os.fspath(self.python)]
        return subprocess.Popen(
            [self.python, *launch, script],
            env={
                **base,
                "DET_TASK_DIR": str(self.root),
                "DET_SLOT_IDS": json.dumps(list(range(ranks))),
                "HF_HUB_OFFLINE": "1",
                "KERAS_BACKEND": "torch",
                "KERAS_HOME": str(self.root / "keras"),
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "harness", EXAMPLES))),
                **extra,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.root / "work",
        )

    def run(self, program: str | Path, *, ranks: int = 1, **extra: str) -> tuple[int, str]:
        """Run a program to its end; return its exit status and what it printed, as `finish` does."""
        return self.finish(self.start(program, ranks=ranks, **extra))

    @staticmethod
    def finish(process: subprocess.Popen[str], timeout: float = 150) -> tuple[int, str]:
        """Wait for a program; return its exit status and what it printed, without metrics if it failed."""
        try:
            output, _ = process.communicate(timeout=timeout)
        finally:
            process.kill()
            process.wait()
        return process.returncode, output if process.returncode == 0 else why(output)

    def interrupt(self, program: str, at_step: int, **extra: Any) -> tuple[int, str]:
        """Have the master ask the program to stop once it has reported a step; return how it ended."""
        process = self.start(program, **{"STEP_SECONDS": "0.1", **extra})
        reached = until(lambda: max(self.metrics("training"), default=0) >= at_step or process.poll() is not None)
        self.api.preempt()
        status, output = self.finish(process)
        assert reached, output
        self.api.preempt(False)
        return status, output


def why(output: str) -> str:
    """Return the end of what a failed program printed, without the Trainer's metrics: reports of CI cut long texts."""
    lines = [line for line in output.splitlines() if not METRICS.match(line)]
    return "\n".join(lines)[-8_000:]


def until(condition: Callable[[], bool], seconds: float = 120) -> bool:
    """Wait for something; return whether it happened."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def make_framework_task(folder: Path, api: MasterDouble) -> FrameworkTask:
    """Make the task of a trial, whose checkpoints lie beside it."""
    storage = {"type": "shared_fs", "host_path": str(folder / "checkpoints")}
    return FrameworkTask(make_task_dir(folder / "task", api.url, storage=storage), api)
