"""Following an experiment in the terminal: one line per change, then how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from detlab.cli.output.failures import FAILED, experiment_card, status_of
from detlab.cli.output.printing import clean, duration, note, say, settings, show
from detlab.client.facts import to_get_a_result
from detlab.client.resources import Experiment
from detlab.client.transport.feeds import Notice
from detlab.errors import DetlabError
from detlab.schemas.wire import (
    BudgetView,
    CurvesView,
    Event,
    ExperimentState,
    ExperimentView,
    TrialView,
)
from detlab.schemas.wire.searches import level_of

NOTE_SECONDS = 60.0


def connection_notes(clock: Callable[[], float] = time.monotonic, *, what: str = "the experiment") -> Notice:
    """Return a callback that reports a broken connection: at once, and then once a minute while it stays broken."""
    told: list[float] = []

    def lost(error: DetlabError, pause: float) -> None:
        now = clock()
        if told and now - told[-1] < NOTE_SECONDS:
            return
        told.append(now)
        note(f"connection lost ({clean(error.message)}); reconnecting. {what} is not affected")

    return lost


def stopped_watching(experiment_id: int) -> None:
    """Say what an interrupt did and did not do."""
    note("")
    note(f"Stopped watching. Experiment {experiment_id} continues.")
    note(f"  → watch again: det experiment wait {experiment_id}")
    note(f"  → end it:      det experiment kill {experiment_id}")


def tell_waiting(experiment: Experiment, pauses: Sequence[float] = (0.0,)) -> None:
    """Say why an experiment waits for its slots, if it does.

    Args:
        experiment: Whose output says nothing yet.
        pauses: Seconds before each look: the reason of a new one comes a moment later.
    """
    for pause in pauses:
        time.sleep(pause)
        view = experiment.reload().view
        if view.pending_reason:
            note(f"waiting: {clean(view.pending_reason)}")
            return
        if view.state.terminal or view.trials.get("RUNNING"):
            return


@dataclass
class Story:
    """Turns snapshots and events into lines, reporting each change once."""

    metric: str = ""
    told: dict[int, str] = field(default_factory=dict)
    shown: set[int] = field(default_factory=set)
    best: tuple[int, int] | None = None
    state: ExperimentState | None = None
    reason: str | None = None
    warned: set[str] = field(default_factory=set)
    noted: set[tuple[int, str]] = field(default_factory=set)

    def of(self, item: CurvesView | Event) -> list[str]:
        """Return the new lines of a snapshot or an event."""
        if isinstance(item, CurvesView):
            lines = [line for trial in sorted(item.trials, key=_id) for line in self.trial(trial)]
            return lines + self.experiment(item.experiment)
        if item.kind == "trial":
            return self.trial(TrialView.model_validate(item.data))
        if item.kind == "experiment":
            return self.experiment(ExperimentView.model_validate(item.data))
        return []

    def trial(self, trial: TrialView) -> list[str]:
        """Return a line if the trial stands elsewhere than was told."""
        state = trial.display_state or trial.state.value
        ended = trial.state.terminal
        text = f"{trial.end_reason.value} at step {trial.steps_completed}" if ended and trial.end_reason else state
        if ended and trial.stop_evidence:
            text += f": {trial.stop_evidence}"
        if trial.restarts and not ended:
            text += f", restart {trial.restarts}"
        would = [one for one in trial.would_stop if (trial.id, one) not in self.noted]
        self.noted.update((trial.id, one) for one in would)
        dry = [clean(f"trial {trial.id}: a policy would have stopped it {one}") for one in would]
        if self.told.get(trial.id) == text:
            return dry
        first = trial.id not in self.shown and bool(trial.hparams)  # it may get them only when it starts
        self.told[trial.id] = text
        if first:
            self.shown.add(trial.id)
        details = f"  {settings(trial.hparams)}" if first else ""
        value = ""
        if ended and trial.best_validation is not None:
            value = f"  best {self.metric} {show(trial.best_validation)}"
        return [*dry, clean(f"trial {trial.id}: {text}{value}{details}")]

    def experiment(self, view: ExperimentView) -> list[str]:
        """Return lines for a new state, a new best and a new reason to wait."""
        self.metric = view.metric or self.metric
        lines = [f"{level_of(said)}: {clean(said)}" for said in view.warnings if said not in self.warned]
        self.warned |= set(view.warnings)
        if view.best is not None and (view.best.trial_id, view.best.steps_completed) != self.best:
            self.best = (view.best.trial_id, view.best.steps_completed)
            left = budgets_left(view.budgets)
            lines.append(
                f"best {view.metric} {show(view.best.value)} ({view.best.told},"
                f" step {view.best.steps_completed})  {progress_line(view)}{left and ', ' + left}"
            )
        if view.pending_reason and view.pending_reason != self.reason:
            lines.append(f"experiment {view.id}: {view.pending_reason}")
        self.reason = view.pending_reason
        if view.state is not self.state:
            if self.state is not None and not view.state.terminal:
                lines.append(f"experiment {view.id}: {view.state.value}")
            self.state = view.state
        return [clean(line) for line in lines]


def _id(trial: TrialView) -> int:
    return trial.id


def progress_line(view: ExperimentView) -> str:
    """Return `3/16 trials done, 2 running, 1 failed`; those that still leave a paused one are `pausing`."""
    done = sum(view.trials.get(state, 0) for state in ("COMPLETED", "CANCELED", "ERROR"))
    total = view.trials_total or sum(count for state, count in view.trials.items() if state != "RUNNING")
    failed = view.trials.get("ERROR", 0)
    parts = (f"{done}/{total} trials done", view.held, f"{failed} failed" if failed else "")
    return ", ".join(part for part in parts if part)


def budgets_left(budgets: Sequence[BudgetView]) -> str:
    """Say what is left of each budget of a search: `1.2 of 4 slot hours left, 20m 00s of 1h 00m left`."""
    return ", ".join(map(budget_left, budgets))


def budget_left(one: BudgetView) -> str:
    """Say what is left of a budget."""
    left = max(0.0, one.limit - one.used)
    if one.name == "wall_clock":
        return f"{duration(left)} of {duration(one.limit)} left"
    return f"{left:.3g} of {one.limit:g} {one.name.replace('_', ' ')} left"


def ended(experiment: Experiment) -> int:
    """Print how an experiment ended, or why the master paused it, and return the exit status."""
    view = experiment.view
    waited = (view.ended_at or time.time()) - (view.started_at or view.created_at)
    span = duration(waited if view.took is None else view.took)
    for warning in view.warnings:
        if warning != experiment.no_result:
            note(f"{level_of(warning)}: {clean(warning)}")
    for line in experiment_card(view):
        note(line)
    say(clean(f"Experiment {view.id} {view.state.value} after {span}, {progress_line(view)}."))
    if view.best is not None and experiment.no_result is None:
        best = view.best
        say(clean(f"Best {view.metric}: {show(best.value)} ({best.told}, step {best.steps_completed})"))
        if best.checkpoint:
            say(clean(f"  → det checkpoint download {best.checkpoint}"))
    return exit_status(experiment)


def exit_status(experiment: Experiment) -> int:
    """Return the exit status for an experiment that has ended; one without a result has failed."""
    missed = experiment.no_result
    if missed is None:
        return status_of(experiment.state)
    note(f"Error: experiment {experiment.id} has no result: {clean(missed)}")
    note(f"  → {clean(to_get_a_result(experiment.view))}")
    return FAILED
