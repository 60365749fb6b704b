"""The files of the checkpoint to go on from are gone: the code gets its own error, the master hears what is left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import detlab as det
from detlab.errors import CheckpointError, CheckpointMissing

SAVES = """
import detlab as det
with det.core.init() as core:
    for step in (2, 4, 6):
        with core.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
            (path / "state").write_text(str(step))
        print("saved", uuid)
"""


@pytest.fixture
def saved(in_task: Any, task: Any) -> list[str]:
    """Three checkpoints, newest first; the next attempt, which is this process, is given the newest one."""
    code, said = task.run(SAVES)
    assert code == 0, said
    uuids = [line.split()[1] for line in said.splitlines() if line.startswith("saved ")][::-1]
    task.set_info(latest_checkpoint=uuids[0], earlier_checkpoints=uuids[1:], run=2)
    return uuids


def told(task: Any) -> list[tuple[list[str], str | None]]:
    return [(one["gone"], one["instead"]) for one in task.records() if one["kind"] == "checkpoint_gone"]


def restore(core: Any, uuid: str, tmp_path: Path) -> str:
    with core.checkpoint.restore_path(uuid) as path:
        return str((path / "state").read_text())


def download(core: Any, uuid: str, tmp_path: Path) -> str:
    core.checkpoint.download(uuid, tmp_path / uuid)
    return (tmp_path / uuid / "state").read_text()


@pytest.mark.parametrize("read", [restore, download])
@pytest.mark.parametrize(("removed", "gone", "instead"), [(1, 1, 1), (2, 2, 2), (3, 3, None)])
def test_gone_folders_are_told_with_the_newest_that_is_there(
    saved: list[str],
    task: Any,
    tmp_path: Path,
    read: Callable[..., str],
    removed: int,
    gone: int,
    instead: int | None,
) -> None:
    for uuid in saved[:removed]:
        shutil.rmtree(task.checkpoints / uuid)
    with det.core.init() as core:
        for _ in range(2):  # told once
            with pytest.raises(CheckpointMissing, match=f"no complete checkpoint {saved[0]}"):
                read(core, saved[0], tmp_path)
        if instead is not None:
            assert read(core, saved[instead], tmp_path) == str(6 - 2 * instead)
    assert told(task) == [(saved[:gone], None if instead is None else saved[instead])]


def test_a_single_file_that_is_gone_counts_as_well(saved: list[str], task: Any, tmp_path: Path) -> None:
    (task.checkpoints / saved[0] / "state").unlink()
    with det.core.init() as core, pytest.raises(CheckpointMissing, match="state of checkpoint"):
        restore(core, saved[0], tmp_path)
    assert told(task) == [([saved[0]], saved[1])]


def test_of_a_storage_that_is_not_mounted_nothing_is_said_to_be_there(
    saved: list[str], task: Any, tmp_path: Path
) -> None:
    task.checkpoints.rename(task.checkpoints.with_name("elsewhere"))
    with det.core.init() as core, pytest.raises(CheckpointMissing):
        restore(core, saved[0], tmp_path)
    assert told(task) == [(saved, None)]


def test_an_altered_checkpoint_is_another_matter(saved: list[str], task: Any, tmp_path: Path) -> None:
    (task.checkpoints / saved[0] / "state").write_text("7")
    with det.core.init() as core, pytest.raises(CheckpointError, match="altered") as error:
        restore(core, saved[0], tmp_path)
    assert not isinstance(error.value, CheckpointMissing)
    assert told(task) == []


def test_other_checkpoints_than_the_one_to_go_on_from_are_the_codes_own_affair(
    saved: list[str], task: Any, tmp_path: Path
) -> None:
    shutil.rmtree(task.checkpoints / saved[1])
    with det.core.init() as core:
        with pytest.raises(CheckpointMissing):
            restore(core, saved[1], tmp_path)
        assert restore(core, saved[0], tmp_path) == "6"
    assert told(task) == []
