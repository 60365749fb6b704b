"""A cluster whose state folder lies deep: no socket of any part or task may have a path that the kernel refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cluster import Cluster

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]

DEPTH = 170
"""Characters of the folder at least: a Unix socket's path may have 107 bytes."""
TRIAL = """
import multiprocessing, os, pathlib
import detlab as det
import torch

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.full((4,), float(index))

if __name__ == "__main__":
    with det.core.init() as core:
        torch.multiprocessing.set_sharing_strategy("file_descriptor")
        loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2)  # tensors pass by Unix sockets
        total = sum(float(batch.sum()) for batch in loader)
        with multiprocessing.Manager() as manager:
            shared = manager.list([total])
            core.train.report_validation_metrics(steps_completed=1, metrics={"total": shared[0]})
"""
CONFIG = """
name: deep
entrypoint: python3 trial.py
searcher: {name: single, metric: total, max_length: 1}
resources: {slots_per_trial: 1}
max_restarts: 0
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root: Path = tmp_path_factory.mktemp("deep")
    while len(str(root)) < DEPTH:
        root /= "a-folder-of-some-length"
    root.mkdir(parents=True)
    found = Cluster(root, slots=2)
    up = found.up()
    assert up.returncode == 0, up.stdout + up.stderr
    yield found
    found.down("--timeout", "5")


def test_a_trial_with_workers_of_a_dataloader_completes(cluster: Cluster) -> None:
    code = cluster.root / "code"
    code.mkdir()
    (code / "trial.py").write_text(TRIAL)
    (cluster.root / "deep.yaml").write_text(CONFIG)
    made = cluster.det("experiment", "create", "deep.yaml", "code", "--follow", timeout=120)
    assert made.returncode == 0, made.stdout + made.stderr + cluster.logs()
    (trial,) = json.loads(cluster.det("experiment", "list-trials", "1", "--json").stdout)
    assert trial["best_validation"] == 64 * 63 / 2 * 4


def test_a_shell_and_its_server_come_up(cluster: Cluster) -> None:
    started = cluster.det("shell", "start", "--no-open", "--name", "deep-shell", timeout=120)
    assert started.returncode == 0, started.stdout + started.stderr + cluster.logs()
    killed = cluster.det("shell", "kill", "deep-shell")
    assert killed.returncode == 0, killed.stderr


def test_a_kernel_runs_a_notebook(cluster: Cluster) -> None:
    cell = {
        "cell_type": "code",
        "id": "a",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": "print(6*7)",
    }
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (cluster.root / "n.ipynb").write_text(json.dumps(notebook))
    run = cluster.det("notebook", "run", "n.ipynb", "-o", "done.ipynb", timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr + cluster.logs()
    assert "42" in (cluster.root / "done.ipynb").read_text()
