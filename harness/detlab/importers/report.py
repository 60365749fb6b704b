"""What an import has done, or would do."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from detlab.importers.left_out import LeftOut

COPIED, WENT_ON, RESUMED, PRESENT, FAILED = "copied", "went_on", "resumed", "present", "failed"
OUTCOMES = (COPIED, RESUMED, WENT_ON, PRESENT, FAILED)
"""Of a run: new here; begun by an import that was stopped; logged into since the last one; unchanged; not copied."""
MOST_FAILURES = 100


@dataclass
class ExperimentReport:
    """What becomes of one experiment.

    Attributes:
        source: Its name there.
        project: The project here.
        runs: How many runs by outcome.
    """

    source: str
    project: str
    runs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))


@dataclass(frozen=True)
class Failure:
    """A run that could not be copied, and why."""

    run: str
    why: str


class ImportReport:
    """Counts of an import. Threads may share it.

    Args:
        source: Address or folder.
        workspace: Where it goes; empty: the personal one.
        dry: Whether nothing is copied.
        left_out: What is not.
    """

    def __init__(self, source: str, workspace: str, dry: bool, left_out: LeftOut) -> None:
        self.source, self.workspace, self.dry, self.left_out = source, workspace, dry, left_out
        self.experiments: list[ExperimentReport] = []
        self.failures: list[Failure] = []
        self.counts = {
            "points": 0,
            "files": 0,
            "bytes": 0,
            "pickles": 0,
            "logged_models": 0,
            "models": 0,
            "versions": 0,
        }
        self._lock = threading.Lock()

    def experiment(self, source: str, project: str) -> ExperimentReport:
        """Begin the report of an experiment."""
        made = ExperimentReport(source, project)
        self.experiments.append(made)
        return made

    def ended(self, experiment: ExperimentReport, outcome: str) -> None:
        """Count a run."""
        with self._lock:
            experiment.runs[outcome] += 1

    def failed(self, experiment: ExperimentReport, run: str, why: str) -> None:
        """Count a run that could not be copied."""
        with self._lock:
            experiment.runs[FAILED] += 1
            if len(self.failures) < MOST_FAILURES:
                self.failures.append(Failure(run, why))

    def add(self, **counts: int) -> None:
        """Count points, files, bytes, models."""
        with self._lock:
            for name, count in counts.items():
                self.counts[name] += count

    def runs(self, *outcomes: str) -> int:
        """Return how many runs have had some outcomes."""
        wanted: Sequence[str] = outcomes or OUTCOMES
        with self._lock:
            return sum(one.runs[name] for one in self.experiments for name in wanted)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for `--json`."""
        return {
            "source": self.source,
            "workspace": self.workspace,
            "dry_run": self.dry,
            "experiments": [
                {"source": one.source, "project": one.project, "runs": dict(one.runs)} for one in self.experiments
            ],
            "runs": {name: self.runs(name) for name in OUTCOMES},
            **self.counts,
            "failures": [{"run": one.run, "why": one.why} for one in self.failures],
            "left_out": [
                {"what": why, "count": one.count, "examples": one.examples} for why, one in self.left_out.items()
            ],
        }
