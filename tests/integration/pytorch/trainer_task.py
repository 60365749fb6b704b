"""A task directory of a cluster in which programs train: one process, or ranks under torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_forked import Program

from detlab.testing.master import MasterDouble
from testbed.task_dirs import make_task_dir

HERE = Path(__file__).parent


@dataclass
class TrialTask:
    """The directory of a trial's task."""

    root: Path
    api: MasterDouble
    checkpoints: Path

    def metrics(self, group: str) -> list[dict[str, Any]]:
        """What was reported for a group, in order: steps and metrics."""
        records = [record for record in self.records() if record["kind"] == "metrics" and record["group"] == group]
        return [{"steps": record["steps_completed"], **record["metrics"]} for record in records]

    def records(self) -> list[dict[str, Any]]:
        path = self.root / "spool" / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def set_info(self, **changes: Any) -> None:
        path = self.root / "info.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    def set_config(self, **changes: Any) -> None:
        config = json.loads((self.root / "info.json").read_text())["config"]
        self.set_info(config={**config, **changes})

    def newest_checkpoint(self) -> str:
        return max(self.api.checkpoints.values(), key=lambda view: view["steps_completed"])["uuid"]

    def environment(self, slots: int, **extra: str) -> dict[str, str]:
        """Note how many slots the task has; return the environment of its programs."""
        self.set_info(slot_ids=list(range(slots)), container_slot_counts=[slots])
        base = {key: value for key, value in os.environ.items() if not key.startswith("DET_")}
        return {
            **base,
            "DET_TASK_DIR": str(self.root),
            "DET_SLOT_IDS": json.dumps(list(range(slots))),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(HERE),
            **extra,
        }

    def _command(self, code: str, ranks: int) -> list[str]:
        script = self.root / "work" / "train.py"
        script.write_text(textwrap.dedent(code))
        if ranks == 1:
            return [str(script)]
        return ["-m", "detlab.launch.torch_distributed", sys.executable, str(script)]

    def start(self, code: str, *, ranks: int = 1, **extra: str) -> Program:
        """Start a program in the task, under torchrun if it has several ranks; torch has been imported."""
        env, cwd = self.environment(ranks, **extra), self.root / "work"
        return Program(self._command(code, ranks), env, cwd, self.root / "output")

    def start_anew(self, code: str, *, ranks: int = 1, **extra: str) -> subprocess.Popen[str]:
        """Start a program as `start` does, in new interpreters."""
        return subprocess.Popen(
            [sys.executable, *self._command(code, ranks)],
            env=self.environment(ranks, **extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.root / "work",
        )

    def run(self, code: str, *, ranks: int = 1, timeout: float = 60, **extra: str) -> tuple[int, str]:
        """Run a program to its end; return its exit status and what it printed."""
        process = self.start(code, ranks=ranks, **extra)
        try:
            output, _ = process.communicate(timeout=timeout)
        finally:
            process.kill()
            process.wait()
        assert process.returncode is not None
        return process.returncode, output


def make_trial_task(folder: Path, api: MasterDouble) -> TrialTask:
    """Make the task of a trial in a folder, with its checkpoints beside it."""
    checkpoints = folder / "checkpoints"
    root = make_task_dir(folder / "task", api.url, storage={"type": "shared_fs", "host_path": str(checkpoints)})
    task = TrialTask(root, api, checkpoints)
    task.set_config(searcher={"name": "single", "metric": "val_loss", "smaller_is_better": True})
    return task
