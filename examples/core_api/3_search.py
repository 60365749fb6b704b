"""Stage 3: the cluster chooses the hyperparameters, runs many trials and stops the hopeless ones."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
from tumours import Classifier, load

import detlab as det

EPOCHS = 40
VALIDATE_EVERY = 5
OFF_CLUSTER = {"learning_rate": 0.02, "batch_size": 32}


def restore(classifier: Classifier, path: Path) -> int:
    classifier.restore(path / "weights.txt")
    return int(np.loadtxt(path / "epoch.txt"))


def main(core_context: det.core.Context, latest_checkpoint: str | None, hparams: dict[str, Any]) -> None:
    train, validation = load()
    classifier, done = Classifier(), 0
    if latest_checkpoint is not None:
        with core_context.checkpoint.restore_path(latest_checkpoint) as path:
            done = restore(classifier, path)
    for epoch in range(done + 1, EPOCHS + 1):
        # New: the sample of this trial.
        classifier.train_epoch(train, epoch, learning_rate=hparams["learning_rate"], batch_size=hparams["batch_size"])
        core_context.train.report_progress(epoch / EPOCHS)
        stop = core_context.preempt.should_preempt()
        if stop or epoch % VALIDATE_EVERY == 0:
            # New: the searcher reads `loss` (its metric) and `epochs` (its time_metric) from here.
            core_context.train.report_validation_metrics(
                steps_completed=epoch,
                metrics={
                    "loss": classifier.loss(validation),
                    "accuracy": classifier.accuracy(validation),
                    "epochs": epoch,
                },
            )
            with core_context.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
                classifier.save(path / "weights.txt")
                np.savetxt(path / "epoch.txt", [epoch], fmt="%d")
        if stop:
            # Not new: the searcher stops a trial by the same signal as a pause does.
            return


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    info = det.get_cluster_info()
    with det.core.init() as core_context:
        main(
            core_context,
            latest_checkpoint=info.latest_checkpoint if info else None,
            hparams=info.trial.hparams if info else OFF_CLUSTER,
        )
