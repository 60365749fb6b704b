"""Digits with Keras 3 on torch."""

from __future__ import annotations

import logging
import os
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras  # reads the variable
from digits import load, wait

import detlab as det
from detlab.keras import DeterminedCallback

OFF_CLUSTER = {"lr": 3e-3, "dropout": 0.2}
EPOCHS = 4


class Pace(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        wait()


def build_model(lr: float, dropout: float) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((8, 8)),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dropout(dropout),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(lr),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def main(core_context: det.core.Context, info: det.ClusterInfo | None) -> None:
    hparams = info.trial.hparams if info else OFF_CLUSTER
    keras.utils.set_random_seed(info.trial.trial_seed if info else 0)
    training, validation = load()
    callback = DeterminedCallback(
        core_context,
        checkpoint=info.latest_checkpoint if info else None,
        continue_id=info.trial.trial_id if info else "local",
        train_metrics_report_period=int(hparams.get("report_period", 6)),
    )
    build_model(hparams["lr"], hparams["dropout"]).fit(
        *training,
        batch_size=64,
        epochs=EPOCHS,
        validation_data=validation,
        validation_batch_size=215,
        callbacks=[Pace(), callback],
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    with det.core.init() as core_context:
        main(core_context, det.get_cluster_info())
