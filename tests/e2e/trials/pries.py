"""Pries: a task that tries to read what is not its own; prints what it could read.

hparams: paths, a list of files and directories. It prints `PRY <path> <outcome>` for each.
"""

import os
from pathlib import Path

import detlab as det

info = det.get_cluster_info()
assert info is not None
print("PRY uid", os.getuid(), flush=True)
for name in info.trial.hparams["paths"]:
    path = Path(name)
    try:
        outcome = (
            "read "
            + (",".join(sorted(each.name for each in path.iterdir())) if path.is_dir() else path.read_text())[:20]
        )
    except OSError as error:
        outcome = f"refused {type(error).__name__}"
    print("PRY", name, outcome, flush=True)
for key in sorted(os.environ):
    print("PRY-ENV", key, flush=True)
with det.core.init() as core:
    with core.checkpoint.store_path({"steps_completed": 1}) as (folder, uuid):
        (folder / "private.txt").write_text("private")
    core.train.report_validation_metrics(1, {"error": 1.0, "step": 1})
    print("PRY token", (info.task_dir / "token").read_text().strip(), flush=True)
