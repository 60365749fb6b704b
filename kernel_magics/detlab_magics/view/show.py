"""One experiment shown in one output: what reads it, what paints it, and how that ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from detlab.client import Experiment
from detlab.errors import DetlabError
from detlab.viz.fronts import shown_names
from detlab_magics.view.follow import ExperimentWatch, asked_name
from detlab_magics.view.screen import Screen
from detlab_magics.view.state import MAX_POINTS, ViewState, front_metrics

FIRST_SECONDS = 15.0
"""Seconds that a cell which only starts a live view waits at most for its first picture."""


class Showing:
    """A live view.

    Args:
        experiment: What is shown.
        screen: Where.
        metrics: Validation metrics that the table has columns of, besides the search's own.
    """

    def __init__(self, experiment: Experiment, screen: Screen, metrics: Sequence[str] = ()) -> None:
        self.experiment_id = experiment.id
        self._screen = screen
        config = config_of(experiment)
        columns = shown_names(config, metrics)
        self._watch = ExperimentWatch(experiment, experiment.view.metric, screen.paint, columns=columns, config=config)
        self._left: str | None = None

    def until_end(self) -> ViewState:
        """Paint in this thread until the experiment has ended, leave the still view, return the last state.

        A pause by the master because of a failure is an end here: a cell that waits for it would wait for ever.

        Raises:
            DetlabError: The cluster stopped answering for good.
            KeyboardInterrupt: The cell was interrupted; the still view is left.
        """
        self._watch.start()
        try:
            state = self._watch.paint_until_end(settles=True)
        except KeyboardInterrupt:
            self._watch.stop()
            self._freeze("stopped watching; the experiment continued")
            raise
        except DetlabError:
            self._freeze("the cluster does not answer")
            raise
        self._screen.freeze(state)
        return state

    def in_background(self, done: Callable[[Showing], None]) -> None:
        """Paint from a thread of its own; `done` is called at the end.

        The first painting is made by the caller, so that the output belongs to the caller's cell.

        Raises:
            DetlabError: The cluster does not answer.
        """

        def finished(watch: ExperimentWatch) -> None:
            if watch.error is not None:
                self._freeze(f"lost the cluster: {watch.error.message} (%det_watch {self.experiment_id} tries again)")
            else:
                self._freeze(self._left)
            done(self)

        self._watch.start()
        self._watch.paint_first(FIRST_SECONDS)
        self._watch.paint_in_background(finished)

    def leave(self, note: str) -> None:
        """Stop painting; the output becomes a still view with `note`. The experiment is not touched."""
        self._left = note
        self._watch.stop()

    def _freeze(self, note: str | None) -> None:
        state = self._watch.state
        if state is not None:
            self._screen.freeze(state, None if state.ended else note)
        elif note is not None:
            print(f"experiment {self.experiment_id}: {note}")


def config_of(experiment: Experiment) -> dict[str, Any]:
    """Return an experiment's config; items of lists have none."""
    if experiment.config is None:
        experiment.reload()
    return experiment.config or {}


def show_ended(experiment: Experiment, screen: Screen, metrics: Sequence[str] = ()) -> ViewState:
    """Show an experiment that has ended already, and return its state."""
    config = config_of(experiment)
    columns = shown_names(config, metrics)
    name = asked_name(experiment.view.metric, *columns, *front_metrics(config))
    snapshot = experiment.curves(group="validation", name=name, max_points=MAX_POINTS)
    state = ViewState.start(snapshot, columns, config)
    screen.freeze(state)
    return state
