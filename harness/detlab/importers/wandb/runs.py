"""Folders of W&B's runs: projects with runs, what was logged, and the files beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from detlab.errors import DetlabError
from detlab.importers.folders import Unreadable, files_below, folders, opened, read_text
from detlab.importers.foreign import (
    NOTE_TAG,
    ForeignExperiment,
    ForeignFile,
    ForeignModel,
    ForeignPoint,
    ForeignRegisteredModel,
    ForeignRun,
)
from detlab.importers.left_out import LeftOut
from detlab.importers.wandb import records as of
from detlab.importers.wandb.log import LogDamage, records

BEGINS = ("offline-run-", "run-")
ENDING = ".wandb"
NO_PROJECT = "uncategorized"
"""W&B's own name for it."""
MEDIA, MOST_DEPTH = "media/", 12
SYSTEM = "system/"
MOST_KEYS = 20_000
"""Keys of a config or a summary that are kept while it is read."""
METADATA, METADATA_BYTES = "wandb-metadata.json", 1024 * 1024
_INNER = frozenset({"_step", "_runtime", "_timestamp", "_wandb"})


@dataclass
class _Log:
    """What the log of a run says, but for its rows."""

    start: of.RunStart | None = None
    config: dict[str, bytes] = field(default_factory=dict)
    summary: dict[str, bytes] = field(default_factory=dict)
    ended: tuple[int, int] | None = None
    artifacts: int = 0
    damage: LogDamage = field(default_factory=LogDamage)


class WandbFolder:
    """A folder of runs: `wandb/`, one that contains it, or a single run's.

    Args:
        folder: It.
        left_out: Takes what is not read.

    Raises:
        DetlabError: There are no runs in it.
    """

    kind = "wandb"

    def __init__(self, folder: Path, left_out: LeftOut) -> None:
        self.label = str(folder)
        self._left_out = left_out
        self._found: dict[str, list[ForeignRun]] = {}
        logs = [path for root in (folder, folder / "wandb") for path in _logs(root)]
        if not logs:
            raise DetlabError(
                f"{folder} has no runs of W&B: no offline-run-*/run-*{ENDING} is in it",
                hint="Name the folder wandb/ that stands beside the script which has logged.",
            )
        self._logs = logs

    def stop(self) -> None:
        """Do nothing: nobody is waited for."""

    def close(self) -> None:
        """Do nothing."""

    def experiments(self) -> list[ForeignExperiment]:
        """Return the projects that the runs name."""
        for path in self._logs:
            run = self._run(path)
            if run is not None:
                self._found.setdefault(run.experiment, []).append(run)
        return [ForeignExperiment(name, name) for name in sorted(self._found)]

    def runs(self, experiment: ForeignExperiment) -> Iterator[ForeignRun]:
        """Yield the runs of a project, those that began first before others."""
        yield from sorted(self._found.get(experiment.id, ()), key=lambda run: (run.started_ms, run.id))

    # --- one run

    def _run(self, path: Path) -> ForeignRun | None:
        where = path.parent.name
        try:
            log = self._read(path)
        except Unreadable as error:
            self._left_out.add("runs whose log cannot be read", f"{where}: {error}")
            return None
        if log.damage:
            self._left_out.add("runs whose log is damaged, or ends within a record: the rest is copied", where)
        if log.start is None:
            self._left_out.add("runs whose log does not say what they are", where)
            return None
        if log.artifacts:
            self._left_out.add("artifacts of W&B: log them anew", where, log.artifacts)
        start = log.start
        said = self._metadata(path.parent)
        return ForeignRun(
            id=f"{start.entity}/{start.project}/{start.run_id}@{start.started_ms}",
            experiment=start.project or NO_PROJECT,
            name=start.name or start.run_id,
            user=str(said.get("username") or start.entity),
            status=_status(log),
            started_ms=max(start.started_ms, 0),
            ended_ms=None if log.ended is None else start.started_ms + log.ended[1] * 1000,
            params=self._params(log.config, where),
            tags={**_tags(start, said), **self._summary_tags(log.summary)},
            state=[path.stat().st_size, log.ended],
            place=(path, dict(log.summary)),
        )

    def _read(self, path: Path) -> _Log:
        log = _Log()
        for kind, data in _messages(path, log.damage):
            if kind in {of.HISTORY, of.STATS}:
                continue
            try:
                self._take(log, kind, data)
            except of.BadMessage:
                log.damage.records += 1
        if log.start is not None and log.start.config:
            first = of.items(of.CONFIG, log.start.config).update
            log.config = {**first, **log.config}
        return log

    def _take(self, log: _Log, kind: int, data: bytes) -> None:
        if kind == of.RUN:
            log.start = of.run_start(data)
        elif kind == of.EXIT:
            log.ended = of.exit_code(data)
        elif kind == of.ARTIFACT:
            log.artifacts += 1
        elif kind in {of.CONFIG, of.SUMMARY}:
            into, found = (log.config if kind == of.CONFIG else log.summary), of.items(kind, data)
            if len(into) + len(found.update) <= MOST_KEYS:
                into.update(found.update)
            for key in found.remove:
                into.pop(key, None)

    def _metadata(self, folder: Path) -> dict[str, Any]:
        try:
            found = json.loads(read_text(folder, f"files/{METADATA}", METADATA_BYTES))
        except (Unreadable, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _params(self, config: Mapping[str, bytes], where: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for key, said in config.items():
            if key == "_wandb":
                continue
            value = _json(said)
            if value is _NONE:
                self._left_out.add("values that are no JSON", f"{where}: config {key}")
                continue
            for name, one in _flat(key, value):
                found[name] = one if isinstance(one, str) else _as_text(one)
        return found

    def _summary_tags(self, summary: Mapping[str, bytes]) -> dict[str, str]:
        """Return the texts of a summary; its numbers are metrics."""
        found: dict[str, str] = {}
        media = _media(summary)
        for key, said in summary.items():
            if key.partition(".")[0] in _INNER or any(key == name or key.startswith(f"{name}.") for name in media):
                continue
            for name, one in _flat(key, _json(said)):
                if isinstance(one, str) and one not in _NAMED:
                    found[f"summary.{name}"] = one
        return found

    # --- its values

    def points(self, run: ForeignRun) -> Iterator[ForeignPoint]:
        """Yield the rows' numbers, the system metrics, and numbers of the summary that no row has."""
        path, summary = run.place
        where, last = path.parent.name, {}
        time_ms, step, samples = run.started_ms, 0, 0
        for kind, data in _messages(path, LogDamage()):
            if kind not in {of.HISTORY, of.STATS}:
                continue
            try:
                row = of.items(kind, data)
            except of.BadMessage:
                continue
            if kind == of.STATS:
                for key, value in self._numbers(row.update, where):
                    yield ForeignPoint(f"{SYSTEM}{key}", value, max(row.time_ms, 0), samples)
                samples += 1
                continue
            time_ms = _time_of(row.update, time_ms)
            step = _step_of(row, step)
            for key, value in self._numbers(row.update, where):
                last[key] = value
                yield ForeignPoint(key, value, time_ms, step)
        for key, value in self._numbers(summary, where, counted=False):
            if key not in last:
                yield ForeignPoint(key, value, time_ms, step)
            elif last[key] != value and not (math.isnan(last[key]) and math.isnan(value)):
                yield ForeignPoint(f"summary/{key}", value, time_ms, step)

    def _numbers(self, row: Mapping[str, bytes], where: str, *, counted: bool = True) -> Iterator[tuple[str, float]]:
        media = _media(row)
        if counted:
            for name in media:
                self._left_out.add("media in rows (images, tables, histograms, …)", f"{where}: {name}")
        for key, said in row.items():
            if key.partition(".")[0] in _INNER or any(key == name or key.startswith(f"{name}.") for name in media):
                continue
            for name, one in _flat(key, _json(said)):
                number = _number(one)
                if number is not None:
                    yield name, number
                elif counted and one is not None:
                    self._left_out.add("values of rows that are no numbers", f"{where}: {name}")

    # --- files

    def files(self, run: ForeignRun) -> Iterator[ForeignFile]:
        """Yield the files of a run; media and links are counted."""
        root, where = run.place[0].parent / "files", run.place[0].parent.name
        try:
            for path, size in files_below(root):
                if size is None:
                    self._left_out.add("links, such as `wandb.save` makes: copy what they lead to", f"{where}: {path}")
                elif path.startswith(MEDIA):
                    self._left_out.add("files of media", f"{where}: {path}")
                else:
                    yield ForeignFile(path, size, root)
        except Unreadable as error:
            self._left_out.add("files that are too many, or lie too deep", f"{where}: {error}")

    @contextmanager
    def open(self, file: ForeignFile) -> Iterator[tuple[BinaryIO, int]]:
        """Open a file, as large as it is now."""
        with opened(file.place, file.path) as stream:
            size = stream.seek(0, 2)
            stream.seek(0)
            yield stream, size

    def models(self, experiment: ForeignExperiment) -> Iterator[ForeignModel]:
        """Yield nothing: models of W&B are artifacts."""
        return iter(())

    def model_files(self, model: ForeignModel) -> Iterator[ForeignFile]:
        """Yield nothing."""
        return iter(())

    def registered(self) -> Iterator[ForeignRegisteredModel]:
        """Yield nothing: the registry is on the server alone."""
        return iter(())


def _logs(root: Path) -> list[Path]:
    """Return the logs of the runs in a folder, and its own; `latest-run` is a link to one of them."""
    names = [name for name in folders(root) if name.startswith(BEGINS)]
    places = [root / name for name in names] + ([root] if root.name.startswith(BEGINS) else [])
    return [path for place in places for path in sorted(place.glob(f"run-*{ENDING}")) if not path.is_symlink()]


def _messages(path: Path, damage: LogDamage) -> Iterator[tuple[int, bytes]]:
    with opened(path.parent, path.name) as file:
        for data in records(file, damage):
            try:
                found = of.message(data)
            except of.BadMessage:
                damage.records += 1
                continue
            if found is not None:
                yield found


def _status(log: _Log) -> str:
    if log.ended is None:
        return "KILLED"  # or it runs still: then the next import says more
    return "FAILED" if log.ended[0] else "FINISHED"


def _tags(start: of.RunStart, said: Mapping[str, Any]) -> dict[str, str]:
    git = said.get("git") if isinstance(said.get("git"), dict) else {}
    assert isinstance(git, dict)
    found = {
        NOTE_TAG: start.notes,
        "wandb.run": start.run_id,
        "wandb.entity": start.entity,
        "wandb.tags": ", ".join(start.tags),
        "wandb.group": start.group,
        "wandb.job_type": start.job_type,
        "wandb.sweep": start.sweep,
        "wandb.host": start.host or str(said.get("host") or ""),
        "mlflow.source.name": str(said.get("program") or ""),
        "mlflow.source.git.commit": start.commit or str(git.get("commit") or ""),
        "mlflow.source.git.repoURL": start.remote or str(git.get("remote") or ""),
    }
    return {key: value for key, value in found.items() if value}


_NONE = object()
_NAMED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _json(said: bytes) -> Any:
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        return _NONE


def _flat(key: str, value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a value by the path of their names."""
    if isinstance(value, dict) and value and depth < MOST_DEPTH:
        for name, inner in value.items():
            yield from _flat(f"{key}.{name}", inner, depth + 1)
    elif value is not _NONE:
        yield key, value


def _media(row: Mapping[str, bytes]) -> list[str]:
    """Return the keys of a row that are pictures, tables and the like, as one value or several: they have a `_type`."""
    found = [key.removesuffix("._type") for key in row if key.endswith("._type")]
    for key, said in row.items():
        if b'"_type"' in said and isinstance(value := _json(said), dict) and "_type" in value:
            found.append(key)
    return found


def _number(value: Any) -> float | None:
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return (
        {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(value) if isinstance(value, str) else None
    )


def _as_text(value: Any) -> str:
    if value is None or isinstance(value, int | float):
        return str(value)
    return json.dumps(value)


def _time_of(row: Mapping[str, bytes], otherwise: int) -> int:
    number = _number(_json(row["_timestamp"])) if "_timestamp" in row else None
    return round(number * 1000) if number is not None and 0 <= number < 2**43 else otherwise


def _step_of(row: of.Items, otherwise: int) -> int:
    said = _json(row.update["_step"]) if "_step" in row.update else None
    if isinstance(said, int) and not isinstance(said, bool):
        return said
    return row.step if row.step is not None else otherwise
