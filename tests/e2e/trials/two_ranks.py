"""TwoRanks: torch.distributed with gloo; every rank speaks, the chief reports; `fail_rank` raises in its rank."""

import torch
import torch.distributed as dist

import detlab as det

dist.init_process_group("gloo")
info = det.get_cluster_info()
assert info is not None
with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()) as core:
    rank, size = core.distributed.rank, core.distributed.size
    print(f"hello of {rank} of {size}", flush=True)
    total = torch.ones(1)
    dist.all_reduce(total)
    dist.barrier()
    if rank == info.trial.hparams.get("fail_rank", -1):
        raise RuntimeError(f"rank {rank} has had enough")
    for step in range(1, 4):
        if rank == 0:
            core.train.report_training_metrics(step, {"total": float(total)})
            core.train.report_validation_metrics(step, {"error": 1.0 / step, "step": step})
    core.preempt.should_preempt()
dist.destroy_process_group()
