"""Stage 4: several processes train one model together. Run it with 1 process or with 4, the curve is the same."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from tumours import Classifier, load

import detlab as det

EPOCHS = 40
VALIDATE_EVERY = 10
OFF_CLUSTER = {"learning_rate": 0.02, "batch_size": 32}


@contextlib.contextmanager
def process_group() -> Iterator[det.core.DistributedContext | None]:
    """Join the other processes; alone, when torchrun did not start us."""
    if not dist.is_torchelastic_launched():
        yield None
        return
    dist.init_process_group("gloo")  # "nccl" between GPUs
    try:
        # New: tells detlab who we are among how many.
        yield det.core.DistributedContext.from_torch_distributed()
    finally:
        dist.destroy_process_group()


def add_up(gradient: np.ndarray) -> np.ndarray:
    """Return the sum of all processes' gradients."""
    if dist.is_initialized():
        dist.all_reduce(torch.from_numpy(gradient))  # in place: the tensor shares the array's memory
    return gradient


def restore(classifier: Classifier, path: Path, rank: int) -> tuple[int, int]:
    classifier.restore(path / "weights.txt")
    return int(np.loadtxt(path / "epoch.txt")), int(np.loadtxt(path / f"rows-{rank}.txt"))


def main(core_context: det.core.Context, latest_checkpoint: str | None, hparams: dict[str, Any]) -> None:
    rank, size = core_context.distributed.rank, core_context.distributed.size
    train, validation = load()
    classifier, done, rows = Classifier(), 0, 0
    if latest_checkpoint is not None:
        # All ranks call together; the files are fetched once per node.
        with core_context.checkpoint.restore_path(latest_checkpoint) as path:
            done, rows = restore(classifier, path, rank)
    logging.info("rank %d of %d starts after epoch %d", rank, size, done)
    for epoch in range(done + 1, EPOCHS + 1):
        rows += classifier.train_epoch(
            train,
            epoch,
            learning_rate=hparams["learning_rate"],
            batch_size=hparams["batch_size"],
            share=lambda batch: batch[rank::size],
            combine=add_up,
        )
        # All ranks ask, and all get the chief's answer, so that they stop after the same epoch.
        stop = core_context.preempt.should_preempt()
        if stop or epoch % VALIDATE_EVERY == 0:
            # New: small values travel between ranks without torch.
            counts = core_context.distributed.gather(rows)
            # New: only the chief reports …
            if rank == 0:
                metrics = {"loss": classifier.loss(validation), "epochs": epoch, "rows": sum(counts or [])}
                core_context.train.report_validation_metrics(steps_completed=epoch, metrics=metrics)
                core_context.train.report_progress(epoch / EPOCHS)
            # … and all put their own files into one checkpoint.
            metadata = {"steps_completed": epoch} if rank == 0 else None
            with core_context.checkpoint.store_path(metadata, shard=True) as (path, _):
                if rank == 0:
                    classifier.save(path / "weights.txt")
                    np.savetxt(path / "epoch.txt", [epoch], fmt="%d")
                np.savetxt(path / f"rows-{rank}.txt", [rows], fmt="%d")
        if stop:
            return


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    info = det.get_cluster_info()
    with process_group() as distributed, det.core.init(distributed=distributed) as core_context:
        main(
            core_context,
            latest_checkpoint=info.latest_checkpoint if info else None,
            hparams=info.trial.hparams if info else OFF_CLUSTER,
        )
