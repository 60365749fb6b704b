"""What a training at the level `dp` says that it has spent."""

from __future__ import annotations

from typing import Any

SPENT: dict[str, Any] = {
    "epsilon": 3.5,
    "delta": 1e-5,
    "target_epsilon": 8.0,
    "max_grad_norm": 1.0,
    "noise_multiplier": 0.8,
    "sample_rate": 0.01,
    "steps": 5,
}
