"""A loop over the searcher's operations, as Determined's Core API tutorials had it; the error falls towards `x`."""

import pickle
import warnings

import detlab as det
from detlab import core

warnings.filterwarnings("ignore", category=FutureWarning, message=r"SearcherContext\.operations")

info = det.get_cluster_info()
x = info.trial.hparams["x"]
with core.init() as context:
    epoch = 0
    if info.latest_checkpoint is not None:
        with context.checkpoint.restore_path(info.latest_checkpoint) as path:
            epoch = pickle.loads((path / "epoch").read_bytes())
    error = None
    for op in context.searcher.operations():
        print("operation of length", op.length)
        while epoch < op.length:
            epoch += 1
            error = x + 1 / epoch
            context.train.report_training_metrics(steps_completed=10 * epoch, metrics={"loss": error})
            context.train.report_validation_metrics(
                steps_completed=10 * epoch, metrics={"error": error, "epochs": epoch}
            )
            op.report_progress(epoch)
            with context.checkpoint.store_path({"steps_completed": 10 * epoch}) as (path, _):
                (path / "epoch").write_bytes(pickle.dumps(epoch))
            if context.preempt.should_preempt():
                raise SystemExit
        op.report_completed(error)
