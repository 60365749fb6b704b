"""Whole searches on simulated clusters, with faults, and every promise checked: the odd chunks of seeds.

The others are in `test_seeds_even.py`; see `chunks.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from simulation.runs.chunks import ODD, check_chunk, check_kinds
from simulation.runs.patience import MARGIN, WALL


@pytest.mark.timeout(WALL + MARGIN)
@pytest.mark.parametrize("chunk", ODD)
def test_every_promise_holds(chunk: int, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    check_chunk(chunk, tmp_path, record_property)


@pytest.mark.timeout(len(ODD) * WALL + MARGIN)
def test_every_kind_of_fault_happened(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Over the chunks of this file; prints how often."""
    check_kinds(ODD, tmp_path, record_property)
