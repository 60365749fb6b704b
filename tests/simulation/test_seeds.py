"""Single seeds: those that found a bug, that a seed is one run, and a run without faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from simulation.machines.faults import ENGINES, LEAST
from simulation.runs.chunks import CHUNKS, JOBS, check_kinds, check_size, simulate
from simulation.runs.patience import MARGIN, WALL
from simulation.runs.seeds import NAMED, NAMED_CLUSTERS, NAMED_ELASTIC

STEERED = (
    "act activated",
    "act concurrency_set",
    "act extended",
    "act paused",
    "act points_added",
    "act promotion_requested",
    "act stop_requested",
    "I1 acts",
    "clones",
    "pause_trial",
    "resume_trial",
)
"""What must happen in the searches that are steered."""
COLLECTED = (
    "act bookmarked",
    "act collected",
    "act collected again",
    "act deleted",
    "act restored",
    "act started from",
    "I6 needed by searches",
    "I6 removed",
    "acts refused: deleted",
    "bookmarked to the end",
    "checkpoints gone",
    "clones",
    "resume_trial",
)
"""What must happen in the searches whose checkpoints are collected."""
HANDED_OVER = (
    "engines are empty",
    "gangs met",
    "handed over as much as may be",
    "jobs that had begun before",
    "pods that had begun",
)
"""What must be looked at where an agent speaks for many nodes, and another one for a batch system."""
pytestmark = pytest.mark.timeout(2 * WALL + MARGIN)


@pytest.mark.parametrize("seed", sorted(NAMED), ids=lambda seed: f"seed-{seed}")
def test_seed_that_found_a_bug(seed: int, tmp_path: Path) -> None:
    simulate(tmp_path, "--seeds", f"{seed}:{seed + 1}", "--world", "search")


@pytest.mark.parametrize("seed", sorted(NAMED_CLUSTERS), ids=lambda seed: f"seed-{seed}")
def test_shared_cluster_that_found_a_bug(seed: int, tmp_path: Path) -> None:
    simulate(tmp_path, "--seeds", f"{seed}:{seed + 1}", "--world", "cluster")


@pytest.mark.parametrize("seed", sorted(NAMED_ELASTIC), ids=lambda seed: f"seed-{seed}")
def test_elastic_pool_that_found_a_bug(seed: int, tmp_path: Path) -> None:
    simulate(tmp_path, "--seeds", f"{seed}:{seed + 1}", "--world", "elastic")


def test_searches_that_pause_and_clone_trials_are_steered_through_faults(tmp_path: Path) -> None:
    """All promises; each act that was acknowledged is in the journal, once. 40 seeds, in `make soak` 400."""
    found = simulate(tmp_path, "--seeds", f"0:{20 * CHUNKS}", "--world", "steered", "--jobs", str(JOBS))
    assert found["least_faults"] >= LEAST
    missing = [kind for kind in STEERED if not found["checks"].get(kind)]
    assert missing == [], f"never happened: {missing}"


def test_i6_no_pinned_checkpoint_is_ever_lost(tmp_path: Path) -> None:
    """Searches whose checkpoints are collected while masters, agents, and the tasks that remove are killed."""
    found = simulate(tmp_path, "--seeds", f"0:{10 * CHUNKS}", "--world", "collected", "--jobs", str(JOBS))
    assert found["least_faults"] >= LEAST
    missing = [kind for kind in COLLECTED if not found["checks"].get(kind)]
    assert missing == [], f"never happened: {missing}"


def test_tasks_elsewhere_survive_nodes_that_come_and_go_lies_and_a_batch_system_that_forgets(tmp_path: Path) -> None:
    """All promises; pods and jobs that are said to run do, and none is left. 20 seeds, in `make soak` 200."""
    found = simulate(tmp_path, "--seeds", f"0:{10 * CHUNKS}", "--world", "engines", "--jobs", str(JOBS))
    assert found["least_faults"] >= LEAST
    check_size(found)
    missing = [kind for kind in ENGINES if not found["faults"].get(kind)]
    missing += [kind for kind in HANDED_OVER if not found["checks"].get(kind)]
    assert missing == [], f"never happened: {missing}"


def test_a_seed_is_one_run(tmp_path: Path) -> None:
    """The same seed gives the same trace to the byte, in another process and after another seed; in both worlds."""
    first = simulate(tmp_path, "--seeds", "3:6")["digests"]
    again = simulate(tmp_path, "--seeds", "4:6")["digests"]
    assert {seed: first[seed] for seed in again} == again
    assert len(set(first.values())) == 3


def test_without_faults_nothing_is_repeated(tmp_path: Path) -> None:
    found = simulate(tmp_path, "--seeds", "0:2", "--calm")
    assert found["faults"] == {}
    check_size(found)


def test_a_half_without_chunks_misses_no_fault(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """`DETLAB_SIMULATION_CHUNKS=1` leaves the odd half empty."""
    check_kinds([], tmp_path, record_property)
