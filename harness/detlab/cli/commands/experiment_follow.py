"""Following a new experiment to its end: the output of a single trial, or the story of a search."""

from __future__ import annotations

from detlab.cli.output.experiment_progress import Story, connection_notes, ended, stopped_watching
from detlab.cli.output.logs import LogOptions, follow_lines
from detlab.cli.output.printing import say
from detlab.client.facts import NO_GROUP
from detlab.client.resources import Experiment
from detlab.errors import DetlabError


def follow(experiment: Experiment) -> int:
    """Follow an experiment until it has ended; return the exit status. An interrupt stops following only."""
    try:
        if experiment.view.trials_total == 1:
            _output(experiment)
        else:
            _story(experiment)
        experiment.wait(notice=connection_notes())
    except KeyboardInterrupt:
        stopped_watching(experiment.id)
        return 130
    return ended(experiment)


def _output(experiment: Experiment) -> None:
    try:
        trial = experiment.await_first_trial()
    except DetlabError:
        if experiment.reload().state.terminal:  # it ended without a trial, which the summary tells
            return
        raise
    follow_lines(trial, LogOptions(follow=True), as_json=False, prefixed=False, after=None)


def _story(experiment: Experiment) -> None:
    story = Story()
    # Without curves and metrics: their number has no bound, that of the lines printed here has.
    for item in experiment.watch(group=NO_GROUP, max_trials=10_000, notice=connection_notes()):
        for line in story.of(item):
            say(line)
