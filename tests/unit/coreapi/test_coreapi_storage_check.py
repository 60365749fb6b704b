"""What `core.init()` asks of the checkpoint storage before the first step."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest

from detlab.core.storage_check import check_kept, check_storage
from detlab.errors import StorageAway, StorageDenied, StorageError, StorageRefused
from detlab.storage import DirectoryStorage, SharedFSStorage

SAID = "NoSuchBucket: The specified bucket does not exist"


class Store(DirectoryStorage):
    """Answers `check` with what it is given, one after the other, then well."""

    def __init__(self, *answers: Exception | float) -> None:
        super().__init__(Path("/nonexistent"))
        self.answers = list(answers)
        self.asked = 0

    def check(self) -> None:
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else 0.0
        if isinstance(answer, Exception):
            raise answer
        time.sleep(answer)


def test_a_store_that_says_no_is_refused_with_its_own_words_and_the_key() -> None:
    store = Store(StorageError(SAID))
    with pytest.raises(StorageRefused) as found:
        check_storage(store, {"type": "s3", "bucket": "nope", "secret_key": "hunter2"})
    assert SAID in found.value.message
    assert "checkpoint_storage.bucket" in found.value.message
    assert "det config check" in str(found.value)
    assert "hunter2" not in str(found.value)
    assert store.asked == 1


def test_the_hint_of_the_store_is_kept() -> None:
    with pytest.raises(StorageRefused, match="set AWS_PROFILE; look at checkpoint_storage "):
        check_storage(Store(StorageError(SAID, hint="set AWS_PROFILE")), {})


def test_a_closed_folder_keeps_its_own_error() -> None:
    """Which may be another on another node: the master then tries there."""
    with pytest.raises(StorageDenied, match="closed"):
        check_storage(Store(StorageDenied("closed")), {"host_path": "/x"})


def test_a_store_that_is_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    store, slept, status = Store(*[StorageAway("503 Slow Down")] * 4), [], []
    check_storage(store, {}, sleep=slept.append, say=status.append)
    assert store.asked == 5
    assert status == ["waits for the checkpoint storage, which is away", ""], "whoever looks at the trial sees why"
    assert len(slept) == 4
    assert slept[0] < slept[3]
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said == [
        "waiting for the checkpoint storage, which is away: 503 Slow Down",
        "the checkpoint storage answers again",
    ]


def test_after_a_while_training_begins_without_it(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    store = Store(*[StorageAway("timeout")] * 1000)
    status = []
    check_storage(store, {}, patience=60, sleep=sleep, clock=lambda: now[0], say=status.append)
    assert 60 < now[0] < 80
    assert status == ["waits for the checkpoint storage, which is away", ""]
    assert "training begins" in caplog.text


def test_a_store_that_hangs_counts_as_away() -> None:
    store = Store(1.0)
    check_storage(store, {}, one_check=0.05, sleep=lambda _: None)
    assert store.asked == 2


def test_a_store_without_a_check_is_let_through() -> None:
    check_storage(object(), {})  # type: ignore[arg-type]


def test_a_folder_is_made_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    store = DirectoryStorage(tmp_path / "a" / "b")
    store.check()
    store.check()
    (own,) = (tmp_path / "a" / "b").iterdir()
    assert own.name == f".unfinished-{os.geteuid()}"
    assert list(own.iterdir()) == []
    assert store.uuids() == []


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        DirectoryStorage(tmp_path / "file").check()


def test_a_full_disk_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    DirectoryStorage(tmp_path).check()


ROOT = "1 0 0:40 / / rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/u"
IN_A_POD = f"""{ROOT}
2 1 0:41 / /dev/shm rw - tmpfs shm rw,size=65536k
3 1 0:42 / /scratch rw - tmpfs tmpfs rw
4 1 8:1 /var/lib/kubelet/pods/3f/volumes/kubernetes.io~empty-dir/work /work rw - ext4 /dev/sda1 rw
5 1 8:1 /srv/checkpoints /srv/checkpoints rw - ext4 /dev/sda1 rw
6 1 0:43 / /mnt/nfs rw - nfs4 server:/export rw
7 1 8:1 /data /with\\040space rw - ext4 /dev/sda1 rw
8 1 0:44 /kept /host/memory rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    "path", ["/root/checkpoints", "/dev/shm/c", "/scratch", "/work/deep/c", "/srv/checkpoints2", "/with"]
)
@pytest.mark.parametrize("runtime", ["docker", "kubernetes"])
def test_a_folder_that_is_removed_with_the_tasks_container_is_refused(path: str, runtime: str) -> None:
    with pytest.raises(StorageRefused, match=f"checkpoints would be lost: {path} is in this (container|pod) only"):
        check_kept(SharedFSStorage(path), {"host_path": path}, runtime, IN_A_POD)


@pytest.mark.parametrize(
    "path", ["/srv/checkpoints", "/srv/checkpoints/l", "/mnt/nfs/c", "/with space/c", "/host/memory/c"]
)
def test_a_folder_of_a_volume_is_taken(path: str) -> None:
    check_kept(SharedFSStorage(path), {"host_path": path}, "kubernetes", IN_A_POD)


@pytest.mark.parametrize("runtime", ["process", "slurm", ""])
def test_a_task_that_is_no_container_of_ours_may_have_any_root(runtime: str) -> None:
    """The whole cluster may be in one container, as on a laptop."""
    check_kept(SharedFSStorage("/root/checkpoints"), {}, runtime, ROOT)


def test_a_volume_over_a_folder_of_a_volume_counts() -> None:
    over = f"{IN_A_POD}9 5 0:45 / /srv/checkpoints rw - tmpfs tmpfs rw\n"
    with pytest.raises(StorageRefused):
        check_kept(SharedFSStorage("/srv/checkpoints/lab"), {}, "docker", over)


def test_what_would_be_lost_names_the_key_and_the_ways_out() -> None:
    with pytest.raises(StorageRefused) as found:
        check_kept(DirectoryStorage("/root/c"), {"container_path": "/root/c"}, "kubernetes", ROOT)
    for words in ("checkpoint_storage.container_path", "type: s3", "det agent run --volume /root/c", "volume_mounts"):
        assert words in str(found.value)
