"""Batch inference on one rank and two: sharded, killed anywhere, resumed at the batch; output as of a calm run."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer_task import TrialTask

from detlab import core, info
from detlab.pytorch import MetricReducer, TrainerError
from detlab.pytorch.experimental import TorchBatchProcessor, torch_batch_process

SAMPLES, BATCH = 83, 4

PROGRAM = """
import json, logging, os, signal, time
from pathlib import Path
import torch
from detlab.pytorch import MetricReducer
from detlab.pytorch.experimental import TorchBatchProcessor, torch_batch_process

logging.basicConfig(level=logging.INFO)
torch.set_num_threads(1)
RANK, KILL_RANK = int(os.environ.get("RANK", "0")), int(os.environ.get("KILL_RANK", "0"))
KILL_AT = int(os.environ.get("KILL_AT", "-1"))

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return int(os.environ.get("SAMPLES", "83"))
    def __getitem__(self, index):
        return torch.tensor(index), torch.sin(torch.arange(4.0) * (index + 1))

class Most(MetricReducer):
    def __init__(self):
        self.reset()
    def reset(self):
        self.most = float("-inf")
    def update(self, value):
        self.most = max(self.most, value)
    def per_slot_reduce(self):
        return self.most
    def cross_slot_reduce(self, per_slot_metrics):
        return max(per_slot_metrics)

class Processor(TorchBatchProcessor):
    def __init__(self, context):
        torch.manual_seed(1)
        self.context = context
        self.model = context.prepare_model_for_inference(torch.nn.Linear(4, 1))
        self.mean = context.wrap_reducer(lambda values: sum(map(float, values)) / len(values), name="mean")
        self.most = context.wrap_reducer(Most(), name="most")
        self.held = []
    def process_batch(self, batch, batch_idx):
        if batch_idx == KILL_AT and RANK == KILL_RANK:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(float(os.environ.get("SECONDS", "0")))
        ids, x = self.context.to_device(batch)
        assert ids.tolist() == list(self.context.current_sample_ids())
        with torch.no_grad():
            y = self.model(x)[:, 0]
        self.held.append([batch_idx, ids.tolist(), [value.hex() for value in y.tolist()]])
        for value in y.tolist():
            self.mean.update(value)
            self.most.update(value)
        with Path(f"seen{RANK}.log").open("a") as log:
            log.write(json.dumps(ids.tolist()) + "\\n")
    def on_checkpoint_start(self):
        with self.context.upload_path() as folder:
            for batch_idx, *found in self.held:
                (folder / f"{batch_idx:04}.json").write_text(json.dumps(found))
            with (folder / "all.jsonl").open("a") as whole:
                whole.writelines(json.dumps(found) + "\\n" for found in self.held)
        self.held = []
    def on_finish(self):
        assert self.held == []
        with self.context.upload_path() as folder:
            (folder / "finished").write_text(str(self.context.distributed.rank))

torch_batch_process(
    Processor, Data(), batch_size=int(os.environ.get("BATCH", "4")), checkpoint_interval=3,
    dataloader_kwargs={"num_workers": int(os.environ.get("WORKERS", "0"))},
)
"""


def output(task: TrialTask) -> dict[str, bytes]:
    """The files of the last checkpoint."""
    uuid = task.newest_checkpoint()
    assert task.api.checkpoints[uuid]["metadata"]["batch_process"]["finished"]
    folder = task.checkpoints / uuid
    assert folder.is_dir()
    ours = {"metadata.json", "manifest.json"}
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name not in ours}


def processed(files: dict[str, bytes]) -> list[int]:
    """The samples in the files, one file for each batch."""
    batches = [json.loads(content) for name, content in files.items() if name.count("/") and name.endswith(".json")]
    return sorted(sample for ids, _ in batches for sample in ids)


def of_whole_files(files: dict[str, bytes]) -> list[int]:
    lines = [line for name, content in files.items() if name.endswith("all.jsonl") for line in content.splitlines()]
    return sorted(sample for line in lines for sample in json.loads(line)[1])


def metrics(task: TrialTask) -> dict[str, Any]:
    return task.metrics("validation")[-1]


def resume(task: TrialTask, run: int, **extra: str) -> tuple[int, str, int]:
    latest = task.newest_checkpoint() if task.api.checkpoints else None
    task.set_info(latest_checkpoint=latest, run=run)
    done = task.api.checkpoints[latest]["metadata"]["batch_process"]["done"] if latest else 0
    ranks = int(extra.pop("ranks", "1"))
    return *task.run(PROGRAM, ranks=ranks, **extra), done


@pytest.fixture
def calm(tmp_path: Path, task_api: Any) -> Any:
    """Runs it undisturbed in a task of its own; returns its files and metrics."""
    from trainer_task import make_trial_task

    def run(ranks: int) -> tuple[dict[str, bytes], dict[str, Any]]:
        (tmp_path / "calm").mkdir()
        task = make_trial_task(tmp_path / "calm", task_api)
        status, said = task.run(PROGRAM, ranks=ranks)
        assert status == 0, said
        assert processed(output(task)) == list(range(SAMPLES))
        found = output(task), metrics(task)
        assert list(task.api.checkpoints) == [task.newest_checkpoint()], "parts whose content another one has are gone"
        task.api.checkpoints.clear()
        return found

    return run


@pytest.mark.soak
@pytest.mark.parametrize(("ranks", "seed", "extra"), [(1, 1, {}), (2, 2, {}), (2, 3, {"WORKERS": "1"})])
def test_killed_and_resumed_gives_the_output_and_the_metrics_of_a_calm_run(
    trial_task: TrialTask, calm: Any, ranks: int, seed: int, extra: dict[str, str]
) -> None:
    wanted, wanted_metrics = calm(ranks)
    each = -(-SAMPLES // BATCH) // ranks
    kills = sorted(random.Random(seed).sample(range(3, each), 2))
    resumed_at = []
    for run, kill_at in enumerate([*kills, -1], start=1):
        faults = {"KILL_AT": str(kill_at), "KILL_RANK": str(run % ranks)}
        status, said, done = resume(trial_task, run, ranks=str(ranks), **faults, **extra)
        assert (status == 0) == (kill_at < 0), said
        resumed_at.append(done)
    assert resumed_at[-1] > 0, f"kills at {kills} left nothing to resume"
    found = output(trial_task)
    assert found == wanted
    assert processed(found) == of_whole_files(found) == list(range(SAMPLES))
    assert metrics(trial_task) == wanted_metrics
    assert set(trial_task.api.checkpoints) == {trial_task.newest_checkpoint()}


@pytest.mark.soak
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_another_number_of_ranks_goes_on_where_the_others_were(
    trial_task: TrialTask, calm: Any, before: int, after: int
) -> None:
    _, wanted = calm(after)
    assert trial_task.run(PROGRAM, ranks=before, KILL_AT="8")[0] != 0
    status, said, done = resume(trial_task, 2, ranks=str(after))
    assert status == 0, said
    assert done == 6 * before
    found = output(trial_task)
    assert processed(found) == of_whole_files(found) == list(range(SAMPLES))
    assert metrics(trial_task)["most"] == wanted["most"]
    assert metrics(trial_task)["mean"] == pytest.approx(wanted["mean"])
    named = json.loads(found["outputs.json"])
    assert (named["complete"], named["samples"]) == (True, SAMPLES)
    assert [one["rank"] for one in named["ranks"]] == [0, 1]
    listed = {name: size for one in named["ranks"] for name, size in one["files"].items()}
    assert listed == {name: len(content) for name, content in found.items() if name != "outputs.json"}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_asked_to_stop_it_stores_what_is_done_at_once_and_goes_on_there(trial_task: TrialTask, ranks: int) -> None:
    process = trial_task.start(PROGRAM, ranks=ranks, SECONDS="0.3")
    trial_task.api.wait_for_call("POST task/checkpoints", 1)
    trial_task.api.preempt()
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert trial_task.api.acks == 1
    trial_task.api.preempt(False)
    seen = sum(len((trial_task.root / "work" / f"seen{rank}.log").read_text().splitlines()) for rank in range(ranks))
    status, said, done = resume(trial_task, 2, ranks=str(ranks))
    assert status == 0, said
    assert done == seen, "no batch is processed twice"
    assert processed(output(trial_task)) == list(range(SAMPLES))


@pytest.mark.slow
def test_what_differs_from_the_attempt_before_is_said_and_what_is_done_is_not_done_again(trial_task: TrialTask) -> None:
    assert trial_task.run(PROGRAM, KILL_AT="8")[0] != 0
    status, said, _ = resume(trial_task, 2, SAMPLES="90", BATCH="5")
    assert status != 0
    assert "samples in the dataset: 90 now, 83 before" in said
    assert "batch_size: 5 now, 4 before" in said
    status, said, _ = resume(trial_task, 3)
    assert status == 0, said
    before = output(trial_task)
    seen = (trial_task.root / "work" / "seen0.log").read_text()
    status, said, _ = resume(trial_task, 4)
    assert status == 0, said
    assert "nothing is left to process" in said
    assert (trial_task.root / "work" / "seen0.log").read_text() == seen
    assert output(trial_task) == before


def test_the_model_that_the_experiment_starts_from_is_known_to_later_attempts(
    in_trial: TrialTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with core.init() as context:
        folder = in_trial.root / "work" / "model"
        folder.mkdir()
        (folder / "weights").write_text("7")
        model = context.checkpoint.upload(folder, {"steps_completed": 9})
    in_trial.set_info(latest_checkpoint=model)
    info._load.cache_clear()
    sources = []

    class Reads(TorchBatchProcessor):
        def __init__(self, context: Any) -> None:
            sources.append(context.source_checkpoint)
            with context.source_checkpoint_path() as path:
                assert (path / "weights").read_text() == "7"

        def process_batch(self, batch: Any, batch_idx: int) -> None:
            if batch_idx == 4 and len(sources) == 1:
                raise RuntimeError("dies")

    with pytest.raises(RuntimeError, match="dies"):
        torch_batch_process(Reads, list(range(8)), checkpoint_interval=2)
    latest = max(
        set(in_trial.api.checkpoints) - {model}, key=lambda uuid: in_trial.api.checkpoints[uuid]["steps_completed"]
    )
    in_trial.set_info(latest_checkpoint=latest, run=2)
    info._load.cache_clear()
    torch_batch_process(Reads, list(range(8)), checkpoint_interval=2)
    assert sources == [model, model]
    assert model in in_trial.api.checkpoints


def test_progress_of_another_trial_is_not_taken_for_its_own(in_trial: TrialTask) -> None:
    seen: list[int] = []

    class Sees(TorchBatchProcessor):
        def __init__(self, context: Any) -> None:
            pass

        def process_batch(self, batch: Any, batch_idx: int) -> None:
            seen.extend(batch.tolist())

    torch_batch_process(Sees, list(range(6)))
    in_trial.set_info(latest_checkpoint=in_trial.newest_checkpoint(), trial_id=8)
    info._load.cache_clear()
    torch_batch_process(Sees, list(range(6)))
    assert seen == [*range(6), *range(6)]


class Nothing(TorchBatchProcessor):
    """Processes nothing."""

    def __init__(self, context: Any) -> None:
        self.context = context

    def process_batch(self, batch: Any, batch_idx: int) -> None:
        pass


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self) -> Any:
        return iter([])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"batch_processor_cls": MetricReducer}, ["derived from TorchBatchProcessor"]),
        ({"dataset": Stream()}, ["__len__() and __getitem__()", "Stream"]),
        ({"batch_size": 0, "max_batches": -1}, ["batch_size must be", "max_batches must be"]),
        ({"checkpoint_interval": True}, ["checkpoint_interval must be a positive integer, not True"]),
        ({"batch_size": 2, "dataloader_kwargs": {"batch_size": 3, "shuffle": True}}, ["given twice", "'shuffle'"]),
        ({"dataloader_kwargs": {"sampler": [1], "drop_last": True}}, ["'sampler'", "'drop_last'"]),
        ({"dataloader_kwargs": 5}, ["must be a dict"]),
    ],
)
def test_all_mistakes_of_a_call_are_told_at_once(arguments: dict[str, Any], words: list[str], storage: str) -> None:
    given = {"batch_processor_cls": Nothing, "dataset": [1, 2], **arguments}
    with pytest.raises(TrainerError) as raised:
        torch_batch_process(**given, checkpoint_storage=storage)
    for word in words:
        assert word in str(raised.value)


def test_off_cluster_it_processes_all_and_stores_the_output(storage: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    class Writes(Nothing):
        def process_batch(self, batch: Any, batch_idx: int) -> None:
            with self.context.upload_path() as folder:
                (folder / f"{batch_idx}").write_text(str(batch.tolist()))

    torch_batch_process(Writes, list(range(5)), 2, checkpoint_interval=1, checkpoint_storage=storage)
    (folder,) = (path for path in Path(storage).iterdir() if not path.name.startswith("."))
    assert {path.name: path.read_text() for path in (folder / "rank0").iterdir()} == {
        "0": "[0, 1]",
        "1": "[2, 3]",
        "2": "[4]",
    }
    assert json.loads((folder / "outputs.json").read_text())["batches"] == 3


def test_without_a_model_to_start_from_asking_for_it_says_what_to_set(storage: str) -> None:
    class Asks(Nothing):
        def __init__(self, context: Any) -> None:
            with context.source_checkpoint_path():
                pass

    with pytest.raises(TrainerError, match="names no checkpoint to start from") as raised:
        torch_batch_process(Asks, [1], checkpoint_storage=storage)
    assert "source_checkpoint_uuid" in (raised.value.hint or "")


def test_an_empty_dataset_ends_well_and_max_batches_ends_early(storage: str) -> None:
    finished: list[int] = []

    class Counts(Nothing):
        seen = 0

        def process_batch(self, batch: Any, batch_idx: int) -> None:
            self.seen += 1

        def on_finish(self) -> None:
            finished.append(self.seen)

    torch_batch_process(Counts, [], checkpoint_storage=storage)
    torch_batch_process(Counts, list(range(9)), max_batches=4, checkpoint_storage=storage)
    assert finished == [0, 4]


def test_a_link_among_the_output_is_refused(storage: str, tmp_path: Path) -> None:
    class Links(Nothing):
        def process_batch(self, batch: Any, batch_idx: int) -> None:
            with self.context.upload_path() as folder:
                (folder / "link").symlink_to(tmp_path)

    with pytest.raises(Exception, match="symbolic link"):
        torch_batch_process(Links, [1], checkpoint_storage=storage)
