"""Two real ranks under torchrun, of which one dies, hangs or is stopped: it is named, and everything ends."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from trainer_forked import Program

from detlab.launch.taskdir import TaskDir, first_failing_rank

LIMIT = 3.0

PROGRAM = """
import ctypes, os, signal, time
from pathlib import Path
import torch
from trainer_one_weight import OneWeightTrial
from detlab import pytorch
from detlab.pytorch import Batch

torch.set_num_threads(1)
RANK = int(os.environ["RANK"])
Path(f"pid{RANK}").write_text(str(os.getpid()))
HOW, WHO = os.environ["HOW"], int(os.environ["WHO"])

def misbehave():
    print("rank", RANK, "begins to", HOW, flush=True)
    Path("began").write_text(str(time.time()))
    if HOW == "hang":
        time.sleep(1000)
    elif HOW == "block":  # holds the interpreter, as a native extension may: no thread of this process runs
        ctypes.PyDLL(None).sleep(1000)
    elif HOW == "raise":
        raise RuntimeError("this rank cannot go on")
    else:
        os.kill(os.getpid(), getattr(signal, HOW))

class Trial(OneWeightTrial):
    def train_batch(self, batch, epoch_idx, batch_idx):
        metrics = super().train_batch(batch, epoch_idx, batch_idx)
        if RANK == WHO and batch_idx == 30 and not os.environ.get("IN_VALIDATION"):
            misbehave()
        return metrics

    def evaluate_batch(self, batch, batch_idx):
        if RANK == WHO and os.environ.get("IN_VALIDATION"):
            misbehave()
        return super().evaluate_batch(batch, batch_idx)

with pytorch.init(enable_tensorboard_logging=False, hang_timeout=float(os.environ["LIMIT"])) as context:
    trial = Trial(context)
    pytorch.Trainer(trial, context).fit(
        max_length=Batch(60), validation_period=Batch(10), checkpoint_policy="none", reporting_period=Batch(10)
    )
print("rank", RANK, "is done")
"""


def run(task: Any, how: str, who: int, **extra: str) -> tuple[str, list[str]]:
    """Run two ranks to their end; return the output, and the watchdog's lines."""
    faults = {"HOW": how, "WHO": str(who), "LIMIT": str(LIMIT), **extra}
    status, output = task.run(PROGRAM, ranks=2, timeout=60, **faults)
    took = time.time() - float((task.root / "work" / "began").read_text())
    assert took < LIMIT + 15, "torchrun's own grace of 30 s was waited out"
    assert status != 0, output
    assert f"rank {who} begins to {how}" in output
    assert "is done" not in output
    for rank in (0, 1):
        pid = int((task.root / "work" / f"pid{rank}").read_text())
        assert not Path(f"/proc/{pid}").exists(), f"rank {rank} is left behind"
    return output, [line for line in output.splitlines() if " hangs: " in line]


def failing_rank(task: Any) -> int | None:
    return first_failing_rank(TaskDir(task.root).ranks)


def test_a_rank_that_hangs_in_train_batch_is_named_by_all(trial_task: Any) -> None:
    who = 1
    output, lines = run(trial_task, "hang", who)
    pid = (trial_task.root / "work" / f"pid{who}").read_text()
    assert [line[:8] for line in sorted(lines)] == ["[rank=0]", "[rank=1]"], output
    for line in lines:
        assert f"detlab: rank {who} (host " in line
        assert f"pid {pid}) hangs: for " in line
        assert "at batch 30 (train.py, line " in line
        assert "in misbehave" in line
    assert f"[rank={who}]   File" in output, "its stacks"
    assert failing_rank(trial_task) == who


def test_a_rank_that_hangs_in_a_validation_is_told_from_those_that_wait_for_it(trial_task: Any) -> None:
    output, lines = run(trial_task, "hang", 0, IN_VALIDATION="1")
    assert lines, output
    for line in lines:
        assert "detlab: rank 0 (host " in line
        assert "in a validation, after batch " in line
    assert failing_rank(trial_task) == 0


@pytest.mark.parametrize(("how", "who"), [("SIGSTOP", 0), ("SIGSTOP", 1), ("block", 0)])
def test_a_process_that_says_nothing_is_named_and_does_not_stay_behind(trial_task: Any, how: str, who: int) -> None:
    output, lines = run(trial_task, how, who)
    (line,) = lines
    assert line.startswith(f"[rank={1 - who}] detlab: rank {who} (host "), output
    assert "its process has been stopped or blocked" in line
    assert failing_rank(trial_task) == who


def test_a_rank_that_is_killed_is_named_and_the_other_ends_at_once(trial_task: Any) -> None:
    _output, lines = run(trial_task, "SIGKILL", 1)
    assert lines == []
    assert failing_rank(trial_task) == 1


def test_a_rank_that_raises_is_named_although_the_other_fails_too(trial_task: Any) -> None:
    output, lines = run(trial_task, "raise", 1)
    assert lines == []
    assert "[rank=1] [rank1]: RuntimeError: this rank cannot go on" in output
    assert failing_rank(trial_task) == 1


def test_slow_work_below_the_limit_is_no_hang_and_nothing_is_left_in_the_output(trial_task: Any) -> None:
    code = PROGRAM.replace("misbehave()\n        return", "time.sleep(1.0)\n        return")
    status, output = trial_task.run(code, ranks=2, HOW="sleep", WHO="1", LIMIT="20")
    assert status == 0, output
    assert sorted(output.splitlines()) == ["[rank=0] rank 0 is done", "[rank=1] rank 1 is done"]


def launch(task: Any, slots: int, *arguments: str, **extra: str) -> tuple[int | None, str, str]:
    """Run `detlab.launch.torch_distributed` in the task, as its entrypoint would; return status, stdout and stderr."""
    command = ["-m", "detlab.launch.torch_distributed", *arguments]
    program = Program(command, task.environment(slots, **extra), task.root / "work", task.root / "output", apart=True)
    try:
        stdout, stderr = program.communicate(timeout=60)
    finally:
        program.kill()
    return program.returncode, stdout, stderr


def test_a_wrong_world_size_is_one_clear_error(trial_task: Any) -> None:
    (trial_task.root / "work" / "train.py").write_text(PROGRAM)
    status, _, said = launch(trial_task, 3, "--nproc_per_node=2", "--", "train.py", HOW="", WHO="9", LIMIT="60")
    assert status != 0
    assert "wrong world size" in said
    assert "this task has 3 slot(s)" in said
    assert "the launcher started 2 process(es) (WORLD_SIZE)" in said


CLASS = """
from trainer_one_weight import OneWeightTrial

class Mine(OneWeightTrial):
    def __init__(self, context):
        super().__init__(context)
        average = context._facts[self.optimizer].average
        print("rank", context.distributed.rank, "aggregates", context._aggregation_frequency, "averages", average)
"""


def test_a_trial_class_is_trained_by_the_config_on_every_rank(trial_task: Any) -> None:
    (trial_task.root / "work" / "model_def.py").write_text(CLASS)
    trial_task.set_config(
        searcher={"name": "single", "metric": "val_loss", "smaller_is_better": True, "max_length": {"batches": 6}},
        min_validation_period={"batches": 3},
        scheduling_unit=2,
        perform_initial_validation=True,
        checkpoint_policy="none",
        optimizations={"aggregation_frequency": 2, "average_aggregated_gradients": False},
    )
    status, stdout, stderr = launch(trial_task, 2, "--trial", "model_def:Mine")
    assert status == 0, stderr
    for rank in (0, 1):
        assert f"[rank={rank}] rank {rank} aggregates 2 averages False" in stdout
    assert [entry["steps"] for entry in trial_task.metrics("training")] == [2, 3, 4, 6]
    assert [entry["steps"] for entry in trial_task.metrics("validation")] == [0, 3, 6]
    assert [view["steps_completed"] for view in trial_task.api.checkpoints.values()] == [6]


def test_a_trial_class_that_is_not_there_ends_with_an_error(trial_task: Any) -> None:
    status, _, said = launch(trial_task, 1, "--trial", "model_def:Mine")
    assert status != 0
    assert "Error: model_def:Mine: there is no module 'model_def'" in said


def test_a_stop_of_the_launcher_ends_all_ranks(trial_task: Any) -> None:
    process = trial_task.start_anew(PROGRAM, ranks=2, HOW="hang", WHO="1", LIMIT="60")
    try:
        for line in process.stdout:
            if "begins to hang" in line:
                break
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode != 0, rest
    for rank in (0, 1):
        pid = int((trial_task.root / "work" / f"pid{rank}").read_text())
        assert not Path(f"/proc/{pid}").exists(), "SIGTERM was not passed on"
