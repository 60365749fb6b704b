"""TensorBoard of a whole `fit`: what was reported is in the event files, and these are in the checkpoint storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trainer_one_weight import OneWeightTrial

from detlab import pytorch
from detlab.pytorch import Batch


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """Return the numbers of the event files in a folder: tag -> step -> value."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: {event.step: event.value for event in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def test_fit_writes_tensorboard_files_and_copies_them(in_trial: Any) -> None:
    torch.set_num_threads(1)
    with pytorch.init(hparams={}, exp_conf={}, enable_tensorboard_logging=True) as context:
        trial = OneWeightTrial(context)
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(25), reporting_period=Batch(10), validation_period=Batch(20), checkpoint_policy="none"
        )
    (copied,) = in_trial.checkpoints.glob("tensorboard-*")
    for folder in (in_trial.root / "tensorboard" / "rank0", copied):
        found = scalars(folder)
        reports = {entry["steps"]: entry["loss"] for entry in in_trial.metrics("training")}
        assert sorted(reports) == [10, 20, 25]
        assert found["detlab/loss"] == pytest.approx(reports)
        # With all x = 1 the weight is 1 - 0.8^k after k batches, and the validation loss (1 - w)^2.
        assert found["detlab/val_loss"] == pytest.approx({step: 0.8 ** (2 * step) for step in (20, 25)})
        assert found["detlab/batches"] == {step: step for step in (10, 20, 25)}
