"""Functions that trials call: in a module that imports little, since that travels with them."""

from __future__ import annotations

from typing import Any

import detlab as det

FACTOR = 2.0


def quality(lr: float, depth: int = 1) -> float:
    print("lr", lr)
    return FACTOR * lr + depth


@det.remote
def several(lr: float, core_context: Any) -> dict[str, float]:
    core_context.train.report_training_metrics(4, {"loss": lr})
    return {"quality": lr, "epochs": 7}


def broken(lr: float) -> float:
    raise RuntimeError("no good")
