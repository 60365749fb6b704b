"""Two ranks that get no better: each says at which step it was asked to leave."""

import time

import torch.distributed as dist

import detlab as det

dist.init_process_group("gloo")
with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()) as core:
    rank = core.distributed.rank
    for step in range(1, 1001):
        time.sleep(0.02)
        if rank == 0:
            core.train.report_validation_metrics(step, {"error": 0.5, "step": step})
        if core.preempt.should_preempt():
            print(f"rank {rank} leaves at step {step}", flush=True)
            break
    else:
        raise RuntimeError("nobody stopped it")
dist.destroy_process_group()
