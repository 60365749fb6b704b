"""What a foreign tracking system has, in one form, and the interface of those who read it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple, Protocol

PARENT_TAG, NAME_TAG, NOTE_TAG = "mlflow.parentRunId", "mlflow.runName", "mlflow.note.content"


class ForeignPoint(NamedTuple):
    """One value of a metric; the time in milliseconds since the epoch."""

    key: str
    value: float
    time_ms: int
    step: int


@dataclass(frozen=True, slots=True)
class ForeignExperiment:
    """What has runs: an experiment of MLflow, a project of W&B."""

    id: str
    name: str
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A file of a run or a model.

    Attributes:
        path: Relative, in POSIX form, as it is to be called here.
        size: In bytes; None: not known.
        place: By what its source finds it.
    """

    path: str
    size: int | None
    place: Any = None


@dataclass(frozen=True, slots=True)
class ForeignRun:
    """A run. Times in milliseconds.

    Attributes:
        state: What changes when something is logged into it, as plain data: what its digest is of.
        place: By what its source finds it.
    """

    id: str
    experiment: str
    name: str = ""
    user: str = ""
    status: str = "FINISHED"
    started_ms: int = 0
    ended_ms: int | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Sequence[str] = ()
    datasets: Sequence[Any] = ()
    models_in: Sequence[str] = ()
    models_out: Sequence[tuple[str, int]] = ()
    state: Any = None
    place: Any = None


@dataclass(frozen=True, slots=True)
class ForeignModel:
    """A model that a run has logged, with the last value of each of its metrics."""

    id: str
    run: str
    name: str
    model_type: str = ""
    ready: bool = True
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Sequence[ForeignPoint] = ()
    place: Any = None


@dataclass(frozen=True, slots=True)
class ForeignVersion:
    """A version of a registered model: of a logged model, or of a folder of a run."""

    number: int
    created_ms: int = 0
    model: str = ""
    run: str = ""
    folder: str = ""
    source: str = ""
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    labels: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ForeignRegisteredModel:
    """A registered model, its versions by number."""

    name: str
    created_ms: int = 0
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    versions: Sequence[ForeignVersion] = ()


class ImportSource(Protocol):
    """A foreign tracking system that is read. Its methods are called by several threads.

    Attributes:
        kind: What ids of it begin with here: `mlflow`, `wandb`.
        label: Its address or folder, for people.
    """

    kind: str
    label: str

    def experiments(self) -> Iterable[ForeignExperiment]:
        """Return what has runs; deleted ones are left out."""

    def runs(self, experiment: ForeignExperiment) -> Iterator[ForeignRun]:
        """Yield the runs of an experiment, those that began first before others."""

    def points(self, run: ForeignRun) -> Iterator[ForeignPoint]:
        """Yield the values of all metrics of a run."""

    def files(self, run: ForeignRun) -> Iterator[ForeignFile]:
        """Yield the files of a run."""

    def models(self, experiment: ForeignExperiment) -> Iterator[ForeignModel]:
        """Yield the models that runs of an experiment have logged."""

    def model_files(self, model: ForeignModel) -> Iterator[ForeignFile]:
        """Yield the files of a model."""

    def open(self, file: ForeignFile) -> AbstractContextManager[tuple[BinaryIO, int]]:
        """Open a file; the context has its bytes and their number."""

    def registered(self) -> Iterator[ForeignRegisteredModel]:
        """Yield the registered models."""

    def stop(self) -> None:
        """Have threads that wait for it end: the import was interrupted."""

    def close(self) -> None:
        """Close connections."""


def origin_of(source: ImportSource) -> str:
    """Return where copies say that they come from: an address, or the last name of a folder."""
    label = source.label
    return label[-500:] if "://" in label else label.rstrip("/").rpartition("/")[2][-500:]


def digest_of(run: ForeignRun, files: Sequence[ForeignFile], models: Sequence[ForeignModel]) -> str:
    """Return what is another one once something was logged into a run, or other files of it are copied."""
    said = {
        "run": [run.name, run.status, run.ended_ms, dict(run.params), dict(run.tags), run.state],
        "files": sorted([one.path, one.size] for one in files),
        "models": sorted(one.id for one in models),
    }
    text = json.dumps(said, sort_keys=True, default=str)
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
