"""NeverReports: ends well without one word about the searcher's metric."""

import detlab as det

with det.core.init() as core:
    core.train.report_validation_metrics(1, {"something_else": 1.0, "step": 1})
