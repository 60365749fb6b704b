"""Stage 1: the script says how it is doing, and the cluster draws the curves."""

import logging

from tumours import Classifier, load

import detlab as det

EPOCHS = 40


def main(core_context: det.core.Context) -> None:
    train, validation = load()
    classifier = Classifier()
    for epoch in range(1, EPOCHS + 1):
        classifier.train_epoch(train, epoch, learning_rate=0.02)
        # New: "training" metrics as often as you like, and "validation" metrics when you have validated.
        core_context.train.report_training_metrics(steps_completed=epoch, metrics={"loss": classifier.loss(train)})
        if epoch % 10 == 0:
            core_context.train.report_validation_metrics(
                steps_completed=epoch,
                metrics={"loss": classifier.loss(validation), "accuracy": classifier.accuracy(validation)},
            )
        # New: how far we are, from 0 to 1.
        core_context.train.report_progress(epoch / EPOCHS)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    # New: the context. Off-cluster its reports are printed.
    with det.core.init() as core_context:
        main(core_context)
