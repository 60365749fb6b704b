"""A rank: trains with the trainer, adds over the process group, and says what it saw."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from gpu_ranks import RESULT
from gpu_trials import CONFIG, Course, CourseTrial

from detlab import pytorch
from detlab.pytorch.context.trial_context import share_of

with pytorch.init(
    hparams={}, exp_conf=CONFIG, checkpoint_storage=str(Path.cwd() / "storage"), enable_tensorboard_logging=False
) as context:
    course = Course()
    trial = CourseTrial(context, course)
    pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(10), checkpoint_policy="none")
    rank = dist.get_rank()
    added = torch.tensor([rank + 1.0], device=context.device)
    dist.all_reduce(added)
    on_cpu = torch.tensor([rank + 1.0])
    dist.all_reduce(on_cpu)
    assert added.item() == on_cpu.item()
    kinds = ["cpu", *(["cuda"] if context.device.type == "cuda" else [])]
    group = dist.group.WORLD
    backends = ",".join(f"{kind}:{group._get_backend(torch.device(kind)).name()}" for kind in kinds)
    found = {
        "rank": rank,
        "size": dist.get_world_size(),
        "device": str(context.device),
        "share": share_of(0, os.environ),
        "backends": backends,
        "sum": added.item(),
        "losses": course.losses,
        "nccl": "" if len(kinds) == 1 else f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}",
    }
    print(RESULT + json.dumps(found), flush=True)
