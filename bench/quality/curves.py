"""Learning curves as tasks of a search: what each point of a space reports after each unit of training."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parent / "data" / "curves.npz"


def points(sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """List all points of a space of ordered values, the last name's first."""
    for indices in itertools.product(*(range(size) for size in sizes.values())):
        yield dict(zip(sizes, indices, strict=True))
