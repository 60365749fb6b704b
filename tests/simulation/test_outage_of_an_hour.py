"""An hour without a master, in virtual time: 64 trials on 16 agents train on, and nothing of it is lost or repeated."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest

from simulation.machines.outage import HOUR, LENGTH, SAVED_STEP, SAVER_LENGTH, SEEN, STEP, TRIALS, saver
from simulation.runs import patience
from simulation.runs.chunks import TESTS

pytestmark = pytest.mark.timeout(patience.WALL + patience.MARGIN)
SIMULATE = """
import json, sys
from simulation.machines.outage import Outage
from simulation.bench import Bench

found = {}

def look(world):
    found["trials"] = world.promises._all("SELECT id, state, run, restarts, end_reason FROM trials")
    found["events"] = world.promises._all("SELECT trial_id, data FROM events WHERE kind = 'metrics' ORDER BY id")
    found["points"] = world.promises._all(
        "SELECT s.trial_id, p.step, p.run, p.time FROM points p JOIN series s ON s.id = p.series_id "
        "JOIN metric_names n ON n.id = s.name_id WHERE n.name = 'loss' ORDER BY s.trial_id, p.step"
    )
    found["checkpoints"] = world.promises._all("SELECT trial_id, steps_completed, state FROM checkpoints")
    found["attempts"] = [(a.trial_id, a.run, len(a.reports), a.acked) for a in world.promises.attempts.values()]
    found["left"], found["back"], found["lives"] = world.left, world.back, len(world.masters)

bench = Bench()
try:
    outcome = bench.run(1, calm=True, kind=Outage, look=look)
finally:
    bench.close()
found["problem"], found["faults"], found["steps"] = outcome.problem, outcome.faults, outcome.steps
json.dump(found, sys.stdout)
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What there was at the end, from a process of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", SIMULATE]
    done = patience.run(command, 280, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    seen: dict[str, Any] = json.loads(done.stdout)
    assert seen["problem"] is None, seen["problem"]
    assert seen["lives"] == 2
    assert seen["back"] - seen["left"] == HOUR
    return seen


def length(trial: int) -> int:
    return SAVER_LENGTH if saver(trial) else LENGTH


def test_none_of_64_trials_is_restarted_by_an_hour_without_a_master(found: dict[str, Any]) -> None:
    assert len(found["trials"]) == TRIALS
    assert {tuple(more) for _, *more in found["trials"]} == {("COMPLETED", 1, 0, found["trials"][0][4])}
    assert sorted(trial for trial, *_ in found["attempts"]) == sorted(trial for trial, *_ in found["trials"])


def test_every_report_of_the_outage_arrives_once_and_in_order(found: dict[str, Any]) -> None:
    points: dict[int, list[int]] = {}
    away: dict[int, int] = {}
    for trial, step, run, at in found["points"]:
        assert run == 1
        points.setdefault(trial, []).append(step)
        away[trial] = away.get(trial, 0) + (found["left"] < at < found["back"])
    told: dict[int, list[int]] = {}
    for trial, data in found["events"]:
        told.setdefault(trial, []).append(json.loads(data)["steps_completed"])
    wanted = {trial: list(range(1, length(trial) + 1)) for trial, *_ in found["trials"]}
    assert points == wanted
    assert told == wanted, "who follows the stream is told each report once, in order"
    # They did report through all of it: 48 steps of an hour, but for those that wait for a commit.
    assert {away[trial] for trial in wanted if not saver(trial)} <= {int(HOUR / STEP) - 1, int(HOUR / STEP)}
    assert {away[trial] for trial in wanted if saver(trial)} <= set(range(1, SAVED_STEP - SEEN + 1))
    assert all(reports == acked == length(trial) for trial, _, reports, acked in found["attempts"])


def test_a_checkpoint_that_was_made_without_a_master_is_committed_when_it_is_back(found: dict[str, Any]) -> None:
    savers = {trial for trial, *_ in found["trials"] if saver(trial)}
    assert len(savers) == TRIALS / 4
    assert {(trial, steps, state) for trial, steps, state in found["checkpoints"]} == {
        (trial, SAVED_STEP, "COMPLETED") for trial in savers
    }
