"""Many seeds: whole searches on simulated clusters, with faults, and every promise checked.

Each chunk is a process of its own (`python -m simulation`), because a seed is one run only where sets have one order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from simulation.faults import KINDS, LEAST
from simulation.seeds import NAMED

TESTS = Path(__file__).parents[1]
CHUNK = 100
TRIAL_DEATHS = ("trial_killed", "trial_killed_torn_spool", "trial_killed_torn_checkpoint")
"""Each of these is rare enough to be missing from one chunk; not all of them."""
CHUNKS = int(os.environ.get("DETLAB_SIMULATION_CHUNKS", "2"))
"""Five minutes of one core; `make soak` runs as many as wished."""
_done: dict[int, Counter[str]] = {}
"""chunk -> faults by kind, of the chunks that ran well"""


def simulate(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Run seeds in a fresh process; return the counts."""
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "simulation", *arguments, "--json", str(report)]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=880)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    result: dict[str, Any] = json.loads(report.read_text())
    return result


@pytest.mark.timeout(900)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_holds(chunk: int, tmp_path: Path) -> None:
    found = simulate(tmp_path, "--seeds", f"{chunk * CHUNK}:{(chunk + 1) * CHUNK}")
    assert found["least_faults"] >= LEAST
    assert found["least_trials"] >= 8
    counts = found["faults"]
    assert [kind for kind in KINDS if kind not in TRIAL_DEATHS and not counts.get(kind)] == []
    assert sum(counts.get(kind, 0) for kind in TRIAL_DEATHS) > 0
    _done[chunk] = Counter(counts)


def test_every_kind_of_fault_happened() -> None:
    """Over all chunks; prints how often."""
    if len(_done) < CHUNKS:
        pytest.skip("not all seeds were run here, or not well")
    total = sum(_done.values(), Counter[str]())
    print(f"{CHUNKS * CHUNK} seeds:", ", ".join(f"{kind} {total[kind]}" for kind in KINDS))
    assert [kind for kind in KINDS if not total[kind]] == []


@pytest.mark.parametrize("seed", sorted(NAMED), ids=lambda seed: f"seed-{seed}")
def test_seed_that_found_a_bug(seed: int, tmp_path: Path) -> None:
    simulate(tmp_path, "--seeds", f"{seed}:{seed + 1}")


def test_a_seed_is_one_run(tmp_path: Path) -> None:
    """The same seed gives the same trace to the byte, in another process and after another seed."""
    first = simulate(tmp_path, "--seeds", "3:6")["digests"]
    again = simulate(tmp_path, "--seeds", "4:6")["digests"]
    assert {seed: first[seed] for seed in again} == again
    assert len(set(first.values())) == 3


def test_without_faults_nothing_is_repeated(tmp_path: Path) -> None:
    found = simulate(tmp_path, "--seeds", "0:2", "--calm")
    assert found["faults"] == {}
    assert found["least_trials"] >= 8
