"""DiesStoring: its first attempt is killed before the rename that publishes a checkpoint, its second right after it."""

import os
import signal

import detlab as det

info = det.get_cluster_info()
assert info is not None
plainly, renamed = os.rename, []


def rename(source, target, **more):
    renamed.append(target)
    if info.run == 1 and len(renamed) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    plainly(source, target, **more)
    if info.run == 2:
        os.kill(os.getpid(), signal.SIGKILL)


os.rename = rename
with det.core.init() as core:
    step = 0
    if info.latest_checkpoint is not None:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            step = int((path / "step").read_text())
    for number in (step + 1, step + 2):
        with core.checkpoint.store_path({"steps_completed": number}) as (folder, uuid):
            print("STORING", uuid, flush=True)
            (folder / "step").write_text(str(number))
    core.train.report_validation_metrics(number, {"error": 1.0, "step": number})
