"""NanLoss: the loss becomes NaN, then infinite; the trial itself goes on and ends well."""

import math

import detlab as det

with det.core.init() as core:
    for step, loss in enumerate((0.5, 0.25, math.nan, math.inf, -math.inf), start=1):
        core.train.report_training_metrics(step, {"loss": loss})
        core.train.report_validation_metrics(step, {"error": loss, "step": step})
