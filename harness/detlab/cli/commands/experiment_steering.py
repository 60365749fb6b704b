"""`det experiment pause`, `activate`, `cancel` and `kill`."""

from __future__ import annotations

import sys

import click

from detlab.cli.commands.experiment_edit import acting
from detlab.cli.output.printing import note
from detlab.client.resources import Experiment
from detlab.schemas.wire import ExperimentState

SHOWN_UNSAVED = 8
_STOPPING = {
    ExperimentState.STOPPING_COMPLETED: "finishing",
    ExperimentState.STOPPING_CANCELED: "canceling",
    ExperimentState.STOPPING_KILLED: "being killed",
    ExperimentState.STOPPING_ERROR: "failing",
}


def steering() -> list[click.Command]:
    """Return the commands."""

    def now(item: Experiment) -> str:
        return _STOPPING.get(item.state, item.state.value)

    return [
        acting("pause", "Pause experiments: trials write a checkpoint and free their slots.", _pause, now),
        acting("activate", "Resume paused experiments.", Experiment.activate, now),
        acting("cancel", "Stop experiments gracefully: trials may write a checkpoint.", Experiment.cancel, now),
        acting("kill", "Kill experiments immediately.", Experiment.kill, now),
    ]


def _pause(item: Experiment) -> None:
    """Pause an experiment; name the trials whose work may be lost by that before it is."""
    unsaved = item.unsaved_trials()
    if unsaved:
        named = ", ".join(str(trial.id) for trial in unsaved[:SHOWN_UNSAVED])
        more = f" and {len(unsaved) - SHOWN_UNSAVED} more" if len(unsaved) > SHOWN_UNSAVED else ""
        note(
            f"warning: no checkpoint yet of trial {named}{more} of experiment {item.id}: code that saves none when"
            " asked to leave begins anew"
        )
        if sys.stdin.isatty():
            click.confirm(f"Pause experiment {item.id}?", abort=True, err=True)
    item.pause()
