"""kill -9 at every operation on the files of a checkpoint, and every way to damage one that is finished.

One trial lives through all of the kills: each attempt resumes from what the master has and is killed at the next
operation of its first checkpoint; the last one trains to the end. No bit may differ from a trial that was left alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import checkpoint_points
import pytest
from checkpoint_points import PATIENCE
from trainer_forked import context
from trainer_one_weight import train
from trainer_task import TrialTask, make_trial_task

from detlab.errors import CheckpointError
from detlab.pytorch import Batch
from detlab.storage import MANIFEST_NAME, DirectoryStorage
from detlab.testing.master import MasterDouble
from detlab.testing.trial_api import TrialApiFault
from testbed.stores import names_in

LENGTH = 12


@dataclass
class Life:
    """The attempts of one trial."""

    task: TrialTask
    nurse: Connection
    attempts: int = 0
    seen: list[str] = field(default_factory=list)
    """Checkpoints that the master has ever had."""

    @property
    def storage(self) -> DirectoryStorage:
        return DirectoryStorage(self.task.checkpoints)

    @property
    def latest(self) -> str | None:
        return self.task.newest_checkpoint() if self.task.api.checkpoints else None

    @property
    def names(self) -> set[str]:
        """What lies in the storage."""
        return set(names_in(self.task.checkpoints))

    @property
    def unheard_of(self) -> set[str]:
        """What lies under the name of a checkpoint that was never committed: the next attempt removes it."""
        return {name for name in self.names - set(self.task.api.checkpoints) if not name.startswith(".")}

    def attempt(self, child: str, ranks: int = 1, **order: Any) -> list[int | None]:
        """Run an attempt to its end; return the exit status of each rank."""
        self.attempts += 1
        order = {"at": 0, **order, "attempt": self.attempts, "latest": self.latest, "root": str(self.task.checkpoints)}
        self.task.api.run = self.attempts
        self.task.set_info(latest_checkpoint=self.latest, run=self.attempts, slot_ids=list(range(ranks)))
        places: list[tuple[int, ...]] = [(rank, ranks) for rank in range(ranks)] if child == "store" else [()]
        self.nurse.send([(child, (str(self.task.root), order, *place)) for place in places])
        assert self.nurse.poll(2 * PATIENCE), "the process that forks the others has died"
        statuses: list[int | None] = self.nurse.recv()
        self.check()
        return statuses

    def said(self) -> str:
        """What the last attempt printed."""
        return "\n".join(path.read_text() for path in sorted(self.task.root.glob(f"output-{self.attempts}-*")))

    def check(self) -> None:
        """What the master has is whole and stays; else there is only what the last attempt began."""
        committed = self.task.api.checkpoints
        assert set(self.seen) <= set(committed)
        self.seen = list(committed)
        for uuid, view in committed.items():
            manifest = self.storage.manifest(uuid)
            assert manifest.digest == view["manifest_digest"]
            with self.storage.restore_path(uuid, manifest):
                pass
        left = self.names - set(committed)
        assert len(left) <= 2, left  # a mark, and a stage or what it became

    def log(self) -> dict[int, list[list[Any]]]:
        """What each attempt logged."""
        found: dict[int, list[list[Any]]] = {}
        for attempt, *entry in map(json.loads, (self.task.root / "log.jsonl").read_text().splitlines()):
            found.setdefault(attempt, []).append(entry)
        return found


@pytest.fixture(scope="module")
def nurse() -> Iterator[Connection]:
    """Takes orders for processes; see `checkpoint_points.nurse`."""
    ours, theirs = context().Pipe()
    process = context().Process(target=checkpoint_points.nurse, args=(theirs,))
    process.start()
    theirs.close()
    yield ours
    ours.close()
    process.join(5)
    process.kill()
    process.join()


@pytest.fixture
def life(trial_task: TrialTask, nurse: Connection) -> Life:
    (trial_task.root / "work" / "model").mkdir()
    for name in ("train.py", "model/net.py"):
        (trial_task.root / "work" / name).write_text("x = 1\n")
    return Life(trial_task, nurse)


@pytest.fixture(scope="module")
def calm(nurse: Connection, tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """What a trial logs that nobody disturbs."""
    with MasterDouble() as api:
        life = Life(make_trial_task(tmp_path_factory.mktemp("calm"), api), nurse)
        assert life.attempt("train", length=LENGTH) == [0], life.said()
        assert life.names == set(api.checkpoints)
        assert len(life.names) == LENGTH // 2
        return life.log()[1]


def trained_as(life: Life, calm: list[list[Any]]) -> None:
    """All attempts together have trained every batch, each from a checkpoint's, to the bit as the calm trial."""
    starts = set()
    for entries in life.log().values():
        starts.add(entries[0][0])
        assert entries == calm[entries[0][0] : entries[-1][0] + 1]
    assert {entry[0] for entries in life.log().values() for entry in entries} == set(range(LENGTH))
    assert all(start % 2 == 0 for start in starts)
    assert len(starts) > 1


def test_killed_at_every_operation_of_a_checkpoint_a_trial_goes_on_from_the_last_whole_one(
    life: Life, calm: list[list[Any]]
) -> None:
    assert life.attempt("train", length=2) == [0], life.said()
    assert life.attempt("train", length=4) == [0], life.said()
    names = json.loads((life.task.root / "names-weight.json").read_text())
    for expected in EXPECTED:
        assert expected in names, names
    for at, name in enumerate(names, start=1):
        resumed = max(view["steps_completed"] for view in life.task.api.checkpoints.values())
        assert life.attempt("train", length=LENGTH, at=at) == [-signal.SIGKILL], life.said()
        assert life.log()[life.attempts][0][0] == resumed, name
        committed = max(view["steps_completed"] for view in life.task.api.checkpoints.values()) > resumed
        assert committed == (at > names.index("report U") + 1), name
    assert life.attempt("train", length=LENGTH) == [0], life.said()
    trained_as(life, calm)
    assert life.names == set(life.task.api.checkpoints), "nothing is left of all that were killed"


EXPECTED = (
    "open .pending-c1-7.N.U",
    "mkdir .stage-U",
    "open .stage-U/model_0.safetensors",
    "open .stage-U/trainer.safetensors",
    "mkdir .stage-U/code/model",
    "open .stage-U/code/model/net.py",
    "open .stage-U/load_data.json",
    "open .stage-U/trainer.json",
    "open .stage-U/.metadata.json.partial",
    "rename .stage-U/metadata.json",
    "fsync .stage-U/model_0.safetensors",
    "fsync .stage-U/code/model",
    "open .stage-U/.manifest.json.partial",
    "fsync .stage-U/.manifest.json.partial",
    "rename .stage-U/manifest.json",
    "fsync .stage-U",
    "rename U",
    "report U",
    "answered U",
    "remove .pending-c1-7.N.U",
)


@pytest.mark.parametrize("reached", ["rename U", "report U"], ids=["a whole stage", "published, not committed"])
def test_killed_while_it_removes_what_was_left_each_attempt_leaves_less(
    life: Life, calm: list[list[Any]], reached: str
) -> None:
    assert life.attempt("train", length=2) == [0], life.said()
    assert life.attempt("train", length=4) == [0], life.said()
    names = json.loads((life.task.root / "names-weight.json").read_text())
    at = names.index(reached) + 1
    assert life.attempt("train", length=LENGTH, at=at) == [-signal.SIGKILL], life.said()
    sizes = [left_over(life)]
    while life.attempt("train", length=LENGTH, at=3, cleaning=True) == [-signal.SIGKILL]:
        sizes.append(left_over(life))
        assert sizes[-1] < sizes[-2], sizes
    assert len(sizes) > 3, sizes
    assert life.names == set(life.task.api.checkpoints)
    assert "begun and never committed" in life.said()
    trained_as(life, calm)


def test_what_was_stored_and_never_committed_stays_until_the_master_says_that_it_was_not(life: Life) -> None:
    assert life.attempt("store", how="store_path") == [0], life.said()
    names = json.loads((life.task.root / "names-stored0.json").read_text())
    at = names.index("report U") + 1
    assert life.attempt("store", how="store_path", at=at) == [-signal.SIGKILL], life.said()
    (kept,) = life.unheard_of
    with life.storage.restore_path(kept, life.storage.manifest(kept)):
        pass
    life.task.api.faults.append(TrialApiFault("task/storage-check", 404, "not_found"))  # a master of an earlier version
    assert life.attempt("store", how="store_path") == [0], life.said()
    assert life.unheard_of == {kept}
    assert life.attempt("store", how="store_path") == [0], life.said()
    assert life.names == set(life.task.api.checkpoints), "neither it nor its mark is left"


def left_over(life: Life) -> int:
    """How many files and folders are in the storage that belong to no checkpoint."""
    left = life.names - set(life.task.api.checkpoints)
    roots = [path for path in life.task.checkpoints.rglob("*") if path.name in left]
    assert len(roots) == len(left)
    return sum(1 + len(list(root.rglob("*"))) for root in roots)


def test_a_machine_that_dies_with_half_of_a_file_on_disk_leaves_no_checkpoint(
    life: Life, calm: list[list[Any]]
) -> None:
    assert life.attempt("train", length=2) == [0], life.said()
    assert life.attempt("train", length=4) == [0], life.said()
    names = json.loads((life.task.root / "names-weight.json").read_text())
    files = [at for at, name in enumerate(names, start=1) if name.startswith("fsync") and "." in name.rsplit("/")[-1]]
    assert len(files) >= 8
    for at in files:
        status = life.attempt("train", length=LENGTH, at=at, torn=True)
        assert status == [-signal.SIGKILL], life.said()
    assert life.attempt("train", length=LENGTH) == [0], life.said()
    trained_as(life, calm)
    assert life.names == set(life.task.api.checkpoints)


@pytest.mark.parametrize(
    ("how", "ranks", "killed"),
    [("upload", 1, 0), ("upload", 2, 0), ("upload", 2, 1), ("store_path", 2, 0), ("store_path", 2, 1)],
)
def test_killed_at_the_operations_of_one_rank_no_part_of_a_checkpoint_is_used(
    life: Life, how: str, ranks: int, killed: int
) -> None:
    """At every operation; of a chief beside another rank, at those that are of another kind than their neighbours."""
    calmly = {"how": how, "rank": killed}
    for _ in range(2):
        assert life.attempt("store", ranks, **calmly) == [0] * ranks, life.said()
    names = json.loads((life.task.root / f"names-stored{killed}.json").read_text())
    assert f"open .stage-U/deep/part{killed}" in names, names
    assert (ranks == 1 or killed == 1) or set(OF_A_CHIEF) < set(names), names
    for at, name in enumerate(names, start=1):
        if ranks > 1 and killed == 0 and name not in OF_A_CHIEF:
            continue
        before = len(life.task.api.checkpoints)
        statuses = life.attempt("store", ranks, **calmly, at=at)
        assert statuses.pop(killed) == -signal.SIGKILL, life.said()
        assert statuses == [1] * (ranks - 1), "the other rank hears of it"
        committed = len(life.task.api.checkpoints) > before
        assert committed == ("report U" in names and at > names.index("report U") + 1), name
    assert life.attempt("store", ranks, **calmly) == [0] * ranks, life.said()
    assert life.names == set(life.task.api.checkpoints)
    steps = sorted(view["steps_completed"] for view in life.task.api.checkpoints.values())
    assert steps == list(range(1, len(steps) + 1)), "each went on from the one before"


OF_A_CHIEF = (
    "open .pending-c1-7.N.U",
    "mkdir .stage-U",
    "open .stage-U/deep/part0",
    "fsync .stage-U/deep/part0",
    "rename .stage-U/metadata.json",
    "open .stage-U/.manifest.json.partial",
    "rename .stage-U/manifest.json",
    "rename U",
    "report U",
    "answered U",
    "remove .pending-c1-7.N.U",
)


# --- a finished checkpoint that is damaged


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def add(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def link(path: Path) -> None:
    kept = path.with_name("kept")
    path.rename(kept)
    path.symlink_to(kept)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def unlink(path: Path) -> None:
    path.unlink()


@dataclass
class Finished:
    """A trial of six batches with checkpoints after 2, 4 and 6, and what it logged."""

    task: TrialTask
    newest: str
    before: str
    log: list[Any]

    @property
    def folder(self) -> Path:
        return self.task.checkpoints / self.newest

    def resume(self, caplog: pytest.LogCaptureFixture) -> str:
        """Resume from the newest checkpoint as it is now; return what was said once the one before was used."""
        caplog.clear()
        with caplog.at_level(logging.INFO):
            again = train(fit={"max_length": Batch(6), "latest_checkpoint": self.newest}, **NOISY)
        assert again.log == self.log[4:]  # bit by bit
        assert f"resumed from checkpoint {self.before} at batch 4" in caplog.text
        return "\n".join(
            line for line in caplog.text.splitlines() if f"checkpoint {self.newest} cannot be used" in line
        )


NOISY: dict[str, Any] = {"kind": "range", "shuffle": True, "momentum": 0.9, "noise": 0.3}


@pytest.fixture
def finished(in_trial: TrialTask) -> Finished:
    for name in ("train.py", "model/net.py"):
        (in_trial.root / "work" / name).parent.mkdir(exist_ok=True)
        (in_trial.root / "work" / name).write_text("x = 1\n")
    fit = {"max_length": Batch(6), "checkpoint_period": Batch(2), "checkpoint_policy": "none"}
    trial = train(fit=fit, **NOISY)
    by_steps = {view["steps_completed"]: uuid for uuid, view in in_trial.api.checkpoints.items()}
    return Finished(in_trial, by_steps[6], by_steps[4], trial.log)


@pytest.mark.parametrize(
    ("damage", "everywhere"),
    [(flip, True), (cut, True), (unlink, True), (add, False), (link, False), (make_folder, False)],
)
def test_a_damaged_file_is_named_and_the_checkpoint_before_is_used(
    finished: Finished, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None], everywhere: bool
) -> None:
    files = sorted(finished.task.api.checkpoints[finished.newest]["files"])
    assert {"model_0.safetensors", "trainer.json", "metadata.json", "code/model/net.py"} < set(files)
    whole = finished.folder.with_name(".whole")
    shutil.copytree(finished.folder, whole)
    for name in files if everywhere else ("model_0.safetensors", "code/model/net.py"):
        damage(finished.folder / name)
        assert f"{name} of checkpoint {finished.newest} " in finished.resume(caplog)
        shutil.rmtree(finished.folder)
        shutil.copytree(whole, finished.folder)


def change_a_digest(path: Path) -> None:
    """Alter a file together with what its manifest says of it."""
    document = json.loads(path.read_bytes())
    flip(path.with_name("trainer.json"))
    changed = hashlib.sha256(path.with_name("trainer.json").read_bytes()).hexdigest()
    document["files"]["trainer.json"]["digest"] = f"sha256:{changed}"
    path.write_text(json.dumps(document))


def leave_a_file_out(path: Path) -> None:
    document = json.loads(path.read_bytes())
    del document["files"]["trainer.safetensors"]
    path.write_text(json.dumps(document))


def name_another_path(path: Path) -> None:
    document = json.loads(path.read_bytes())
    document["files"]["../../work/train.py"] = document["files"]["trainer.json"]
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    "damage", [flip, cut, unlink, link, make_folder, change_a_digest, leave_a_file_out, name_another_path]
)
def test_a_damaged_manifest_is_named_and_the_checkpoint_before_is_used(
    finished: Finished, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None]
) -> None:
    damage(finished.folder / MANIFEST_NAME)
    assert MANIFEST_NAME in finished.resume(caplog)


def test_a_checkpoint_that_is_gone_is_named_and_the_one_before_is_used(
    finished: Finished, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(finished.folder)
    assert finished.newest in finished.resume(caplog)


def test_if_all_are_damaged_each_is_named_with_what_is_wrong(finished: Finished) -> None:
    for uuid in finished.task.api.checkpoints:
        cut(finished.task.checkpoints / uuid / "trainer.json")
    with pytest.raises(CheckpointError, match="no checkpoint of this trial can be read") as caught:
        train(fit={"max_length": Batch(6), "latest_checkpoint": finished.newest}, **NOISY)
    for uuid in finished.task.api.checkpoints:
        assert f"trainer.json of checkpoint {uuid} is altered" in str(caught.value)
