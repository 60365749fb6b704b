"""What a report is made of: views of the master as they were at one moment, and pictures that runs had logged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from detlab.schemas.wire import CheckpointView, ClusterView, CurvesView, ExperimentView, TrialView
from detlab.schemas.wire.artifacts.artifacts import RunArtifact
from detlab.schemas.wire.media import MediaView
from detlab.schemas.wire.projects import ProjectView
from detlab.schemas.wire.registry import VersionView
from detlab.schemas.wire.runs import RunCurve, RunView

MOST_THINGS = 200
"""Experiments of a report, and runs."""


@dataclass(frozen=True, slots=True)
class ReportImage:
    """A picture that a trial or a run has logged, with its bytes."""

    view: MediaView
    data: bytes


@dataclass(frozen=True, kw_only=True)
class MadeThings:
    """What belongs to an experiment or a run beside its own view.

    Attributes:
        versions: Of models, that were registered from it.
        artifacts: That it has used and made.
        images: Pictures that it has logged.
        media_left_out: Number of objects that it has logged beside these.
    """

    versions: Sequence[VersionView] = ()
    artifacts: Sequence[RunArtifact] = ()
    images: Sequence[ReportImage] = ()
    media_left_out: int = 0


@dataclass(frozen=True, kw_only=True)
class ReportedExperiment(MadeThings):
    """An experiment; artifacts, pictures and checkpoints are those of its best trial, or of its first one.

    Attributes:
        view: With its config, in which secrets are masked.
        curves: Some of its trials, the best among them, with the curves of the searcher's metrics.
        results: Of a search by several numbers its trials with the ends of the curves of all these; None: of others.
        checkpoints: The newest last.
    """

    view: ExperimentView
    curves: CurvesView | None = None
    results: CurvesView | None = None
    checkpoints: Sequence[CheckpointView] = ()

    @property
    def trial(self) -> TrialView | None:
        """The best trial, or the first one while none has a result; None: it has none."""
        trials = self.curves.trials if self.curves else []
        best = self.view.best.trial_id if self.view.best else None
        return next((one for one in trials if one.id == best), next(iter(trials), None) if best is None else None)


@dataclass(frozen=True, kw_only=True)
class ReportedRun(MadeThings):
    """A run that no cluster started.

    Attributes:
        view: With its parameters and results.
        curves: Of some of its metrics, thinned.
    """

    view: RunView
    curves: Sequence[RunCurve] = ()


@dataclass(frozen=True, kw_only=True)
class ReportFacts:
    """All of a report.

    Attributes:
        title: Of the reader's page.
        maker: Who made it: it has what they may read.
        made_at: When, in seconds since the epoch.
        cluster: Where it comes from.
        address: Base of the service, which links begin with; ends with a slash.
        command: The command that makes it again.
        notes: Markdown of who made it.
        project: The project that it is of.
        experiments: In the order in which they are shown.
        runs: Likewise.
        left_out: What is not in it and why, a sentence each.
    """

    title: str
    maker: str
    made_at: float
    cluster: ClusterView
    address: str
    command: str = ""
    notes: str = ""
    project: ProjectView | None = None
    experiments: Sequence[ReportedExperiment] = ()
    runs: Sequence[ReportedRun] = ()
    left_out: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """A report that was written.

    Attributes:
        path: The file.
        size: Its bytes.
        experiments: How many experiments it has.
        runs: How many runs.
        left_out: What is not in it and why, a sentence each.
    """

    path: Path
    size: int
    experiments: int
    runs: int
    left_out: Sequence[str] = ()
