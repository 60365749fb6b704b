"""Formulas of the model with one weight, and what a task's records say that it did."""

from __future__ import annotations

from typing import Any

import pytest
from trainer_one_weight import OneWeightTrial

NEAR = 1e-12


def ones(lr: float, batch: int, start: float = 0.0) -> tuple[float, float]:
    """Weight before batch `batch`, and its loss, when all x are 1."""
    weight = 1 - (1 - start) * (1 - 2 * lr) ** batch
    return weight, (1 - weight) ** 2


def check_ones(trial: OneWeightTrial, lr: float, updates_before: Any) -> None:
    for batch, _, _, loss, weight in trial.log:
        expected_weight, expected_loss = ones(lr, updates_before(batch))
        assert weight == pytest.approx(expected_weight, abs=NEAR)
        assert loss == pytest.approx(expected_loss, abs=NEAR)


def reported(task: Any, group: str) -> list[int]:
    return [entry["steps"] for entry in task.metrics(group)]


def saved(task: Any) -> list[int]:
    return sorted(view["steps_completed"] for view in task.api.checkpoints.values())
