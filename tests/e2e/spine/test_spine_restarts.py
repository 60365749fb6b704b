"""kill -9 of a trial, at each of its three levels: it goes on from its last checkpoint, metrics whole."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from spine_lab import Lab, alive, single, task_dir, until

from detlab.client.resources import Experiment

pytestmark = pytest.mark.hub

STEPS = 24
LEVELS = ("the user's process", "the launcher", "the whole group")


@pytest.fixture(scope="module")
def victims(lab: Lab, meeting_place: Path) -> Iterator[dict[str, tuple[Experiment, Path]]]:
    """One trial per level, running at once; each waits before its last step for a file of its own."""
    found = {}
    for number, level in enumerate(LEVELS):
        hold = meeting_place / f"restart-{number}"
        hparams = {"steps": STEPS, "save_every": 5, "hold_until": str(hold)}
        found[level] = (lab.submit(single("toy.py", hparams=hparams, max_restarts=3, name=level)), hold)
    yield found
    for _, hold in found.values():
        hold.touch()


@pytest.mark.parametrize("level", LEVELS)
def test_kill_9_of_a_trial_restarts_it_from_its_last_checkpoint_with_no_gap_and_no_double(
    lab: Lab, victims: dict[str, tuple[Experiment, Path]], level: str
) -> None:
    experiment, hold = victims[level]
    trial = lab.at_step(lab.first_trial(experiment), STEPS - 1)
    identity = json.loads((task_dir(lab.cluster, trial) / "launcher.json").read_text())
    launcher, user = int(identity["pid"]), int(identity["pgid"])
    assert alive(launcher)
    assert alive(user)
    if level == LEVELS[0]:
        os.kill(user, signal.SIGKILL)
    elif level == LEVELS[1]:
        os.kill(launcher, signal.SIGKILL)
    else:
        os.killpg(user, signal.SIGKILL)
        os.killpg(launcher, signal.SIGKILL)
    again = until("the next attempt", lambda: (now := lab.trial(trial)).view.run == 2 and now, 20)
    assert again.view.restarts == 1
    until("the first attempt is gone", lambda: not alive(user) and not alive(launcher), 10)
    hold.touch()
    ended = lab.completed(experiment, 60)
    (after,) = ended.list_trials()
    assert (after.view.restarts, after.view.run) == (1, 2)
    starts = [int(more[0]) for _, _, more in lab.journal(after, "start")]
    assert starts == [0, 20], "the second attempt begins at the last checkpoint"
    for group, name in (("training", "loss"), ("validation", "error")):
        assert lab.steps(after, group, name) == list(range(1, STEPS + 1))
    view = lab.trial(after).view
    assert view.summary["training"]["loss"].count == STEPS
    assert view.latest_checkpoint in {checkpoint.uuid for checkpoint in after.list_checkpoints()}
