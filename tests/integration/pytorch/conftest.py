"""A task directory of a cluster for trainer tests: this process, or ranks under torchrun, train in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainer_forked import context
from trainer_task import TrialTask, make_trial_task

from detlab.testing.master import MasterDouble
from detlab.testing.ranks import Ranks


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints take the source files of the working directory along: have few of them."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


@pytest.fixture
def storage(tmp_path: Path) -> str:
    """Where local training keeps checkpoints."""
    return str(tmp_path / "local-checkpoints")


@pytest.fixture
def task_api() -> Iterator[MasterDouble]:
    with MasterDouble() as server:
        yield server


@pytest.fixture
def trial_task(tmp_path: Path, task_api: MasterDouble) -> TrialTask:
    return make_trial_task(tmp_path, task_api)


@pytest.fixture
def in_trial(trial_task: TrialTask, monkeypatch: pytest.MonkeyPatch) -> TrialTask:
    """This very process is the trial."""
    for name in [name for name in os.environ if name.startswith("DET_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DET_TASK_DIR", str(trial_task.root))
    monkeypatch.chdir(trial_task.root / "work")
    return trial_task


@pytest.fixture(scope="module")
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Two processes, with a process group and connected contexts, that run functions of the test's module."""
    both = Ranks(request.module.__name__, tmp_path_factory.mktemp("ranks"), processes=context())
    yield both
    both.close()
