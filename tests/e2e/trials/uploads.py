"""A trial that stores a checkpoint of some size after every few steps, by `upload`, and goes on from the newest.

hparams: steps, pause (seconds a step), every (steps between checkpoints), size (bytes of one).
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import detlab as det


def restore(core: Any, info: Any) -> int:
    if info.latest_checkpoint is None:
        return 0
    with core.checkpoint.restore_path(info.latest_checkpoint) as path:
        return int(json.loads((path / "state.json").read_text())["step"])


def main() -> None:
    info = det.get_cluster_info()
    assert info is not None
    hparams = info.trial.hparams
    with det.core.init() as core, tempfile.TemporaryDirectory() as folder:
        Path(folder, "weights").write_bytes(bytes(int(hparams["size"])))
        for step in range(restore(core, info) + 1, int(hparams["steps"]) + 1):
            time.sleep(float(hparams["pause"]))
            core.train.report_training_metrics(step, {"loss": 1.0 / step})
            core.train.report_validation_metrics(step, {"error": 1.0 / step})
            if step % int(hparams["every"]) == 0:
                Path(folder, "state.json").write_text(json.dumps({"step": step}))
                core.checkpoint.upload(folder, {"steps_completed": step})


main()
