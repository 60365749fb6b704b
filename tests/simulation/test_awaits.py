"""The master of a calm search dies at its awaits: evenly spread ones here, each of them in `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.awaits import evenly
from simulation.runs.chunks import simulate
from simulation.runs.patience import MARGIN, WALL

TRIED = 60
MANY = 1500
"""Awaits that a master has in a search, at least: with fewer the search would be no whole one."""


@pytest.mark.timeout(WALL + MARGIN)
def test_a_master_that_dies_at_an_await_breaks_no_promise(tmp_path: Path) -> None:
    found = simulate(tmp_path, "--awaits", str(TRIED))
    assert found["problems"] == {}
    assert found["tried"] == TRIED
    assert found["awaits"] > MANY
    assert 0 < found["alike"] < TRIED, "some crashes change the order in which searches are told, some do not"


def test_awaits_are_evenly_spread_and_all_of_them_where_all_are_wanted() -> None:
    assert evenly(5, 0) == [1, 2, 3, 4, 5]
    assert evenly(9, 3) == [1, 5, 9]
    assert evenly(2, 60) == [1, 2]
