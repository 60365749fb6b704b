"""NeverExits and IgnoresSigterm: reports its one validation, never polls, notes SIGTERM and goes on for ever."""

import signal
import time

import detlab as det


def say(what: str) -> None:
    print("TOY", what, f"{time.time():.4f}", flush=True)


signal.signal(signal.SIGTERM, lambda *_: say("sigterm"))
with det.core.init() as core:
    core.train.report_validation_metrics(1, {"error": 1.0, "step": 1})
    say("reported")
    while True:
        time.sleep(0.1)
        say("alive")
