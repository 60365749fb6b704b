"""A part of a GPU: the memory that a task may take of it, where a pool divides its devices."""

from __future__ import annotations

import json
from collections.abc import Mapping

import torch


def share_of(device: int, env: Mapping[str, str]) -> float:
    """Return how much of a GPU this task has, above 0 and at most 1: `DET_DEVICE_SHARES` of its environment.

    Args:
        device: The GPU, counted from 0 as torch sees it.
        env: The environment.
    """
    try:
        shares = json.loads(env.get("DET_DEVICE_SHARES", "[]"))
        share = float(shares[device])
    except (ValueError, LookupError, TypeError):
        return 1.0
    return share if 0.0 < share < 1.0 else 1.0


def keep_to_share(device: int, env: Mapping[str, str]) -> None:
    """Let torch's allocator take no more of a GPU's memory than this task's share: more is its own OutOfMemoryError.

    Args:
        device: The GPU, counted from 0 as torch sees it.
        env: The environment.
    """
    share = share_of(device, env)
    if share < 1.0:
        torch.cuda.set_per_process_memory_fraction(share, device)
