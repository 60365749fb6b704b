"""Digits with scikit-learn, by the Core API: any estimator that learns by and by (`partial_fit`)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
from digits import load
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

import detlab as det

OFF_CLUSTER = {"alpha": 1e-4}
EPOCHS = 16
CLASSES = np.arange(10)


def save(model: SGDClassifier, path: Path) -> None:
    np.savez(path, coef=model.coef_, intercept=model.intercept_, t=model.t_)


def restore(model: SGDClassifier, path: Path) -> None:
    with np.load(path) as found:
        model.classes_ = CLASSES
        model.coef_, model.intercept_, model.t_ = found["coef"], found["intercept"], float(found["t"])


def main(core_context: det.core.Context, latest_checkpoint: str | None, seed: int, hparams: dict[str, Any]) -> None:
    (train_x, train_y), (val_x, val_y) = load()
    train_x, val_x = train_x.reshape(-1, 64), val_x.reshape(-1, 64)
    model, done = SGDClassifier(loss="log_loss", alpha=hparams["alpha"]), 0
    if latest_checkpoint is not None:
        done = core_context.checkpoint.get_metadata(latest_checkpoint)["steps_completed"]
        with core_context.checkpoint.restore_path(latest_checkpoint) as path:
            restore(model, path / "model.npz")
    for epoch in range(done + 1, EPOCHS + 1):
        model.set_params(random_state=(seed + epoch) % 2**32)  # the order of this epoch's rows, again after a pause
        model.partial_fit(train_x, train_y, classes=CLASSES)
        core_context.train.report_validation_metrics(
            steps_completed=epoch,
            metrics={
                "loss": log_loss(val_y, model.predict_proba(val_x), labels=CLASSES),
                "accuracy": model.score(val_x, val_y),
                "epochs": epoch,
            },
        )
        core_context.train.report_progress(epoch / EPOCHS)
        with core_context.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
            save(model, path / "model.npz")
        if core_context.preempt.should_preempt():
            return


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    info = det.get_cluster_info()
    with det.core.init() as core_context:
        main(
            core_context,
            latest_checkpoint=info.latest_checkpoint if info else None,
            seed=info.trial.trial_seed if info else 0,
            hparams=info.trial.hparams if info else OFF_CLUSTER,
        )
