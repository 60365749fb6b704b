"""Somebody removes folders of the checkpoint storage while a trial runs, and then the trial dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from spine_lab import Lab, single, task_dir, until

from detlab.client.resources import Experiment, Trial
from detlab.schemas.wire import TrialState

pytestmark = pytest.mark.hub
STEPS = 12


def dies_without(lab: Lab, hold: Path, kept: int) -> tuple[Experiment, Trial, list[str]]:
    """Run a trial to its step before the last, remove its newest checkpoints but the `kept` oldest, and kill it."""
    hparams = {"steps": STEPS, "save_every": 3, "pause": 0.02, "hold_until": str(hold)}
    experiment = lab.submit(single("toy.py", hparams=hparams, max_restarts=5, name=f"keeps {kept}"))
    trial = lab.at_step(lab.first_trial(experiment), STEPS - 1)
    saved = sorted(trial.list_checkpoints(), key=lambda one: one.steps_completed)
    assert [one.steps_completed for one in saved] == [3, 6, 9]
    for one in saved[kept:]:
        shutil.rmtree(lab.cluster.folder / "checkpoints" / one.uuid)
    identity = json.loads((task_dir(lab.cluster, trial) / "launcher.json").read_text())
    os.kill(int(identity["pgid"]), signal.SIGKILL)
    return experiment, trial, [one.uuid for one in saved]


def test_an_earlier_checkpoint_serves_where_the_newest_is_gone(lab: Lab, meeting_place: Path) -> None:
    hold = meeting_place / "gone-newest"
    experiment, trial, _ = dies_without(lab, hold, kept=2)
    until("the third attempt", lambda: (now := lab.trial(trial)).view.run == 3 and now, 30)
    hold.touch()
    (after,) = lab.completed(experiment, 60).list_trials()
    assert (after.view.restarts, after.view.run) == (1, 3), "only the kill is counted"
    assert [int(more[0]) for _, _, more in lab.journal(after, "start")] == [0, 6]
    assert lab.steps(after) == list(range(1, STEPS + 1))
    assert any("an earlier checkpoint is used, of step 6" in said for said in after.reload().view.warnings)


def test_where_all_are_gone_the_trial_ends_at_once_and_says_which_and_where(lab: Lab, meeting_place: Path) -> None:
    experiment, trial, saved = dies_without(lab, meeting_place / "gone-all", kept=0)
    lab.finish(experiment, 30)
    after = lab.trial(trial)
    assert (after.state, after.view.restarts, after.view.run) == (TrialState.ERROR, 1, 2)
    card = after.reload().view.failure
    assert card is not None
    assert card.kind == "checkpoint"
    assert saved[-1] in card.message
    assert str(lab.cluster.folder / "checkpoints") in (card.hint or "")
