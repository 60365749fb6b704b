"""The card of a task that runs out of memory, from the output that torch really writes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from gpu_devices import devices, start, task_environment
from gpu_report import Run

from detlab.schemas.expconf.blocks.extras import DEFAULT_LOG_POLICIES
from detlab.schemas.shares import divide
from detlab_hub.services.failures.diagnosis import Diagnosis, Evidence, RankLine, classify

HERE = Path(__file__).resolve().parent


def _card(run: Run, name: str, environment: dict[str, str]) -> tuple[Diagnosis, list[str]]:
    folder = run.folder / name
    task = start([sys.executable, HERE / "gpu_oom_task.py"], environment, folder)
    output, _ = task.communicate(timeout=50)
    assert task.returncode == 1, output
    lines = output.splitlines()
    return classify([RankLine(0, line) for line in lines], Evidence(task.returncode, 0)), lines


def oom(run: Run) -> None:
    """Out of memory on a whole device, and on a share of it: kind, message, and the built-in log policy."""
    whole = devices(run)[:1]
    tried = {"a quarter of a device": divide(whole, 4)[:1], **({} if run.quick else {"a whole device": whole})}
    for name, had in tried.items():
        card, lines = _card(run, name.replace(" ", "-"), task_environment(had))
        assert card.kind == "oom", (card, lines)
        run.figure(f"card, {name}", card.kind, card.message[:160])
        if not run.cpu:
            assert "OutOfMemoryError" in card.message, card
            pattern = dict(DEFAULT_LOG_POLICIES)["CUDA OOM"]
            assert any(re.search(pattern, line) for line in lines), lines
