"""The data and the model of all five stages: tell malignant from benign tumours by 30 measurements.

The data are the 569 cell samples of the Wisconsin breast cancer study, which scikit-learn carries with it. The model is
logistic regression, written out in NumPy. Nothing here knows of detlab.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

EPOCH_SECONDS = float(os.environ.get("EPOCH_SECONDS", "0.03"))
"""An epoch takes at least this long, so that there is something to watch. Zero is fine, too."""

Table = tuple[np.ndarray, np.ndarray]
"""Measurements (rows × 31, the last column is 1) and labels (rows; 0 malignant, 1 benign)."""


def load() -> tuple[Table, Table]:
    """Return 427 rows to train with and 142 others to validate with, scaled by the former."""
    measurements, labels = load_breast_cancer(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(labels))
    measurements, labels = measurements[order], labels[order].astype(float)
    known = measurements[:427]
    scaled = (measurements - known.mean(axis=0)) / known.std(axis=0)
    rows = np.hstack([scaled, np.ones((len(labels), 1))])
    return (rows[:427], labels[:427]), (rows[427:], labels[427:])


class Classifier:
    """Logistic regression: 30 weights and a bias."""

    def __init__(self) -> None:
        self.weights = np.zeros(31)

    def probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Return how likely each row is benign."""
        return 1 / (1 + np.exp(-np.clip(rows @ self.weights, -30, 30)))

    def loss(self, table: Table) -> float:
        """Return the mean cross-entropy."""
        rows, labels = table
        p = np.clip(self.probabilities(rows), 1e-9, 1 - 1e-9)
        return float(-np.mean(labels * np.log(p) + (1 - labels) * np.log(1 - p)))

    def accuracy(self, table: Table) -> float:
        """Return the share of rows on the right side."""
        rows, labels = table
        return float(np.mean((self.probabilities(rows) > 0.5) == (labels == 1)))

    def train_epoch(
        self,
        table: Table,
        epoch: int,
        *,
        learning_rate: float,
        batch_size: int = 32,
        share: Callable[[np.ndarray], np.ndarray] = lambda batch: batch,
        combine: Callable[[np.ndarray], np.ndarray] = lambda gradient: gradient,
    ) -> int:
        """Go through the table once in an order that depends on the epoch alone; return the rows used.

        Args:
            table: What to learn from.
            epoch: Number of this epoch.
            learning_rate: Step of the descent.
            batch_size: Rows per step.
            share: Takes the part of a batch's row numbers that this process works on.
            combine: Adds up the gradients of all processes.
        """
        rows, labels = table
        began, used = time.monotonic(), 0
        order = np.random.RandomState(epoch).permutation(len(labels))
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            mine = share(batch)
            error = self.probabilities(rows[mine]) - labels[mine]
            self.weights -= learning_rate / len(batch) * combine(error @ rows[mine])
            used += len(mine)
        time.sleep(max(0.0, EPOCH_SECONDS - (time.monotonic() - began)))
        return used

    def save(self, path: Path) -> None:
        """Write the weights to a file."""
        np.savetxt(path, self.weights)

    def restore(self, path: Path) -> None:
        """Read the weights from a file."""
        self.weights = np.loadtxt(path)
