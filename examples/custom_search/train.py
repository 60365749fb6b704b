"""A problem that takes no time: Rosenbrock's valley, whose lowest point, 0, is at (1, 1)."""

import detlab as det

hparams = det.get_cluster_info().trial.hparams
x, y = hparams["x"], hparams["y"]
with det.core.init() as core_context:
    core_context.train.report_validation_metrics(1, {"loss": (1 - x) ** 2 + 100 * (y - x**2) ** 2})
