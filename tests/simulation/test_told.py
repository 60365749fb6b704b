"""The counts of faults are printed at the end of a run of pytest that nobody asked to be loud."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.runs import patience

pytestmark = pytest.mark.timeout(patience.WALL + patience.MARGIN)  # it may run at the lowest priority, beside others
TESTS = Path(__file__).parents[1]
SUITE = """
import pytest
from simulation.runs.told import tell

@pytest.mark.parametrize("chunk", [0, 1])
def test_chunk(chunk, record_property):
    found = {"faults": {"cut": 3 + chunk, "end_lost": chunk}, "least_faults": 21 + chunk}
    found |= {"least_asha_trials": 9 - chunk, "least_asha_agents": 3 + chunk}
    tell(record_property, f"{chunk * 100}:{chunk * 100 + 100}", found)

def test_that_ran_one_of_them_again(record_property):
    test_chunk(1, record_property)
"""


def test_counts_come_from_all_workers_and_each_seed_counts_once(tmp_path: Path) -> None:
    suite = tmp_path / "test_suite.py"
    suite.write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "simulation.conftest", "-c", os.devnull, suite]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "200 simulated seeds, each with at least 21 faults, 8 trials of asynchronous halving, "
        "3 agents that ran them; faults by kind:\n"
    ) in done.stdout
    assert " cut 7, " in done.stdout
    assert " end_lost 1," in done.stdout
