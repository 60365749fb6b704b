# Made from asearch.py by harness/make_sync.py: edit that one, not this.
"""Searches whose trials you evaluate yourself, by ask and tell."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from detlab.client.operations import experiments, searches
from detlab.client.rendering import settings
from detlab.client.resources import Experiment, Trial
from detlab.client.transport.session import Session
from detlab.errors import Conflict
from detlab.schemas.wire import Asked, AskedTrial, ExperimentView, Outcome, Told, TrialState
from detlab.schemas.wire.searches import MOST_WAIT

WAIT = 60.0
"""Seconds for which `ask` waits for a trial unless told otherwise."""


class Search(Experiment):
    """An unmanaged experiment, blocking: the search is the master's, its trials are evaluated where you are.

    It is an experiment in all else: `pause`, `cancel`, `list_trials`, `plot`, `extend_search`, pages and figures.
    """

    def __init__(self, session: Session, view: ExperimentView) -> None:
        super().__init__(session, view)
        self._untold: set[int] = set()
        """Trials that were asked for here, and whose evaluation has not ended."""

    def ask(
        self, timeout: float = WAIT, *, again: bool = False, trial: AskedTrial | int | None = None
    ) -> AskedTrial | None:
        """Return the next trial to evaluate, or None if the search is over.

        Several may be open at a time, here and in other programs.

        Args:
            timeout: Seconds to wait at most until there is one; the next point may have to be computed.
            again: Return one that is being evaluated already, since whoever asked for it is gone. What they tell later
                is refused.
            trial: With `again`: which one; default: the one that was asked for first.

        Raises:
            Conflict: There is none at present (the message says why), or the experiment is paused.
        """
        key, deadline = experiments.new_key(), time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            asked = self._ask(left, again=again, trial_id=_id_of(trial), key=key)
            if asked.trial is not None:
                return asked.trial
            if asked.over:
                self.reload()
                return None
            if left <= 0:
                raise Conflict(f"experiment {self.id}: {asked.why}", hint="Tell that, or ask again later.")

    def _ask(self, timeout: float, *, again: bool, trial_id: int | None, key: str) -> Asked:
        asked = self._session.run(searches.ask(self.id, timeout, again=again, trial_id=trial_id, key=key))
        if asked.trial is not None:
            self._untold.add(asked.trial.id)
        return asked

    def tell(
        self,
        trial: AskedTrial | int,
        value: float | Mapping[str, Any] | None = None,
        *,
        step: int | None = None,
        state: Outcome | None = None,
        message: str = "",
    ) -> bool:
        """Tell the search what a trial gave; return whether its evaluation is to end here.

        The same can be told twice: after a lost connection, or when a cell is run again.

        Args:
            trial: From `ask`, or its id.
            value: The searcher's metric, or a mapping with it and any others. None at the end of a trial that reported
                by steps.
            step: How far it has trained. The trial then goes on, unless the search stops it.
            state: How it ended: `completed`, `failed`, or `invalid` if its hyperparameters cannot be evaluated;
                `running` if it has not ended. Default: `running` with a step, else `completed`.
            message: Why it failed.

        Raises:
            ConfigError: A metric of the search is missing, or is no number.
            Conflict: The trial has ended, or was told something else for this step.
            StaleAttempt: It was handed out again since.

        Examples:
            for epoch in range(1, 28):
                if search.tell(trial, train_one_epoch(), step=epoch):
                    break
        """
        told = self.report(trial, value, step=step, state=state, message=message)
        return told.stop

    def report(
        self,
        trial: AskedTrial | int,
        value: float | Mapping[str, Any] | None = None,
        *,
        step: int | None = None,
        state: Outcome | None = None,
        message: str = "",
    ) -> Told:
        """Do the same as `tell`, and return the trial's state and why its evaluation is to end, too."""
        metrics = {} if value is None else dict(value) if isinstance(value, Mapping) else {self.view.metric: value}
        outcome: Outcome = state or ("completed" if step is None else "running")
        told: Told = self._session.run(
            searches.tell(
                self.id,
                _id_of(trial) or 0,
                run=trial.run if isinstance(trial, AskedTrial) else None,
                metrics={name: _plain(one) for name, one in metrics.items()},
                step=step,
                state=outcome,
                message=message,
            )
        )
        if told.stop:
            self._untold.discard(_id_of(trial) or 0)
        return told

    def enqueue(self, hyperparameters: Mapping[str, Any]) -> None:
        """Have the next trial be at this point, beyond the budget so far.

        Raises:
            Conflict: The search is over, or the point does not lie in its space.
        """
        self.add_points([hyperparameters])

    def __iter__(self) -> Iterator[AskedTrial]:
        """Yield trials to evaluate until the search is over; wait while what is left is being evaluated.

        Raises:
            Conflict: The experiment is paused.
        """
        key, warned = experiments.new_key(), False
        while True:
            asked = self._ask(MOST_WAIT, again=False, trial_id=None, key=key)
            if asked.trial is not None:
                yield asked.trial
                key, warned = experiments.new_key(), False
            elif asked.over:
                self.reload()
                return
            elif not warned and self._untold.intersection(asked.waits_for):
                number = min(self._untold.intersection(asked.waits_for))
                message = (
                    f"experiment {self.id}: {asked.why}. This program asked for trial {number}: tell its value, or"
                )
                warnings.warn(f"{message} search.tell({number}, state='failed')", stacklevel=2)
                warned = True

    def open_trials(self) -> list[Trial]:
        """Return the trials that are being evaluated, here or elsewhere: asked for, and not told."""
        return [one for one in self.list_trials() if one.view.asked_at is not None and not one.state.terminal]

    @property
    def best_trial(self) -> Trial | None:
        """The trial with the best value so far, None before the first; fetched anew each time."""
        self.reload()
        if self.view.best is None:
            return None
        return Trial(self._session, self._session.run(experiments.trial(self.view.best.trial_id)))

    def describe(self) -> str:
        """Return a line or two on how far it is, and its best trial."""
        best = self.best_trial
        trials = self.list_trials()
        ended = sum(one.state.terminal for one in trials)
        failed = sum(one.state is TrialState.ERROR for one in trials)
        being = sum(one.view.asked_at is not None and not one.state.terminal for one in trials)
        view = self.view
        counts = [f"{ended} of {view.trials_total or len(trials)} trials ended"]
        counts += [f"{failed} failed"] if failed else []
        counts += [f"{being} being evaluated"] if being else []
        lines = [f"Experiment {self.id} ({view.searcher}, {view.state}): {', '.join(counts)}"]
        if best is not None and view.best is not None:
            lines.append(f"Best {view.metric} {view.best.value:.6g}, trial {best.id}: {settings(best.view.hparams)}")
        return "\n".join(lines)


def _id_of(trial: AskedTrial | int | None) -> int | None:
    return trial.id if isinstance(trial, AskedTrial) else trial


def _plain(value: Any) -> Any:
    """Return a number of another library (NumPy, PyTorch) as Python's."""
    if value is None or isinstance(value, bool | int | float | str | list | dict):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)
