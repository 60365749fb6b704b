"""FailsInStep7: an exception in the middle of training, deep enough to have frames, after many lines of output."""

import detlab as det


def train(core: object, step: int) -> float:
    print(f"step {step}")
    return 1.0 / (7 - step)


with det.core.init() as context:
    for number in range(1, 20):
        context.train.report_training_metrics(number, {"loss": train(context, number)})
