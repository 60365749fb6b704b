"""HostileMetric: a metric whose name is HTML, control characters and rich markup at once."""

import detlab as det

NAME = "<img src=x onerror=alert(1)>[red]\x1b[2J\u202e"

with det.core.init() as core:
    for step in range(1, 4):
        core.train.report_training_metrics(step, {NAME: float(step)})
        core.train.report_validation_metrics(step, {NAME: float(step), "step": step})
    core.train.set_status(NAME)
    print(NAME)
