"""Whole searches on simulated clusters, with faults, and every promise checked: the even chunks of seeds.

The others are in `test_seeds_odd.py`; see `chunks.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from simulation.runs.chunks import EVEN, check_chunk, check_kinds
from simulation.runs.patience import MARGIN, WALL


@pytest.mark.timeout(WALL + MARGIN)
@pytest.mark.parametrize("chunk", EVEN)
def test_every_promise_holds(chunk: int, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    check_chunk(chunk, tmp_path, record_property)


@pytest.mark.timeout(len(EVEN) * WALL + MARGIN)
def test_every_kind_of_fault_happened(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Over the chunks of this file; prints how often."""
    check_kinds(EVEN, tmp_path, record_property)
