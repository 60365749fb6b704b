"""A version as the registry returns it, and the folder of its checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from detlab.export.contents import Contents, contents_of
from detlab.schemas.wire.registry import Lineage, VersionView


@pytest.fixture
def version() -> VersionView:
    return VersionView(
        model_id=4,
        model="digits",
        version=3,
        semver="1.2.0",
        labels=["production"],
        comment="the first that is good enough",
        notes="Trained on **clean** digits.\n\nSee the paper.",
        owner="ada",
        created_at=1_750_000_000.0,
        checkpoint="3f2b0c1e-0000-4000-8000-000000000001",
        manifest_digest="sha256:" + "ab" * 32,
        format="safetensors",
        lineage=Lineage(
            experiment_id=7,
            experiment_name="digits, wide",
            trial_id=31,
            steps_completed=200,
            hyperparameters={"lr": 0.01, "net": {"width": 64, "act": "relu"}},
            metrics={"accuracy": 0.9375, "validation.accuracy": 0.9375, "training.loss": 0.2},
            metric="accuracy",
            smaller_is_better=False,
            bundle_digest="sha256:" + "cd" * 32,
            environment={"torch": "2.13.0+cpu", "numpy": "2.4.6", "python": "3.11.2", "platform": "linux-x86_64"},
            data={"digits-v3": "sha256:" + "ef" * 32},
            parents=["11111111-0000-4000-8000-000000000001"],
            slots=1,
            device="cpu",
            submitter="ada",
            started_at=1_749_990_000.0,
        ),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    (folder / "code").mkdir(parents=True)
    save_file({"weight": torch.ones(2, 3)}, folder / "model_0.safetensors")
    (folder / "load_data.json").write_text("{}")
    (folder / "code" / "model_def.py").write_text("class Digits: ...\n")
    (folder / "manifest.json").write_text("{}")
    return folder


@pytest.fixture
def contents(folder: Path) -> Contents:
    return contents_of(folder)
