"""Appends a line to a shared file at its begin, before each reported step, and at its end; says so, saves and resumes.

hparams: book (the file), steps, pause (seconds a step), save_every.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import detlab as det


def main() -> None:
    info = det.get_cluster_info()
    assert info is not None
    hparams = info.trial.hparams
    steps, every = int(hparams["steps"]), int(hparams["save_every"])
    book = os.open(hparams["book"], os.O_WRONLY | os.O_APPEND)
    known = {"token": info.allocation_id, "trial": info.trial.trial_id, "run": info.run, "agent": info.agent_id}

    def write(what: str, step: int) -> None:
        line = {
            "what": what,
            **known,
            "slots": list(info.slot_ids),
            "pid": os.getpid(),
            "step": step,
            "time": time.time(),
        }
        os.write(book, (json.dumps(line) + "\n").encode())

    def restore(core: Any) -> int:
        if info.latest_checkpoint is None:
            return 0
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            return int((path / "step").read_text())

    def save(core: Any, step: int) -> None:
        with core.checkpoint.store_path({"steps_completed": step}) as (path, _):
            Path(path / "step").write_text(str(step))

    write("begin", 0)
    with det.core.init() as core:
        step = restore(core)
        while step < steps:
            time.sleep(float(hparams["pause"]))
            step += 1
            write("step", step)
            print(f"run {info.run} does step {step}", flush=True)
            core.train.report_training_metrics(step, {"run": info.run})
            if step % every == 0:
                save(core, step)
            if core.preempt.should_preempt():
                return
        core.train.report_validation_metrics(steps, {"error": 0.5})
    write("end", steps)


main()
