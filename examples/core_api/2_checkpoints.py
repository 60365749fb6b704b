"""Stage 2: the script can be interrupted, by a pause, a crash or a reboot, and goes on where it was."""

import json
import logging
from pathlib import Path

from tumours import Classifier, load

import detlab as det

EPOCHS = 40
CHECKPOINT_EVERY = 10


def save(core_context: det.core.Context, classifier: Classifier, epoch: int, trial_id: int) -> None:
    # New: a directory to write into. It becomes a checkpoint when the block ends well, or else nothing at all.
    with core_context.checkpoint.store_path({"steps_completed": epoch}) as (path, uuid):
        classifier.save(path / "weights.txt")
        (path / "state.json").write_text(json.dumps({"epoch": epoch, "trial_id": trial_id}))
    logging.info("checkpoint %s holds epoch %d", uuid, epoch)


def restore(classifier: Classifier, path: Path, trial_id: int) -> int:
    """Take over a checkpoint; return the epoch it was made after."""
    classifier.restore(path / "weights.txt")
    state = json.loads((path / "state.json").read_text())
    # Somebody else's checkpoint is a warm start: its weights are welcome, its epochs are not ours.
    return int(state["epoch"]) if state["trial_id"] == trial_id else 0


def main(core_context: det.core.Context, latest_checkpoint: str | None, trial_id: int) -> None:
    train, validation = load()
    classifier, done = Classifier(), 0
    # New: continue from the checkpoint that the cluster names.
    if latest_checkpoint is not None:
        with core_context.checkpoint.restore_path(latest_checkpoint) as path:
            done = restore(classifier, path, trial_id)
        logging.info("going on after epoch %d", done)
    for epoch in range(done + 1, EPOCHS + 1):
        classifier.train_epoch(train, epoch, learning_rate=0.02)
        core_context.train.report_training_metrics(steps_completed=epoch, metrics={"loss": classifier.loss(train)})
        core_context.train.report_progress(epoch / EPOCHS)
        # New: does somebody want us to stop? Then save first; the answer costs nothing, so ask often.
        stop = core_context.preempt.should_preempt()
        if stop or epoch % CHECKPOINT_EVERY == 0:
            core_context.train.report_validation_metrics(
                steps_completed=epoch, metrics={"loss": classifier.loss(validation)}
            )
            save(core_context, classifier, epoch, trial_id)
        if stop:
            logging.info("stopping after epoch %d, as asked", epoch)
            return


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    info = det.get_cluster_info()  # New: None off-cluster
    with det.core.init() as core_context:
        main(
            core_context,
            latest_checkpoint=info.latest_checkpoint if info else None,
            trial_id=info.trial.trial_id if info else 0,
        )
