"""Two real ranks under the launcher, of which one dies, hangs or is stopped: it is named, and everything ends."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from trainer_forked import Program

from detlab.launch.host import procfs
from detlab.launch.ranks.watchdog import HUNG
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
    elif HOW == "spin":
        while True:
            pass
    elif HOW == "block":  # holds the interpreter, as a native extension may: no thread of this process runs
        while True:  # a signal ends the sleep
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


Said = tuple[int | None, str]
"""A line of the task's output: the rank that wrote it, None for the launcher, and its text."""


def under_launcher(task: Any, code: str, **faults: str) -> tuple[int, list[Said]]:
    """Run two ranks under the real launcher to their end; return the exit code and the output."""
    (task.root / "work" / "train.py").write_text(code)
    env = task.environment(2)
    (task.root / "home").mkdir(exist_ok=True)
    allocation = task.api.allocate(
        [sys.executable, "-m", "detlab.launch.torch_distributed", sys.executable, "train.py"],
        slots=("cpu0", "cpu1"),
        environment={**faults, "OMP_NUM_THREADS": "1", "PYTHONPATH": env["PYTHONPATH"]},
    )
    launch = allocation.launch.model_dump(mode="json", exclude={"task_token"})
    (task.root / "launch.json").write_text(json.dumps(launch))
    (task.root / "token").write_text(allocation.token)
    command = ["-m", "detlab.launch.task", "--dir", str(task.root)]
    launcher = Program(command, env, task.root / "work", task.root / "output")
    try:
        said = launcher.communicate(timeout=60)
    finally:
        launcher.kill()
    lines = [(line.get("rank"), line["text"]) for line in allocation.records["logs"]]
    assert (task.root / "exit.json").exists(), said
    return json.loads((task.root / "exit.json").read_text())["exit_code"], lines


def run(task: Any, how: str, who: int, **extra: str) -> tuple[int, list[Said], list[Said]]:
    """Run two ranks to their end; return the exit code, the output, and the watchdog's lines."""
    faults = {"HOW": how, "WHO": str(who), "LIMIT": str(LIMIT), **extra}
    status, output = under_launcher(task, PROGRAM, **faults)
    took = time.time() - float((task.root / "work" / "began").read_text())
    assert took < LIMIT + 20, "torchrun's own grace of 30 s was waited out"
    assert status != 0, output
    assert (who, f"rank {who} begins to {how}") in output
    assert not any("is done" in text for _, text in output)
    for rank in (0, 1):
        pid = int((task.root / "work" / f"pid{rank}").read_text())
        assert not procfs.is_alive(pid, None), f"rank {rank} is left behind"
    return status, output, [line for line in output if " hangs: " in line[1]]


def failing_rank(task: Any) -> int | None:
    return first_failing_rank(TaskDir(task.root).ranks)


def test_a_rank_that_hangs_in_train_batch_is_named(trial_task: Any) -> None:
    who = 1
    status, output, lines = run(trial_task, "hang", who)
    pid = (trial_task.root / "work" / f"pid{who}").read_text()
    ((speaker, line),) = lines
    assert (status, speaker) == (HUNG, None), output
    assert line.startswith(f"detlab: rank {who} (host ")
    assert f"pid {pid}) hangs: for " in line
    assert "at batch 30 (train.py, line " in line
    assert "in misbehave), while the others wait for it. This attempt ends now" in line
    assert "raise the limit of 3 s: pytorch.init(hang_timeout=…)" in line
    assert any(rank == who and text.startswith("  File") for rank, text in output), "its stacks"
    assert failing_rank(trial_task) == who


@pytest.mark.soak
def test_a_rank_in_an_endless_loop_hangs_although_it_computes(trial_task: Any) -> None:
    status, _output, ((_, line),) = run(trial_task, "spin", 1)
    assert status == HUNG
    assert "detlab: rank 1 (host " in line
    assert "in misbehave)" in line


def test_a_rank_that_hangs_in_a_validation_is_told_from_those_that_wait_for_it(trial_task: Any) -> None:
    status, _output, ((_, line),) = run(trial_task, "hang", 0, IN_VALIDATION="1")
    assert status == HUNG
    assert "detlab: rank 0 (host " in line
    assert "in a validation, after batch " in line
    assert failing_rank(trial_task) == 0


@pytest.mark.parametrize(
    ("how", "who"),
    [("SIGSTOP", 1), *(pytest.param(*one, marks=pytest.mark.soak) for one in (("SIGSTOP", 0), ("block", 0)))],
)
def test_a_process_that_says_nothing_is_named_and_does_not_stay_behind(trial_task: Any, how: str, who: int) -> None:
    status, output, ((speaker, line),) = run(trial_task, how, who)
    assert (status, speaker) == (HUNG, None), output
    assert line.startswith(f"detlab: rank {who} (host ")
    assert "its process has been stopped or blocked" in line
    assert failing_rank(trial_task) == who


def test_a_rank_that_is_killed_is_named_and_the_other_ends_at_once(trial_task: Any) -> None:
    status, _output, lines = run(trial_task, "SIGKILL", 1)
    assert lines == []
    assert status != HUNG
    assert failing_rank(trial_task) == 1


def test_a_rank_that_raises_is_named_although_the_other_fails_too(trial_task: Any) -> None:
    _status, output, lines = run(trial_task, "raise", 1)
    assert lines == []
    assert (1, "[rank1]: RuntimeError: this rank cannot go on") in output
    assert failing_rank(trial_task) == 1


def test_slow_work_below_the_limit_is_no_hang_and_nothing_is_left_in_the_output(trial_task: Any) -> None:
    code = PROGRAM.replace("misbehave()\n        return", "time.sleep(1.0)\n        return")
    status, output = under_launcher(trial_task, code, HOW="sleep", WHO="1", LIMIT="20")
    assert status == 0, output
    assert sorted(output) == [(0, "rank 0 is done"), (1, "rank 1 is done")]


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
