"""Two processes over gloo against one: weights, losses, metrics, hooks, and what goes wrong on one rank only."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

import pytest
from trainer_one_weight import train
from trainer_task import make_trial_task

from detlab.pytorch import Batch, Epoch
from detlab.testing.master import MasterDouble

PROGRAM = """
import json, logging, os, shutil
from pathlib import Path
import torch
from trainer_one_weight import OneWeightTrial, Recorder
from detlab import pytorch
from detlab.pytorch import Batch, Epoch
from detlab.pytorch.checkpoint import manager

logging.basicConfig(level=logging.INFO)
torch.set_num_threads(1)
RANK = int(os.environ.get("RANK", "0"))
OPTIONS = json.loads(os.environ.get("OPTIONS", "{}"))
FIT = eval(os.environ["FIT"])

class Trial(OneWeightTrial):
    def evaluate_batch(self, batch, batch_idx):
        metrics = super().evaluate_batch(batch, batch_idx)
        return {**metrics, "rank": float(RANK)}

class FullTrial(OneWeightTrial):
    evaluate_batch = pytorch.PyTorchTrial.evaluate_batch
    def evaluate_full_dataset(self, data_loader):
        assert RANK == 0
        return {"val_loss": 0.5, "samples": sum(len(batch) for batch in data_loader)}

plainly = manager._read_trusted

def read_cut_off(path, trial):
    # The newest checkpoint, as if this rank's copy of a file had been cut off.
    if json.loads((path / "manifest.json").read_text())["metadata"]["steps_completed"] != 6:
        return plainly(path, trial)
    shutil.copytree(path, "copied")
    os.truncate("copied/model_0.safetensors", 30)
    return plainly(Path("copied"), trial)

def fail_to_read(path, trial):
    raise MemoryError("no room for it")

with pytorch.init(
    enable_tensorboard_logging=False, aggregation_frequency=OPTIONS.pop("aggregation", 1), hang_timeout=60
) as context:
    recorder = Recorder()
    trial = (FullTrial if "FULL" in os.environ else Trial)(context, callbacks={"recorder": recorder}, **OPTIONS)
    if os.environ.get("ODD_RANK") == str(RANK):
        manager._read_trusted = globals()[os.environ["ODD_READ"]]
    if "REDUCE" in os.environ:
        total = context.wrap_reducer(lambda values: {"ids": sorted(values), "count": len(values)})
        plain = trial.train_batch
        def counted(batch, epoch_idx, batch_idx):
            for index in context.current_sample_ids():
                total.update(index)
            return plain(batch, epoch_idx, batch_idx)
        trial.train_batch = counted
    if os.environ.get("FAIL_RANK") == str(RANK):
        def broken(batch, epoch_idx, batch_idx):
            raise RuntimeError("this rank cannot go on")
        trial.train_batch = broken
    if os.environ.get("STOP_RANK") == str(RANK):
        context.set_stop_requested(True)
    pytorch.Trainer(trial, context).fit(**FIT)
    Path(f"rank{RANK}.json").write_text(json.dumps({"log": trial.log, "calls": recorder.calls, "w": trial.weight}))
"""


def run_ranks(task: Any, fit: str, ranks: int = 2, **extra: str) -> list[dict[str, Any]]:
    status, output = task.run(PROGRAM, ranks=ranks, FIT=fit, **extra)
    assert status == 0, output
    return [json.loads((task.root / "work" / f"rank{rank}.json").read_text()) for rank in range(ranks)]


@pytest.mark.parametrize("aggregation", [1, 2])
def test_two_ranks_train_as_one_of_twice_the_batch(trial_task: Any, tmp_path: Any, aggregation: int) -> None:
    options = {"kind": "range", "momentum": 0.9, "count": 40}
    alone = train(str(tmp_path / "alone"), fit={"max_length": Epoch(2)}, aggregation=aggregation, **options)
    both = run_ranks(
        trial_task,
        "dict(max_length=Epoch(2), checkpoint_policy='none')",
        OPTIONS=json.dumps({**options, "batch_size": 2, "aggregation": aggregation}),
    )
    for rank in both:
        assert rank["w"] == pytest.approx(alone.weight, abs=1e-12)
    pairs = zip(both[0]["log"], both[1]["log"], alone.log, strict=True)
    for left, right, single in pairs:
        assert sorted([*left[2], *right[2]]) == sorted(single[2])
        assert (left[3] + right[3]) / 2 == pytest.approx(single[3], abs=1e-12)
        assert left[4] == pytest.approx(single[4], abs=1e-12)


def test_metrics_are_of_both_ranks(trial_task: Any) -> None:
    fit = "dict(max_length=Batch(6), reporting_period=Batch(3), checkpoint_policy='none')"
    ranks = run_ranks(trial_task, fit, OPTIONS=json.dumps({"kind": "range"}), REDUCE="1")
    losses = [[entry[3] for entry in rank["log"]] for rank in ranks]
    first = 0
    for entry in trial_task.metrics("training"):
        part = [loss for rank in losses for loss in rank[first : entry["steps"]]]
        assert entry["loss"] == pytest.approx(sum(part) / len(part), abs=1e-12)
        used = sorted(i for rank in ranks for item in rank["log"][first : entry["steps"]] for i in item[2])
        assert entry["ids"] == used
        assert entry["count"] == len(used)
        first = entry["steps"]
    validation = trial_task.metrics("validation")[-1]
    assert validation["rank"] == 0.5
    for rank in ranks:
        assert ["workload_end", 3, 3] in rank["calls"]
        assert ["validation_end", 6] in rank["calls"]
        assert rank["calls"].count(["upload_end"]) == 1
    assert [call for call in ranks[1]["calls"] if call[0] in {"save_start", "write_end"}] == []


def test_a_ragged_epoch_gives_all_ranks_the_same_number_of_steps(trial_task: Any) -> None:
    ranks = run_ranks(
        trial_task,
        "dict(max_length=Epoch(2), checkpoint_policy='none')",
        OPTIONS=json.dumps({"count": 21, "batch_size": 4, "shuffle": True}),
    )
    assert len(ranks[0]["log"]) == len(ranks[1]["log"]) == 6
    for epoch in (0, 1):
        used = [i for rank in ranks for entry in rank["log"] if entry[1] == epoch for i in entry[2]]
        assert sorted(used) == list(range(21))


def test_one_ranks_wish_to_stop_stops_all(trial_task: Any) -> None:
    ranks = run_ranks(trial_task, "dict(max_length=Batch(10**6))", STOP_RANK="1")
    assert len(ranks[0]["log"]) == len(ranks[1]["log"]) < 10


def test_a_rank_that_raises_is_named_and_the_others_end(trial_task: Any) -> None:
    status, output = trial_task.run(PROGRAM, ranks=2, FIT="dict(max_length=Batch(10))", FAIL_RANK="1")
    assert status != 0
    assert any(
        line.startswith("[rank=1]") and "RuntimeError: this rank cannot go on" in line for line in output.split("\n")
    )
    exits = (trial_task.root / "spool" / "ranks.jsonl").read_text().splitlines()
    assert json.loads(exits[0])["rank"] == 1


def test_the_whole_validation_data_is_the_chiefs(trial_task: Any) -> None:
    fit = "dict(max_length=Batch(4), validation_period=Batch(2))"
    ranks = run_ranks(trial_task, fit, FULL="1")
    assert [(entry["steps"], entry["samples"]) for entry in trial_task.metrics("validation")] == [(2, 8), (4, 8)]
    for rank in ranks:  # both get the metrics
        assert ["validation_end", 2] in rank["calls"]
        assert not [call for call in rank["calls"] if call[0].startswith("validation_epoch")]


def test_both_ranks_end_when_preempted_and_go_on_together(trial_task: Any) -> None:
    fit = "dict(max_length=Batch(10**7), reporting_period=Batch(50), checkpoint_policy='none')"
    process = trial_task.start(PROGRAM, ranks=2, FIT=fit)
    try:
        give_up = time.monotonic() + 60
        while not trial_task.metrics("training") and time.monotonic() < give_up:
            time.sleep(0.05)
        trial_task.api.preempt()
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, output
    assert trial_task.api.acks == 1
    both = [json.loads((trial_task.root / "work" / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    steps = len(both[0]["log"])
    assert len(both[1]["log"]) == steps
    view = trial_task.api.checkpoints[trial_task.newest_checkpoint()]
    assert view["steps_completed"] == steps
    trial_task.api.preempt(on=False)
    trial_task.set_info(latest_checkpoint=view["uuid"], run=2)
    again = run_ranks(trial_task, f"dict(max_length=Batch({steps + 3}), checkpoint_policy='none')")
    for rank in again:
        assert [entry[0] for entry in rank["log"]] == [steps, steps + 1, steps + 2]
        assert rank["calls"][0] == ["trial_startup", steps, True]


# --- a checkpoint with altered files

SAVING = "dict(max_length=Batch({}), checkpoint_period=Batch(2), checkpoint_policy='none')"


def saved_at_six(task: Any) -> str:
    """Train both ranks to batch 6 with checkpoints at 2, 4 and 6, and have them resume; return the newest one."""
    run_ranks(task, SAVING.format(6), OPTIONS=RANDOM)
    newest = str(task.newest_checkpoint())
    task.set_info(latest_checkpoint=newest, run=2)
    return newest


def check_both_go_on_from_four(task: Any, output: str, newest: str, calm: list[dict[str, Any]]) -> None:
    (previous,) = [uuid for uuid, view in task.api.checkpoints.items() if view["steps_completed"] == 4]
    for rank in (0, 1):
        assert f"[rank={rank}] WARNING:detlab.pytorch:checkpoint {newest} cannot be used (rank " in output
        assert f"[rank={rank}] INFO:detlab.pytorch:resumed from checkpoint {previous} at batch 4" in output
        again = json.loads((task.root / "work" / f"rank{rank}.json").read_text())
        assert again["log"] == calm[rank]["log"][4:]  # bit by bit: ids, losses, weights
        assert again["w"] == calm[rank]["w"]


RANDOM = json.dumps({"kind": "range", "shuffle": True, "momentum": 0.9, "noise": 0.3})


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both ranks do in 8 batches when nothing happens."""
    with MasterDouble() as api:
        task = make_trial_task(tmp_path_factory.mktemp("calm"), api)
        return run_ranks(task, SAVING.format(8), OPTIONS=RANDOM)


def test_a_corrupted_shard_is_named_with_its_digests_and_both_ranks_use_the_checkpoint_before(
    trial_task: Any, calm: list[dict[str, Any]]
) -> None:
    newest = saved_at_six(trial_task)
    shard = trial_task.checkpoints / newest / "trainer.safetensors"
    stored = trial_task.api.checkpoints[newest]["files"]["trainer.safetensors"]["digest"]
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.chmod(0o644)
    shard.write_bytes(content)
    status, output = trial_task.run(PROGRAM, ranks=2, FIT=SAVING.format(8), OPTIONS=RANDOM)
    assert status == 0, output
    found = f"sha256:{hashlib.sha256(content).hexdigest()}"
    said = f"trainer.safetensors of checkpoint {newest} is altered: its digest is {found}, stored was {stored}"
    assert output.count(said) == 2, output
    check_both_go_on_from_four(trial_task, output, newest, calm)


@pytest.mark.parametrize("who", [0, 1])
def test_a_corruption_that_one_rank_alone_sees_makes_both_use_the_checkpoint_before(
    trial_task: Any, calm: list[dict[str, Any]], who: int
) -> None:
    newest = saved_at_six(trial_task)
    odd = {"ODD_RANK": str(who), "ODD_READ": "read_cut_off"}
    status, output = trial_task.run(PROGRAM, ranks=2, FIT=SAVING.format(8), OPTIONS=RANDOM, **odd)
    assert status == 0, output
    assert output.count(f"cannot be used (rank {who}: ") == 2, output
    assert "model_0.safetensors" in output
    check_both_go_on_from_four(trial_task, output, newest, calm)


def test_a_rank_that_fails_while_it_reads_a_checkpoint_is_named_and_nobody_waits(trial_task: Any) -> None:
    saved_at_six(trial_task)
    odd = {"ODD_RANK": "1", "ODD_READ": "fail_to_read"}
    status, output = trial_task.run(PROGRAM, ranks=2, FIT=SAVING.format(8), OPTIONS=RANDOM, timeout=30, **odd)
    assert status != 0, output
    assert "MemoryError: no room for it" in output
    assert "cannot be used" not in output


def test_local_ranks_need_no_cluster(tmp_path: Any) -> None:
    import os
    import subprocess
    import sys
    from pathlib import Path

    (tmp_path / "train.py").write_text(PROGRAM)
    env = {
        **{key: value for key, value in os.environ.items() if not key.startswith("DET_")},
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "FIT": "dict(max_length=Batch(6))",
        "OMP_NUM_THREADS": "1",
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }
    command = [sys.executable, "-m", "detlab.launch.torch_distributed", "--nproc_per_node=2", "--", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    both = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    assert both[0]["w"] == both[1]["w"]
    assert not set(both[0]["log"][0][2]) & set(both[1]["log"][0][2])
    assert Batch(6).value == len(both[0]["log"])
