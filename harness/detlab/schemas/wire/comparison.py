"""Runs side by side: trials, experiments and runs from anywhere that somebody wants to compare."""

from __future__ import annotations

from typing import Any, Literal

from detlab.schemas.wire.base import Wire
from detlab.schemas.wire.registry import Difference, FileDifference
from detlab.schemas.wire.views import SeriesView

MOST_RUNS = 50
"""Trials, experiments and runs of one comparison."""
SHORT_ID = 8
"""Characters of the id of a run in the names of columns."""
MOST_CURVE_TRIALS = 200
"""Trials and runs whose curves one request may ask for."""


class ComparedRun(Wire):
    """One side of a comparison: a trial, an experiment, for which its best trial stands, or a run from anywhere."""

    kind: Literal["trial", "experiment", "run"]
    id: int
    """0 of a run, which has a `run_id`."""
    run_id: str = ""
    """The id of a run that no cluster started; empty: it is a trial or an experiment."""
    experiment_id: int
    """0 of a run that belongs to none."""
    name: str = ""
    """The experiment's, or the run's."""
    owner: str = ""
    labels: list[str] = []
    state: str = ""
    trial_ids: list[int] = []
    """The trials whose metrics are shown: the trial itself; of an experiment its best one or, where its search trains
    points with several seeds, those of the point with the best mean. Empty: it has none."""
    index: int | None = None
    """Of the first of these trials within its experiment."""
    seed: int | None = None
    """Of that trial."""
    seeds: int = 1
    """With how many seeds its search trains each point."""
    metric: str = ""
    """Of its search."""
    smaller_is_better: bool = True
    best: float | None = None
    """Best value of that metric; of several trials the mean."""
    deviation: float | None = None
    """Standard deviation of the sample, of several trials."""
    hparams: dict[str, Any] = {}
    """Hyperparameters; of a run its parameters, where a text of a number is that number."""
    steps_completed: int = 0
    created_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    bundle: str | None = None
    """Digest of its code."""
    shortened: list[str] = []
    """Fields of which only a part is here, because they are long."""

    @property
    def title(self) -> str:
        """What tables and legends call it: its kind and number; of a run how its id begins."""
        return f"{self.kind} {self.run_id[:SHORT_ID] if self.kind == 'run' else self.id}"


class RunSummary(Wire):
    """A metric of one run; of several trials the means."""

    best: float | None = None
    """At the best validation of each trial; of a run from anywhere, which no search measures, the last value."""
    last: float | None = None
    min: float | None = None
    """null of a run from anywhere."""
    max: float | None = None
    """Likewise."""
    deviation: float | None = None
    """Standard deviation of `best`, of several trials."""


class RunMetric(Wire):
    """A metric in all runs; null where one has not reported it."""

    group: str
    name: str
    values: list[RunSummary | None]
    smaller_is_better: bool | None = None
    """Whether smaller values are better, where a search says so; null: it is not known."""


class RunComparison(Wire):
    """GET comparison?trials=12,15&experiments=3&runs=ID: runs side by side, in parts."""

    runs: list[ComparedRun] = []
    """In the order in which they were asked for: trials, experiments, runs."""
    absent_trials: list[int] = []
    """Those that are not there, or not the caller's to see."""
    absent_experiments: list[int] = []
    absent_runs: list[str] = []
    """Likewise, as they were asked for."""
    hyperparameters: list[Difference] = []
    """Each has a value for each run."""
    config: list[Difference] = []
    """Of the experiments, by dotted path; of runs from anywhere their tags."""
    metrics: list[RunMetric] = []
    metrics_left_out: int = 0
    """Metrics that are in no part, because there are too many: name those that are wanted."""
    next: int | None = None
    """`skip` of the next part, or null on the last one."""


class ComparedSeries(SeriesView):
    """A curve of a trial, or of a run from anywhere."""

    run_id: str = ""
    """Of a run; empty: it is of the trial `trial_id`, which is 0 else."""


class RunCurves(Wire):
    """GET comparison/curves?trials=12,15&runs=ID&name=loss: curves of several trials and runs, in parts."""

    items: list[ComparedSeries]
    absent_trials: list[int] = []
    absent_runs: list[str] = []
    next: int | None = None
    """`skip` of the next part, or null on the last one."""


class CodeComparison(Wire):
    """GET comparison/code?trials=12,15: files of the code that are not the same in all runs, in parts."""

    experiments: list[int] = []
    """Whose code `digests` of each file is of, in this order."""
    items: list[FileDifference] = []
    absent_trials: list[int] = []
    absent_experiments: list[int] = []
    note: str = ""
    """Why there is nothing to compare, if there is not."""
    next: int | None = None
    """`skip` of the next part, or null on the last one."""
