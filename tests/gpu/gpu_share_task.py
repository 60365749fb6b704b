"""A task on a share of a device: takes most of its part, tries to take more, and holds what it has until it is told."""

from __future__ import annotations

import json
import os
import sys

import torch

from detlab import pytorch
from detlab.pytorch.context.trial_context import share_of

with pytorch.init(hparams={}, enable_tensorboard_logging=False) as context:
    share = share_of(0, os.environ)
    assert 0 < share < 1, share
    if context.device.type == "cuda":
        part = int(torch.cuda.get_device_properties(0).total_memory * share)
        held = torch.empty(int(part * 0.8), dtype=torch.uint8, device=context.device)
        try:
            torch.empty(int(part * 0.5), dtype=torch.uint8, device=context.device)
        except torch.OutOfMemoryError:
            beyond = "more was refused with OutOfMemoryError"
        else:
            raise SystemExit("it got more memory than its share")
        size = held.numel()
    else:
        size, beyond = 0, "no limit on a CPU"
    print("HOLDS " + json.dumps({"held": size, "beyond": beyond}), flush=True)
    sys.stdin.readline()
