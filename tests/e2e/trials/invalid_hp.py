"""InvalidHp: refuses a part of the search space."""

import detlab as det

info = det.get_cluster_info()
assert info is not None
with det.core.init() as core:
    if info.trial.hparams["x"] < info.trial.hparams["least"]:
        raise det.InvalidHP(f"x is {info.trial.hparams['x']}")
    core.train.report_validation_metrics(1, {"error": info.trial.hparams["x"], "step": 1})
