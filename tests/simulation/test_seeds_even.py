"""Whole searches on simulated clusters, with faults, and every promise checked: the even chunks of seeds.

The others are in `test_seeds_odd.py`; see `chunks.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.chunks import EVEN, check_chunk, check_kinds


@pytest.mark.timeout(900)
@pytest.mark.parametrize("chunk", EVEN)
def test_every_promise_holds(chunk: int, tmp_path: Path) -> None:
    check_chunk(chunk, tmp_path)


@pytest.mark.timeout(900)
def test_every_kind_of_fault_happened(tmp_path: Path) -> None:
    """Over the chunks of this file; prints how often."""
    check_kinds(EVEN, tmp_path)
