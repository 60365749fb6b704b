"""The data of an experiment, a trial or a checkpoint, shared by the blocking and the asynchronous client."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from detlab.client.operations import experiments
from detlab.client.ordering import (
    CheckpointSortBy,
    CheckpointState,
    OrderBy,
    check_metric,
    other_metric,
    sort_checkpoints,
)
from detlab.client.rendering import card, no_point, settings
from detlab.client.transport.calls import FOREIGN, Flow
from detlab.client.transport.streaming import EventFeed, event_feed
from detlab.errors import DetlabError, NotFound
from detlab.files import write_atomic
from detlab.schemas.wire import (
    AllocationState,
    BestView,
    CheckpointFile,
    CheckpointView,
    CurvesView,
    Event,
    ExperimentState,
    ExperimentView,
    GrantKind,
    SeriesView,
    TrialState,
    TrialView,
)

MOST_ON_FRONT = 10_000
"""Trials of which a Pareto front is made, the newest of a larger search."""
NO_GROUP = "-"
"""A group that no report can have: a client that waits for the end of an experiment needs no metrics."""


def moment(seconds: float | None) -> str | None:
    """Return a time in seconds since the epoch as local text."""
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _missed_metric(view: ExperimentView) -> str | None:
    """Return the warning of an experiment that completed with validations, none of which had its searcher's metric."""
    if view.state is not ExperimentState.COMPLETED or view.best is not None:
        return None
    sign = f"never reported {view.metric!r} (its validations reported: "
    return next((warning for warning in view.warnings if sign in warning), None)


def without_result(view: ExperimentView) -> str | None:
    """Return the warning of an experiment that completed without a result: its metric was never a number, or absent."""
    if view.state is not ExperimentState.COMPLETED:
        return None
    if view.best is not None and math.isfinite(view.best.value):
        return None
    no_value = (warning for warning in view.warnings if warning.startswith(f"no finite value of {view.metric!r}"))
    return next(no_value, None) or _missed_metric(view)


def diverged(view: ExperimentView) -> str | None:
    """Return the warning of an experiment that completed with a result, after which all its trials had NaN or inf."""
    if view.state is not ExperimentState.COMPLETED:
        return None
    signs = tuple(f"{whose} ended with NaN or an infinite value" for whose in ("trials", "its trial"))
    all_of_them = (one for one in view.warnings if one.startswith(("all ", "its trial ")))
    return next((one for one in all_of_them if any(sign in one for sign in signs)), None)


def to_get_a_result(view: ExperimentView) -> str:
    """Return what to do about an experiment that has none: see `without_result`."""
    if _missed_metric(view) is not None:
        return f"make searcher.metric ({view.metric}) one of the names that the code reports"
    return f"look at where {view.metric} stopped being a number: a smaller learning rate, clipped gradients, the data"


class ExperimentFacts:
    """What is known about an experiment, as of the last answer of the master."""

    def __init__(self, view: ExperimentView) -> None:
        self.view = view

    @property
    def id(self) -> int:
        """Number of the experiment."""
        return self.view.id

    @property
    def name(self) -> str:
        """Display name."""
        return self.view.name

    @property
    def state(self) -> ExperimentState:
        """State as of the last answer; `reload` fetches the current one."""
        return self.view.state

    @property
    def description(self) -> str | None:
        """Longer text."""
        return self.view.description

    @property
    def labels(self) -> set[str]:
        """Tags."""
        return set(self.view.labels)

    @property
    def notes(self) -> str | None:
        """What people noted about it; None on an item of a list, and after somebody has changed it, until `reload`."""
        return self.view.notes

    @property
    def archived(self) -> bool:
        """Whether lists leave it out."""
        return self.view.archived_at is not None

    @property
    def config(self) -> dict[str, Any] | None:
        """The resolved config; None on an item of a list until `reload`."""
        return self.view.config

    @property
    def best(self) -> BestView | None:
        """The best validation so far."""
        return self.view.best

    @property
    def warnings(self) -> list[str]:
        """The master's warnings."""
        return list(self.view.warnings)

    @property
    def no_result(self) -> str | None:
        """The master's warning if it completed without a result.

        The searcher's metric was never a finite number, or its validations had other metrics. Code that validates
        nothing may have been run for its output: that is no mistake.
        """
        return without_result(self.view)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, ExperimentFacts) and other.id == self.id

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.id))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id}, name={self.name!r}, state={self.state.value})"

    def _repr_html_(self) -> str:
        view = self.view
        best = f"{view.metric} {view.best.value:.6g} ({view.best.told})" if view.best else None
        trials = ", ".join(f"{count} {state}" for state, count in view.trials.items() if count)
        rows = {
            "state": view.state.value,
            "progress": f"{view.progress:.0%}",
            "trials": trials,
            "best": best,
            "searcher": f"{view.searcher}, evaluated by hand" if view.unmanaged else view.searcher,
            "pending": view.pending_reason,
            "started": moment(view.started_at),
            "ended": moment(view.ended_at),
            "failure": view.failure.message if view.failure else None,
            "warnings": "; ".join(view.warnings),
        }
        return card(f"Experiment {view.id}: {view.name}", rows)

    def sorted_checkpoints(
        self,
        found: list[CheckpointView],
        sort_by: CheckpointSortBy | str | None,
        order_by: OrderBy | str | None,
        max_results: int | None,
    ) -> list[CheckpointView]:
        """Return checkpoints in the order that was asked for, best first by default."""
        return sort_checkpoints(
            found,
            sort_by=sort_by,
            order_by=order_by,
            metric=self.view.metric,
            smaller_is_better=self.view.smaller_is_better,
            max_results=max_results,
        )

    def best_first(
        self,
        found: list[CheckpointView],
        count: int,
        sort_by: CheckpointSortBy | str | None = None,
        smaller_is_better: bool | None = None,
    ) -> list[CheckpointView]:
        """Return the best validated checkpoints that still have their files.

        Args:
            found: Checkpoints of the experiment.
            count: Return at most this many.
            sort_by: A validation metric, or another key; None: the searcher metric.
            smaller_is_better: Which end of it is best; goes together with `sort_by`.

        Raises:
            ValueError: One of the last two is given without the other, or no checkpoint has a value of that metric.
        """
        if (sort_by is None) != (smaller_is_better is None):
            raise ValueError("give sort_by and smaller_is_better together, or neither: then the searcher metric counts")
        order = None if smaller_is_better is None else OrderBy.ASCENDING if smaller_is_better else OrderBy.DESCENDING
        other = other_metric(sort_by, self.view.metric)
        check_metric(found, other, self.view.metric)
        validated = [
            item
            for item in found
            if item.state == "COMPLETED" and (item.validation is not None if other is None else other in item.metrics)
        ]
        return self.sorted_checkpoints(validated, sort_by, order, count)

    def resync_event(self, snapshot: CurvesView) -> Event:
        """Return the event that carries a fresh snapshot."""
        return Event(
            id=snapshot.cursor,
            kind="resync",
            experiment_id=self.id,
            data=snapshot.model_dump(mode="json"),
        )

    def learn(self, item: CurvesView | Event) -> None:
        """Keep what a snapshot or an event says, but config and notes, which neither carries."""
        if isinstance(item, CurvesView):
            fresh = item.experiment
        elif item.kind == "experiment" and item.data.get("state") == ExperimentState.DELETED.value:
            fresh = self.view.model_copy(update={"state": ExperimentState.DELETED})  # it says no more than that
        elif item.kind == "experiment":
            fresh = ExperimentView.model_validate(item.data)
        else:
            return
        same = fresh.notes is None and fresh.edited_at == self.view.edited_at
        notes = self.view.notes if same else fresh.notes
        self.view = fresh.model_copy(update={"config": fresh.config or self.view.config, "notes": notes})


def timed_out(view: ExperimentView, timeout: float | None) -> TimeoutError:
    """Return the error for waiting longer than was asked for."""
    return TimeoutError(f"experiment {view.id} is still {view.state.value} after {timeout:g} s")


def last_known(view: ExperimentView, error: NotFound) -> ExperimentView:
    """Return the last known state of an experiment that the master no longer knows.

    Raises:
        NotFound: It had not ended when it was last seen, or the reply does not come from the master.
    """
    if error.code == FOREIGN:
        raise error
    if view.state is ExperimentState.DELETING:
        return view.model_copy(update={"state": ExperimentState.DELETED})
    if view.state.terminal:
        return view
    raise NotFound(
        f"experiment {view.id} was last seen {view.state.value} and no longer exists: it was deleted, or is no "
        "longer shared with you"
    ) from error


def first_page(experiment_id: int) -> Flow[CurvesView]:
    """Fetch the cheapest snapshot: the cursor and the state, with at most one trial and two points per curve."""
    return experiments.curves(experiment_id, max_points=2, max_trials=1)


def write_code(experiment_id: int, data: bytes, output_dir: str | Path | None) -> Path:
    """Write the code of an experiment as `experiment_<id>_code.tar.gz` and return the file."""
    folder = Path(output_dir or ".")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"experiment_{experiment_id}_code.tar.gz"
    return write_atomic(target, data, mode=None)


def settled(view: ExperimentView) -> bool:
    """Whether nothing more happens until a user acts: it has ended, or the master paused it because of a failure."""
    return view.state.terminal or (view.state is ExperimentState.PAUSED and view.failure is not None)


def no_trial(view: ExperimentView) -> DetlabError:
    """Return the error for waiting for the first trial of an experiment that makes none, with the reason."""
    if view.failure is None or view.state.terminal:
        return DetlabError(f"experiment {view.id} ended ({view.state.value}) without a trial")
    hint = "\n".join(part for part in (view.failure.hint, view.failure.command) if part)
    return DetlabError(f"experiment {view.id} was paused without a trial: {view.failure.message}", hint=hint or None)


def states_feed(experiment_id: int, cursor: int) -> EventFeed[Event]:
    """Return the feed of an experiment's events without its metrics."""
    return event_feed(experiment_id, cursor, groups=(NO_GROUP,))


def no_checkpoint(experiment_id: int) -> DetlabError:
    """Return the error for asking the best of no checkpoints."""
    return DetlabError(
        f"experiment {experiment_id} has no validated checkpoint",
        hint=f"List them: det experiment list-checkpoints {experiment_id}",
    )


class TrialFacts:
    """What is known about a trial, as of the last answer of the master."""

    def __init__(self, view: TrialView) -> None:
        self.view = view

    @property
    def id(self) -> int:
        """Number of the trial."""
        return self.view.id

    @property
    def experiment_id(self) -> int:
        """Number of its experiment."""
        return self.view.experiment_id

    @property
    def hparams(self) -> dict[str, Any]:
        """Its hyperparameters."""
        return self.view.hparams

    @property
    def state(self) -> TrialState:
        """State as of the last answer; `reload` fetches the current one."""
        return self.view.state

    @property
    def unsaved(self) -> bool:
        """Whether it runs and has no checkpoint, as of the last answer."""
        return self.view.allocation_state is AllocationState.RUNNING and self.view.latest_checkpoint is None

    @property
    def restart_steps(self) -> list[int]:
        """Steps from which its later attempts went on, 0 where one began anew; empty on an item of a list."""
        return [attempt.resume_step or 0 for attempt in self.view.attempts if attempt.run > 1]

    @property
    def nodes(self) -> list[str]:
        """Agents of its last attempt, as of the last answer; empty before it has any."""
        over = dict.fromkeys(slot.rpartition("/")[0] for slot in self.view.slots if "/" in slot)
        return list(over) or ([self.view.agent_id] if self.view.agent_id else [])

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, TrialFacts) and other.id == self.id

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.id))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id}, experiment_id={self.experiment_id}, state={self.state.value})"

    def _repr_html_(self) -> str:
        view = self.view
        rows = {
            "experiment": view.experiment_id,
            "state": view.display_state or view.state.value,
            "ended": view.end_reason.value if view.end_reason else None,
            "hyperparameters": no_point(over=view.state.terminal) if view.point_due else settings(view.hparams),
            "steps": view.steps_completed,
            "best validation": view.best_validation,
            "restarts": view.restarts or None,
            "pending": view.pending_reason,
            "failure": view.failure.message if view.failure else None,
            "warnings": "; ".join(view.warnings),
        }
        return card(f"Trial {view.id}", rows)


class CheckpointFacts:
    """What is known about a checkpoint."""

    def __init__(self, view: CheckpointView) -> None:
        self.view = view

    @property
    def uuid(self) -> str:
        """Its id."""
        return self.view.uuid

    @property
    def trial_id(self) -> int:
        """The trial that wrote it."""
        return self.view.trial_id

    @property
    def experiment_id(self) -> int:
        """The experiment of that trial."""
        return self.view.experiment_id

    @property
    def state(self) -> CheckpointState:
        """What has become of it, as of the last answer."""
        return CheckpointState(self.view.state)

    @property
    def deleted(self) -> bool:
        """Whether its files were deleted, so that only its record is left."""
        return self.view.state == "DELETED"

    @property
    def steps_completed(self) -> int:
        """At which step it was written."""
        return self.view.steps_completed

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata that the training code gave it."""
        return self.view.metadata

    @property
    def resources(self) -> dict[str, int]:
        """Its files and their sizes in bytes."""
        return {path: file.size for path, file in self.view.files.items()}

    @property
    def files(self) -> dict[str, CheckpointFile]:
        """Its files with sizes and digests."""
        return self.view.files

    @property
    def validation(self) -> float | None:
        """The searcher metric at the same step, if it was reported."""
        return self.view.validation

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, CheckpointFacts) and other.uuid == self.uuid

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.uuid))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(uuid={self.uuid!r}, trial_id={self.trial_id}, steps={self.steps_completed})"

    def _repr_html_(self) -> str:
        view = self.view
        rows = {
            "trial": view.trial_id,
            "steps": view.steps_completed,
            "validation": view.validation,
            "written": moment(view.created_at),
            "size": f"{view.size:,} bytes in {len(view.files)} files",
        }
        return card(f"Checkpoint {view.uuid}", rows)

    def write_metadata_file(self, path: str | Path) -> Path:
        """Write its metadata as JSON and return the file; a relative path counts from here.

        Args:
            path: The file; its folder must exist.
        """
        return write_atomic(Path(path), json.dumps(self.metadata, indent=2).encode(), mode=None)

    def _default_target(self) -> Path:
        return Path("checkpoints") / self.uuid


class TrialMetrics:
    """One report of a trial: the values of one group at one step.

    Attributes:
        trial_id: The trial.
        group: `training`, `validation` or a group of the code's own.
        steps_completed: The step.
        metrics: Name to value; NaN and infinities included.
        report_time: Seconds since the epoch.
    """

    __slots__ = ("group", "metrics", "report_time", "steps_completed", "trial_id")

    def __init__(
        self, trial_id: int, group: str, steps_completed: int, metrics: dict[str, float], report_time: float | None
    ) -> None:
        self.trial_id = trial_id
        self.group = group
        self.steps_completed = steps_completed
        self.metrics = metrics
        self.report_time = report_time

    @property
    def end_time(self) -> datetime | None:
        """When it was reported, in UTC."""
        return None if self.report_time is None else datetime.fromtimestamp(self.report_time, UTC)

    @property
    def total_batches(self) -> int:
        """The step, under Determined's old name."""
        return self.steps_completed

    def __repr__(self) -> str:
        return f"TrialMetrics(trial_id={self.trial_id}, {self.group}@{self.steps_completed}, {self.metrics})"


def reports(series: list[SeriesView]) -> list[TrialMetrics]:
    """Join the curves of a trial into reports, by group and step, in order of step."""
    found: dict[tuple[int, str], TrialMetrics] = {}
    for curve in series:
        for at, (step, value) in enumerate(zip(curve.steps, curve.values, strict=True)):
            when = curve.times[at] if at < len(curve.times) else None
            key = (step, curve.group)
            if key not in found:
                found[key] = TrialMetrics(curve.trial_id, curve.group, step, {}, when)
            found[key].metrics[curve.name] = value
    return [found[key] for key in sorted(found)]


def front_wanted(config: Mapping[str, Any], metrics: Sequence[str] | None) -> dict[str, Any]:
    """Return the arguments of `curves()` for a Pareto front.

    Raises:
        ValueError: There are fewer than two metrics.
    """
    from detlab.viz import fronts

    names = fronts.metric_names(config, metrics)
    if len(names) < 2:
        raise ValueError("a Pareto front has two metrics or more: name them, as in metrics=['loss', 'latency']")
    return fronts.wanted(config, names, max_trials=MOST_ON_FRONT)


def front_reports(
    snapshot: CurvesView, config: Mapping[str, Any], metrics: Sequence[str] | None, maximize: Collection[str]
) -> list[TrialMetrics]:
    """Return the reports by which the trials of a Pareto front are on it."""
    from detlab.viz import fronts
    from detlab.viz.data import SearchData

    found = fronts.judge(SearchData(snapshot, config), metrics, maximize)
    reports = []
    for key in found.front:
        values = {name: value for name, value in found.metrics(key).items() if value is not None}
        reports.append(TrialMetrics(key, "validation", found.points[key].step, values, found.points[key].time))
    return reports


def at_step(view: CheckpointView, series: list[SeriesView]) -> list[TrialMetrics]:
    """Join the values of a checkpoint's step into reports, one for each group."""
    return [report for report in reports(series) if report.steps_completed == view.steps_completed]


def granted_to(user: str | None, group: str | None) -> tuple[GrantKind, str]:
    """Return whom a grant is for.

    Raises:
        ValueError: Neither a user nor a group is named, or both are.
    """
    match user, group:
        case str(name), None:
            return "user", name
        case None, str(name):
            return "group", name
    raise ValueError("say either user=… or group=…")
