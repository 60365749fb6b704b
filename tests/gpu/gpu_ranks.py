"""The ranks of a trial: NCCL with one, and what two processes on shares of one device get."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_devices import devices, start, task_environment
from gpu_report import Run

from detlab.launch.torch_distributed import rank_environment, slot_count, torchrun_command
from detlab.schemas.shares import divide
from detlab_hub.services.failures.diagnosis import Evidence, RankLine, classify

HERE = Path(__file__).resolve().parent
RESULT = "RANK-RESULT "
REFUSED = "is to train on GPU 1, and torch sees 1 GPU(s)"
"""What detlab says to a second rank on one device."""


def launch(run: Run, name: str, environment: Mapping[str, str], *overrides: str) -> Any:
    """Start the ranks' program as `python3 -m detlab.launch.torch_distributed` does."""
    command = torchrun_command(list(overrides), [sys.executable, str(HERE / "gpu_rank_task.py")], environment)
    return start(command, rank_environment(environment), run.folder / name)


def finish(task: Any, seconds: float) -> tuple[int, str]:
    """Wait for a task; return its status and output."""
    try:
        output, _ = task.communicate(timeout=seconds)
    finally:
        task.kill()
        task.wait()
    return task.returncode, output


def results(output: str) -> list[dict[str, Any]]:
    """Return what the ranks have said, in order of rank."""
    found = [json.loads(line.partition(RESULT)[2]) for line in output.splitlines() if RESULT in line]
    return sorted(found, key=lambda result: result["rank"])


def _line(text: str) -> RankLine:
    """Return a line as the launcher's reader gives it: without the prefix that says whose it is."""
    prefix = re.match(r"\[rank=(\d+)\] ?", text)
    return RankLine(None, text) if prefix is None else RankLine(int(prefix[1]), text[prefix.end() :])


def ranks_one(run: Run) -> None:
    """One rank under the launcher, on a whole device: process group, a sum over it, and training with it."""
    environment = task_environment(devices(run)[:1])
    assert slot_count(environment) == 1
    status, output = finish(launch(run, "one", environment), 70)
    assert status == 0, output
    (rank,) = results(output)
    assert rank["size"] == 1
    assert rank["backends"] == ("cpu:gloo" if run.cpu else "cpu:gloo,cuda:nccl"), rank
    assert rank["device"].startswith(run.device), rank
    run.figure("one rank", rank["backends"], rank["nccl"])
    run.figure("loss, first and last", f"{rank['losses'][0]:.3f}, {rank['losses'][-1]:.3f}")


def ranks_on_shares(run: Run) -> None:
    """Two tasks on two shares of one device train at once, each with a group of its own.

    A trial with two shares of one device is one rank. Two ranks that are started on it all the same are refused before
    NCCL is used, which takes no two ranks on a device.
    """
    halves = divide(devices(run)[:1], 2)
    tasks = [launch(run, f"half{number}", task_environment([half])) for number, half in enumerate(halves)]
    ended = [finish(task, 90) for task in tasks]
    for status, output in ended:
        assert status == 0, output
        (rank,) = results(output)
        assert rank["share"] == 0.5, rank
    run.figure("two tasks on halves of one device", "both train", "one rank each, at the same time")

    both = task_environment(halves)
    assert slot_count(both) == 1, "two shares of one device are one rank"
    run.figure("two shares of one device in one trial", "one rank", "")
    status, output = finish(launch(run, "forced", both, "--nproc_per_node=2"), 60)
    if run.cpu:  # gloo takes as many ranks as there are
        assert status == 0, output
        assert [rank["sum"] for rank in results(output)] == [3.0, 3.0], output
        run.figure("two ranks started on one device", "both train", "over gloo, on a CPU")
        return
    assert status != 0, output
    assert REFUSED in output, output
    found = classify([_line(text) for text in output.splitlines()], Evidence(status))
    run.figure("two ranks started on one device", "refused by detlab", f"card: {found.kind}: {found.message}")
