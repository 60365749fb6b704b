"""A well-behaved trial: deterministic in its hyperparameters, saves, resumes, polls, says what it does.

hparams: x (quality), steps, pause (seconds a step), every (steps between validations), save_every (0: never),
hold_until (a file: the last step is only done once it exists).
Every line of its journal is `TOY <what> <seconds since the epoch> <more>`.
"""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import detlab as det


def say(what: str, *more: object) -> None:
    print("TOY", what, f"{time.time():.4f}", *more, flush=True)


def on_term(number: int, frame: object) -> None:
    say("sigterm")
    raise SystemExit(128 + number)


def restore(core: Any, info: Any) -> int:
    if info.latest_checkpoint is None:
        return 0
    with core.checkpoint.restore_path(info.latest_checkpoint) as path:
        return int(json.loads((path / "state.json").read_text())["step"])


def save(core: Any, step: int) -> None:
    with core.checkpoint.store_path({"steps_completed": step}) as (path, uuid):
        (path / "state.json").write_text(json.dumps({"step": step}))
    say("saved", step, uuid)


def main() -> None:
    signal.signal(signal.SIGTERM, on_term)
    info = det.get_cluster_info()
    assert info is not None
    hparams = info.trial.hparams
    steps, pause = int(hparams.get("steps", 6)), float(hparams.get("pause", 0.05))
    every, save_every = int(hparams.get("every", 1)), int(hparams.get("save_every", 0))
    hold = hparams.get("hold_until")
    with det.core.init() as core:
        step = restore(core, info)
        say("start", step, os.getpid())
        while step < steps:
            time.sleep(pause)  # the training
            while hold and step + 1 == steps and not Path(hold).exists() and not core.preempt.should_preempt():
                time.sleep(pause)
            step += 1
            loss = float(hparams.get("x", 1.0)) + 1.0 / step
            core.train.report_training_metrics(step, {"loss": loss})
            if step % every == 0 or step == steps:
                core.train.report_validation_metrics(step, {"error": loss, "step": step})
            if save_every and step % save_every == 0:
                save(core, step)
            if core.preempt.should_preempt():
                say("preempted", step)
                if save_every and step % save_every:
                    save(core, step)
                return
            say("asked", step)
        say("done", step)


main()
