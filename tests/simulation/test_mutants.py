"""The simulation finds bugs: each planted one (mutants/*.patch) breaks a promise within a few seeds.

A patch that no longer applies fails: plant the bug anew in the code as it is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest

from simulation.checks.promises import PROMISES
from simulation.runs import patience

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
MUTANTS = sorted(path.stem for path in (HERE / "mutants").glob("*.patch"))
AT_A_TIME = 8
"""Of so many each day has its own in `make test`; `DETLAB_ALL_MUTANTS=1`, as in `make soak`, tries all."""
_TURNS = -(-len(MUTANTS) // AT_A_TIME)
TRIED = MUTANTS if os.environ.get("DETLAB_ALL_MUTANTS") else MUTANTS[date.today().toordinal() % _TURNS :: _TURNS]
ROOTS = ("harness/detlab", "hub_ext/detlab_hub", "hub_ext/detlab_agent")
SEEDS = 400
"""Enough for each of them, several times over."""
COLLECTED = ("pins_of_searches_forgotten", "pins_of_trials_forgotten", "restored_while_it_is_removed")
ENGINES = (
    "end_on_a_vanished_node_unheard",
    "forgotten_task_waited_for",
    "handed_over_beyond_max_slots",
    "launch_without_its_node",
    "lost_job_waited_for",
    "nodes_fall_silent",
    "parts_of_an_agent_are_one",
    "runs_before_it_has_begun",
)
WORLD = {
    **dict.fromkeys(("launch_forgotten_by_the_next_master", "lost_answer_is_no_launch"), "elastic"),
    **dict.fromkeys(COLLECTED, "collected"),
    **dict.fromkeys(ENGINES, "engines"),
}
"""In which world a bug shows, where that is not the one of the seed."""
CAUGHT_BY = {
    "agents_of_any_pool": 3,
    "closed_slots_are_given": 25,
    "demands_of_those_that_run_forgotten": 69,
    "exit_said_once": 3,
    "forgotten_task_waited_for": 1,
    "gang_begins_before_all_are_there": 1,
    "gang_goes_on_without_a_lost_part": 1,
    "gang_over_with_its_first_part": 1,
    "labels_forgotten": 9,
    "launch_forgotten_by_the_next_master": 30,
    "lease_without_an_epoch": 1,
    "lost_answer_is_no_launch": 49,
    "max_slots_forgotten": 1,
    "max_time_counted_anew": 1,
    "memory_not_asked_for": 81,
    "missing_attempt_fence": 1,
    "missing_lease_fence": 1,
    "needless_victims": 3,
    "pins_of_searches_forgotten": 8,
    "preempted_without_end": 151,
    "preemption_counts_as_a_restart": 1,
    "queue_names_everybody": 11,
    "quota_of_each_pool_alone": 127,
    "reason_names_a_stranger": 47,
    "replay_applied_twice": 2,
    "reports_taken_backwards": 24,
    "restored_while_it_is_removed": 7,
    "room_given_twice_in_a_pass": 1,
    "shares_told_as_devices": 53,
    "slots_given_twice": 3,
    "tired_trials_starve": 15,
    "told_to_leave_again": 1,
    "work_on_a_disabled_agent": 23,
    "work_on_a_drained_agent": 3,
}
"""The seed that caught it last, where seed 0 does not: it is tried first. One that no longer does costs time, no
proof."""


def test_there_are_at_least_ten_planted_bugs() -> None:
    assert len(MUTANTS) >= 10
    assert set(CAUGHT_BY) | set(WORLD) <= set(MUTANTS)
    assert all(0 <= seed < SEEDS for seed in CAUGHT_BY.values())


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_applies(name: str) -> None:
    """Also those that have their turn on another day."""
    patch = HERE / "mutants" / f"{name}.patch"
    done = subprocess.run(
        ["git", "apply", "--check", "-p1", patch], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{patch} no longer applies: plant this bug anew\n{done.stderr}"


def simulate(folder: Path, first: int, end: int, world: str | None) -> subprocess.CompletedProcess[str]:
    """Run seeds on the code that lies in a folder, up to the first that breaks a promise."""
    paths = [folder / "harness", folder / "hub_ext", HERE.parent]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    chosen = ["--world", world] if world else []
    return patience.simulate(["--seeds", f"{first}:{end}", "--stop", *chosen], 580, env=environment, cwd=folder)


@pytest.mark.timeout(2 * patience.WALL + patience.MARGIN)
@pytest.mark.parametrize("name", TRIED)
def test_mutant_is_caught(name: str, tmp_path: Path) -> None:
    for root in ROOTS:
        (tmp_path / root).parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(REPOSITORY / root, tmp_path / root, ignore=shutil.ignore_patterns("static"))
    patch = HERE / "mutants" / f"{name}.patch"
    outside = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    applied = subprocess.run(
        ["git", "apply", "-p1", patch], cwd=tmp_path, env=outside, capture_output=True, text=True, check=False
    )
    assert applied.returncode == 0, f"{patch} no longer applies: plant this bug anew\n{applied.stderr}"
    known = CAUGHT_BY.get(name, 0)
    world = WORLD.get(name)
    found = simulate(tmp_path, known, known + 1, world)
    if found.returncode != 1:
        print(f"{name} is not caught by seed {known} any more: say in CAUGHT_BY which one does")
        found = simulate(tmp_path, 0, SEEDS, world)
    assert found.returncode == 1, (
        f"{name} was not caught in {SEEDS} seeds\n{found.stdout[-2000:]}{found.stderr[-2000:]}"
    )
    first = found.stdout.splitlines()[0]
    said = re.match(rf"seed \d+: ({'|'.join(PROMISES)}): ", first)
    assert said is not None, f"caught by accident, not by a promise: {first}\n{found.stdout[-2000:]}"
    print(first)
