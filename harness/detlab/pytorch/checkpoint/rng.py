"""The random number generators of this process: PyTorch (CPU and its own GPU), NumPy and Python."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def seed(value: int) -> None:
    """Seed all generators of this process.

    Args:
        value: Below 2**64; NumPy takes its lower 32 bits.
    """
    random.seed(value)
    np.random.seed(value % 2**32)
    torch.manual_seed(value)  # seeds the GPUs too


def capture() -> dict[str, Any]:
    """Return the states of all generators: `torch`, `cuda` (None without a GPU), `numpy`, `python`."""
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        "numpy": np.random.get_state(),
        "python": random.getstate(),
    }


def restore(states: dict[str, Any]) -> None:
    """Put all generators into captured states; what is missing, or of a device that is not here, is left alone.

    Args:
        states: What `capture` returned; lists are accepted in place of tuples.
    """
    if states.get("torch") is not None:
        torch.set_rng_state(states["torch"].cpu())
    if states.get("cuda") is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"].cpu())
    if states.get("numpy") is not None:
        np.random.set_state(tuple(states["numpy"]))
    if states.get("python") is not None:
        version, internal, gauss = states["python"]
        random.setstate((version, tuple(internal), gauss))
