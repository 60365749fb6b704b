"""States of the random number generators of this process, as plain JSON: Python's, NumPy's and torch's."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np


def capture() -> dict[str, Any]:
    """Return the states; those of torch if it is loaded, and of its current GPU if it has one."""
    version, internal, gauss = random.getstate()
    name, keys, place, has_gauss, cached = np.random.get_state(legacy=True)
    states: dict[str, Any] = {
        "python": [version, list(internal), gauss],
        "numpy": [name, np.asarray(keys).tolist(), int(place), int(has_gauss), float(cached)],
    }
    if (torch := sys.modules.get("torch")) is not None:
        states["torch"] = torch.get_rng_state().tolist()
        if torch.cuda.is_available():
            states["cuda"] = torch.cuda.get_rng_state().tolist()
    return states


def restore(states: dict[str, Any]) -> None:
    """Put the generators into captured states; what is missing, or of a device that is not here, is left alone."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, place, has_gauss, cached = states["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), place, has_gauss, cached))
    if (torch := sys.modules.get("torch")) is None:
        return
    if "torch" in states:
        torch.set_rng_state(torch.tensor(states["torch"], dtype=torch.uint8))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(torch.tensor(states["cuda"], dtype=torch.uint8))
