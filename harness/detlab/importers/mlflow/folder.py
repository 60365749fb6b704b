"""A folder `mlruns/`, as MLflow keeps runs without a database: read as it is, without MLflow.

    mlruns/EXPERIMENT/meta.yaml, tags/KEY
    mlruns/EXPERIMENT/RUN/meta.yaml, params/KEY, tags/KEY, metrics/KEY, inputs/…, outputs/…, artifacts/…
    mlruns/EXPERIMENT/models/MODEL/meta.yaml, params/KEY, tags/KEY, metrics/KEY, artifacts/…
    mlruns/EXPERIMENT/datasets/ID/meta.yaml
    mlruns/models/NAME/meta.yaml, tags/KEY, aliases/ALIAS, version-N/{meta.yaml,tags/KEY}

A line of a metric's file is `MILLISECONDS VALUE STEP`, in later versions with a data set behind it. Addresses in these
files lead nowhere: artifacts are those that lie beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from detlab.errors import DetlabError
from detlab.importers.folders import Unreadable, files_below, folders, opened, read_text, read_yaml
from detlab.importers.foreign import (
    NAME_TAG,
    ForeignExperiment,
    ForeignFile,
    ForeignModel,
    ForeignPoint,
    ForeignRegisteredModel,
    ForeignRun,
    ForeignVersion,
)
from detlab.importers.left_out import LeftOut
from detlab.importers.mlflow.messages import STATUSES, is_prompt, text, version_source, whole

META, TRASH = "meta.yaml", ".trash"
RUN_FOLDERS = frozenset({"tags", "datasets", "traces", "models"})
"""Folders of an experiment that are no runs."""
VALUE_BYTES = 256 * 1024
LINE_BYTES = 4096
MOST_POINTS = 20_000_000
"""Of one run."""
_NUMBERED = re.compile(r"version-(\d{1,9})")
_HEX = re.compile(r"[0-9a-zA-Z_-]{1,64}")


class MlflowFolder:
    """A folder with runs.

    Args:
        folder: It.
        left_out: Takes what is not read.

    Raises:
        DetlabError: It is none of MLflow's.
    """

    kind = "mlflow"

    def __init__(self, folder: Path, left_out: LeftOut) -> None:
        self._root = folder if _has_runs(folder) or not _has_runs(folder / "mlruns") else folder / "mlruns"
        if not _has_runs(self._root):
            raise DetlabError(
                f"{folder} is no folder mlruns/ of MLflow: no folder in it has a {META} of an experiment",
                hint="Name the folder mlruns itself, or the address of a tracking server.",
            )
        self.label = str(self._root)
        self._left_out = left_out

    def stop(self) -> None:
        """Do nothing: nobody is waited for."""

    def close(self) -> None:
        """Do nothing."""

    # --- experiments and runs

    def experiments(self) -> list[ForeignExperiment]:
        """Return the experiments; deleted ones are counted."""
        for name in folders(self._root / TRASH):
            self._left_out.add("deleted experiments", text(self._meta(self._root / TRASH / name), "name") or name)
        found = []
        for name in folders(self._root):
            if name in {TRASH, "models"} or (meta := self._meta(self._root / name)) is None:
                continue
            if text(meta, "lifecycle_stage") == "deleted":
                self._left_out.add("deleted experiments", text(meta, "name"))
                continue
            found.append(ForeignExperiment(name, text(meta, "name") or name, self._values(self._root / name, "tags")))
        return found

    def runs(self, experiment: ForeignExperiment) -> Iterator[ForeignRun]:
        """Yield runs, those that began first before others; deleted and damaged ones are counted."""
        root = self._root / experiment.id
        known = []
        for name in folders(root):
            if name in RUN_FOLDERS or not _HEX.fullmatch(name) or (meta := self._meta(root / name)) is None:
                continue
            if text(meta, "lifecycle_stage") == "deleted":
                self._left_out.add("deleted runs", text(meta, "run_name") or name)
                continue
            known.append((whole(meta.get("start_time")), name, meta))
        for _, name, meta in sorted(known, key=lambda one: one[:2]):
            yield self._run(experiment, root / name, meta)

    def _run(self, experiment: ForeignExperiment, folder: Path, meta: Mapping[str, Any]) -> ForeignRun:
        metrics = dict(self._files(folder / "metrics"))
        status, ended, tags = meta.get("status"), meta.get("end_time"), self._values(folder, "tags")
        datasets, models_in = self._inputs(folder)
        return ForeignRun(
            id=folder.name,
            experiment=experiment.id,
            name=text(meta, "run_name") or text(meta, "name") or tags.get(NAME_TAG, ""),
            user=text(meta, "user_id"),
            status=STATUSES[status - 1] if isinstance(status, int) and 0 < status <= len(STATUSES) else "FINISHED",
            started_ms=whole(meta.get("start_time")),
            ended_ms=whole(ended) if ended else None,
            params=self._values(folder, "params"),
            tags=tags,
            metrics=tuple(metrics),
            datasets=datasets,
            models_in=models_in,
            models_out=self._outputs(folder),
            state=sorted(metrics.items()),
            place=folder,
        )

    def points(self, run: ForeignRun) -> Iterator[ForeignPoint]:
        """Yield all values, one metric after the other, line by line."""
        count = 0
        for key in run.metrics:
            for one in self._lines(run.place / "metrics", key, run.id):
                count += 1
                if count > MOST_POINTS:
                    self._left_out.add(f"values over {MOST_POINTS:,} of a run", run.id)
                    return
                yield one

    def _lines(self, folder: Path, key: str, what: str) -> Iterator[ForeignPoint]:
        try:
            with opened(folder, key) as file:
                while line := file.readline(LINE_BYTES):
                    point, rest = _point(key, line), line
                    while len(rest) == LINE_BYTES and not rest.endswith(b"\n"):
                        rest = file.readline(LINE_BYTES)  # of a line that is none
                    if point is not None:
                        yield point
                    elif line.strip():
                        self._left_out.add("damaged lines of metrics", f"{what}: {key}")
        except Unreadable as error:
            self._left_out.add("files that cannot be read", f"{what}: {error}")

    def _inputs(self, folder: Path) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        datasets, models = [], []
        for name in folders(folder / "inputs"):
            meta = self._meta(folder / "inputs" / name) or {}
            source = text(meta, "source_id")
            if text(meta, "source_type").upper().endswith("MODEL"):
                models.append(source)
            elif _HEX.fullmatch(source) and (one := self._meta(folder.parent / "datasets" / source)) is not None:
                tags = meta.get("tags") if isinstance(meta.get("tags"), dict) else {}
                assert isinstance(tags, dict)
                datasets.append(
                    {
                        "dataset": {key: str(value) for key, value in one.items() if value is not None},
                        "tags": [{"key": str(key), "value": str(value)} for key, value in tags.items()],
                    }
                )
        return tuple(datasets), tuple(models)

    def _outputs(self, folder: Path) -> tuple[tuple[str, int], ...]:
        return tuple(
            (name, whole((self._meta(folder / "outputs" / name) or {}).get("step")))
            for name in folders(folder / "outputs")
        )

    # --- files

    def files(self, run: ForeignRun) -> Iterator[ForeignFile]:
        """Yield the files that lie below the run's folder `artifacts`; links are counted."""
        yield from self._artifacts(run.place / "artifacts", f"run {run.id}")

    def model_files(self, model: ForeignModel) -> Iterator[ForeignFile]:
        """Yield the files of a logged model."""
        yield from self._artifacts(model.place / "artifacts", f"model {model.id}")

    def _artifacts(self, root: Path, what: str) -> Iterator[ForeignFile]:
        for path, size in self._files(root, what):
            yield ForeignFile(path, size, root)

    @contextmanager
    def open(self, file: ForeignFile) -> Iterator[tuple[BinaryIO, int]]:
        """Open a file, as large as it is now."""
        with opened(file.place, file.path) as stream:
            size = stream.seek(0, 2)
            stream.seek(0)
            yield stream, size

    # --- models

    def models(self, experiment: ForeignExperiment) -> Iterator[ForeignModel]:
        """Yield the models that runs have logged."""
        root = self._root / experiment.id / "models"
        for name in folders(root):
            meta = self._meta(root / name)
            if meta is None or text(meta, "lifecycle_stage") == "deleted":
                continue
            metrics = [
                point for key, _ in self._files(root / name / "metrics") for point in self._last(root / name, key, name)
            ]
            yield ForeignModel(
                id=name,
                run=text(meta, "source_run_id"),
                name=text(meta, "name"),
                model_type=text(meta, "model_type"),
                ready=text(meta, "status").upper() in {"READY", "LOGGED_MODEL_READY", "2"},
                params=self._values(root / name, "params"),
                tags=self._values(root / name, "tags"),
                metrics=tuple(metrics),
                place=root / name,
            )

    def _last(self, folder: Path, key: str, what: str) -> list[ForeignPoint]:
        last: ForeignPoint | None = None
        for last in self._lines(folder / "metrics", key, what):  # noqa: B007  (the last one is wanted)
            pass
        return [] if last is None else [last]

    def registered(self) -> Iterator[ForeignRegisteredModel]:
        """Yield the registered models with their versions; prompts are counted."""
        root = self._root / "models"
        for folder in folders(root):
            if (meta := self._meta(root / folder)) is None:
                continue
            name, tags = text(meta, "name") or folder, self._values(root / folder, "tags")
            if is_prompt(tags):
                self._left_out.add("prompts of the registry", name)
                continue
            versions = self._versions(root / folder)
            yield ForeignRegisteredModel(
                name, whole(meta.get("creation_timestamp")), text(meta, "description"), tags, versions
            )

    def _versions(self, folder: Path) -> list[ForeignVersion]:
        by_version: dict[str, list[str]] = {}
        for alias, version in self._values(folder, "aliases").items():
            by_version.setdefault(version.strip(), []).append(alias)
        found = []
        for name in folders(folder):
            numbered = _NUMBERED.fullmatch(name)
            meta = self._meta(folder / name) if numbered else None
            if numbered is None or meta is None or text(meta, "current_stage") == "Deleted_Internal":
                continue
            labels = list(by_version.get(str(int(numbered[1])), []))
            stage = text(meta, "current_stage").lower()
            if stage in {"staging", "production", "archived"} and stage not in labels:
                labels.append(stage)
            source = text(meta, "source")
            model, run, path = version_source(source, text(meta, "run_id"), text(meta, "model_id"))
            found.append(
                ForeignVersion(
                    number=int(numbered[1]),
                    created_ms=whole(meta.get("creation_timestamp")),
                    model=model,
                    run=run,
                    folder=path,
                    source=source,
                    description=text(meta, "description"),
                    tags=self._values(folder / name, "tags"),
                    labels=tuple(labels),
                )
            )
        return sorted(found, key=lambda one: one.number)

    # --- reading

    def _meta(self, folder: Path) -> dict[str, Any] | None:
        try:
            return read_yaml(folder, META)
        except Unreadable as error:
            if (folder / META).exists():
                self._left_out.add("folders whose meta.yaml cannot be read", f"{folder.name}: {error}")
            return None

    def _files(self, root: Path, what: str = "") -> Iterator[tuple[str, int]]:
        try:
            for path, size in files_below(root):
                if size is None:
                    self._left_out.add("links, and what is no regular file", f"{what or root.parent.name}: {path}")
                else:
                    yield path, size
        except Unreadable as error:
            self._left_out.add("files that are too many, or lie too deep", f"{what or root.parent.name}: {error}")

    def _values(self, folder: Path, kind: str) -> dict[str, str]:
        found = {}
        for key, _ in self._files(folder / kind):
            try:
                found[key] = read_text(folder / kind, key, VALUE_BYTES)
            except Unreadable as error:
                self._left_out.add("files that cannot be read", f"{folder.name}/{kind}: {error}")
        return found


def _has_runs(folder: Path) -> bool:
    return any((folder / name / META).is_file() for name in folders(folder) if name != "models")


def _point(key: str, line: bytes) -> ForeignPoint | None:
    parts = line.split()
    if not 2 <= len(parts) <= 6 or not line.endswith(b"\n"):
        return None
    try:
        time_ms, step = int(parts[0]), int(parts[2]) if len(parts) > 2 else 0
        value = float(parts[1])
    except ValueError:
        return None
    return ForeignPoint(key, value, whole(time_ms), whole(step))
