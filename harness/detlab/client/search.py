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
    """An unmanaged experiment, blocking: the master chooses the points, and this program evaluates them.

    Everything else works as for any experiment: `pause`, `cancel`, `list_trials`, `plot`, `extend_search`.
    """

    def __init__(self, session: Session, view: ExperimentView) -> None:
        super().__init__(session, view)
        self._untold: set[int] = set()
        """Trials that this program asked for and has not finished."""

    def ask(
        self, timeout: float = WAIT, *, again: bool = False, trial: AskedTrial | int | None = None
    ) -> AskedTrial | None:
        """Return the next trial to evaluate, or None if the search is over.

        Several trials may be open at a time, in this program and in others.

        Args:
            timeout: Most seconds to wait for a trial; the next point may have to be computed.
            again: Take over a trial that is being evaluated, because the program that asked for it has died. What that
                program tells later is refused.
            trial: With `again`: the trial to take over; default: the one that was asked for first.

        Raises:
            Conflict: No trial is available now (the message gives the reason), or the experiment is paused.
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
                raise Conflict(f"experiment {self.id}: {asked.why}", hint="Tell its value, or ask again later.")

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
    ) -> Told:
        """Report the result of a trial; return a reply that is true if its evaluation is to stop, and that has `why`.

        The same result can be told twice, such as after a lost connection or when a cell is run again.

        Args:
            trial: From `ask`, or its id.
            value: The searcher's metric, or a mapping of it and other metrics. None to end a trial that has
                reported step by step.
            step: How far it has trained. The trial continues, unless the search stops it.
            state: How it ended: `completed`, `failed`, or `invalid` if its hyperparameters cannot be evaluated;
                `running` if it has not ended. Default: `running` with a step, else `completed`.
            message: Why it failed.

        Raises:
            ConfigError: A metric of the search is missing, or is not a number.
            Conflict: The trial has ended, or another value was told for this step.
            StaleAttempt: Another program has taken over the trial.

        Examples:
            for epoch in range(1, 28):
                if told := search.tell(trial, train_one_epoch(), step=epoch):
                    print(told.why)  # such as: stopped at epochs 3: place 5 of 7, the best 2 continue
                    break
        """
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
        """Try this point next, in addition to `max_trials`.

        Raises:
            Conflict: The search is over, or the point is outside its space.
        """
        self.add_points([hyperparameters])

    def __iter__(self) -> Iterator[AskedTrial]:
        """Yield trials until the search is over; wait while other programs evaluate the last ones.

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
        """Return the trials that were asked for and have not ended, of this program and of others."""
        return [one for one in self.list_trials() if one.view.asked_at is not None and not one.state.terminal]

    @property
    def best_trial(self) -> Trial | None:
        """The trial with the best value so far, None before the first; fetched each time."""
        self.reload()
        if self.view.best is None:
            return None
        return Trial(self._session, self._session.run(experiments.trial(self.view.best.trial_id)))

    def describe(self) -> str:
        """Return one or two lines: how many trials have ended, and the best one."""
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
