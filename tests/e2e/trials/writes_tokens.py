"""Appends to a shared file: when it begins, before each reported step, once a second, when it has saved, left, ended.

hparams: book (the file), steps (at most), pause (seconds a step), save_every, calm (a file: once it is there, a trial
ends). Over several nodes there is a process on each of them; nobody reports a step before all have done it.
"""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import detlab as det
from detlab.launch.ranks import rendezvous

BEAT = 1.0


class Book:
    """The file, and the line that this process writes there."""

    def __init__(self, info: det.ClusterInfo) -> None:
        self._file = os.open(info.trial.hparams["book"], os.O_WRONLY | os.O_APPEND)
        self.line: dict[str, Any] = {
            "token": info.allocation_id,
            "trial": info.trial.trial_id,
            "run": info.run,
            "rank": info.container_rank,
            "agent": info.agent_id,
            "slots": list(info.slot_ids),
            "pid": os.getpid(),
            "peers": [],
            "step": 0,
        }

    def write(self, what: str) -> None:
        """Append it, by one write."""
        os.write(self._file, (json.dumps({"what": what, **self.line, "time": time.time()}) + "\n").encode())

    def say(self, what: str) -> None:
        """Print something, in a way that a thread may at the very end of a process, too."""
        os.write(1, f"run {self.line['run']} {what}\n".encode())

    def beat(self) -> None:
        """Write and say for ever that this process lives: also while it waits for another that is cut off."""
        while True:
            time.sleep(BEAT)
            self.write("lives")
            self.say("lives")


def together(info: det.ClusterInfo) -> Any:
    """The ranks of a trial over several nodes, one on each, without torch; None for one node."""
    size = len(info.container_addrs)
    if size < 2:
        return None
    met = rendezvous.meet_the_others(info)
    os.environ.update(rendezvous.meeting_environment(met))
    return det.core.DistributedContext(
        rank=met.node, size=size, local_rank=0, local_size=1, cross_rank=met.node, cross_size=size, chief_ip=met.chief
    )


def restored(info: det.ClusterInfo, core: Any) -> int:
    """The step that the checkpoint has."""
    if info.latest_checkpoint is None:
        return 0
    with core.checkpoint.restore_path(info.latest_checkpoint) as path:
        return int((path / "step").read_text())


def save(core: Any, step: int) -> None:
    """Have the chief store a checkpoint; return once it is committed, on every rank."""
    if core.distributed.rank == 0:
        with core.checkpoint.store_path({"steps_completed": step}) as (path, _):
            Path(path / "step").write_text(str(step))
    core.distributed.broadcast(None)


def train(info: det.ClusterInfo, core: Any, book: Book) -> bool:
    """Do steps until the end, or until this attempt is to leave; whether it came to the end."""
    hparams, line = info.trial.hparams, book.line
    steps, every, calm = int(hparams["steps"]), int(hparams["save_every"]), Path(hparams["calm"])
    while line["step"] < steps:
        time.sleep(float(hparams["pause"]))
        line["step"] += 1
        book.write("step")
        book.say(f"does step {line['step']}")
        is_calm = core.distributed.allgather(calm.exists())[0]
        if core.distributed.rank == 0:
            core.train.report_training_metrics(line["step"], {"run": info.run})
        leaves = core.preempt.should_preempt()
        if leaves or line["step"] % every == 0:
            save(core, line["step"])
            book.write("saved")
        if leaves:
            return False
        if is_calm:
            break
    return True


def main() -> None:
    info = det.get_cluster_info()
    assert info is not None
    book = Book(info)
    book.write("begin")
    threading.Thread(target=book.beat, daemon=True).start()
    with det.core.init(distributed=together(info)) as core:
        book.line["peers"] = core.distributed.allgather(info.allocation_id)
        book.line["step"] = restored(info, core)
        ended = train(info, core, book)
        if ended and core.distributed.rank == 0:
            core.train.report_validation_metrics(book.line["step"], {"error": 0.5})
    book.write("end" if ended else "preempted")


main()
