"""A script with `init` and `log` that a cluster runs as a trial: its run is the trial."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detlab.core.artifacts import ArtifactContext
from detlab.core.metrics.media import MediaSpool
from detlab.errors import NotInCluster
from detlab.info import ClusterInfo, get_cluster_info
from detlab.schemas.wire.logged_names import place_of
from detlab.schemas.wire.runs import ExitStatus
from detlab.track.logged import plain_config
from detlab.track.records import LoggedRecords
from detlab.track.this_run import Run

if TYPE_CHECKING:
    from detlab.client.artifacts.draft import Artifact
    from detlab.client.artifacts.logged import ArtifactVersion

logger = logging.getLogger("detlab.track")
METADATA_KEY = "run"
"""In the trial's metadata: what the script has said of its run."""
METADATA_SECONDS = 10.0
METADATA_LIMIT = 20.0
"""Seconds for which storing it is tried, through an outage of the master."""


class RunMetadata:
    """What a run says of itself besides metrics, kept in the metadata of its trial: below `run`, beside the rest.

    It is sent some seconds after it was said, and at the end.

    Args:
        info: The trial's task.
    """

    def __init__(self, info: ClusterInfo) -> None:
        self._info = info
        self._pid = os.getpid()
        self._values: dict[str, Any] = {}
        self._changed = False
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._timer: threading.Timer | None = None
        atexit.register(self.send)

    def take(self, part: str, values: Mapping[str, Any]) -> None:
        """Note values of a part, such as `summary`; each replaces the one of its name."""
        given = self._info.trial.hparams if part == "config" else {}
        new = {key: value for key, value in values.items() if key not in given or given[key] != value}
        if not new:
            return
        with self._lock:
            self._values.setdefault(part, {}).update(new)
            self._changed = True
            if self._timer is None:
                self._timer = threading.Timer(METADATA_SECONDS, self.send)
                self._timer.daemon = True
                self._timer.start()

    def send(self) -> None:
        """Store what is new; what goes wrong is told."""
        if os.getpid() != self._pid:  # a forked child's end is not that of its parent
            return
        with self._sending:
            with self._lock:
                timer, self._timer = self._timer, None
                if timer is not None:
                    timer.cancel()
                if not self._changed:
                    return
                self._changed = False
                values = {part: dict(known) for part, known in self._values.items()}
            try:
                self._store(values)
            except Exception as error:  # the script goes on
                self._changed = True
                logger.warning("configuration, tags and results of the run are not kept with the trial yet: %s", error)

    def _store(self, values: Mapping[str, Any]) -> None:
        from detlab.core.session import TaskSession

        session = TaskSession.from_info(self._info)
        try:
            known = session.get("task/metadata", limit=METADATA_LIMIT) or {}
            session.call("PUT", "task/metadata", body={**known, METADATA_KEY: values}, limit=METADATA_LIMIT)
        finally:
            session.close()


class TrialRecords(LoggedRecords):
    """Reports metrics of a trial, in its groups, which its launcher sends, and what else a run says to its metadata.

    Args:
        directory: The spool of the task.
        searched: The metric that the search goes by: one of validation, whatever it is called.
        metadata: Takes configuration, tags and results.
        strict: Raise what goes wrong.
    """

    def __init__(self, directory: Path, searched: str, metadata: RunMetadata, *, strict: bool = False) -> None:
        super().__init__(directory, strict=strict)
        self._searched = searched
        self._metadata = metadata

    def append(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Append reports, if these are metrics, and hand on what is none."""
        match kind:
            case "metrics":
                self._report(fields)
            case "config" | "tags" | "summary":
                self._metadata.take(kind, fields["values"])
            case "log":  # of `alert`: the trial's output is what the process prints
                sys.stderr.write(f"{fields['text']}\n")
                sys.stderr.flush()
            case "alert":
                super().append("alert", fields)
            case "exit":
                self._metadata.send()

    def _report(self, fields: Mapping[str, Any]) -> None:
        groups: dict[str, dict[str, Any]] = {}
        for key, value in fields["values"].items():
            group, name = place_of(key, self._searched)
            groups.setdefault(group, {})[name] = value
        step = max(0, fields["step"])  # a trial counts from 0
        for group, metrics in groups.items():
            report = {"group": group, "steps_completed": step, "metrics": metrics}
            super().append("metrics", report if "time" not in fields else {**report, "time": fields["time"]})


class TrialRun(Run):
    """The run that is a trial: its artifacts are sent at once, by the token of its task."""

    artifacts: ArtifactContext
    info: ClusterInfo

    def import_tensorboard(self, folder: str | os.PathLike[str], own: Path | None = None) -> None:
        """Log what this process writes for TensorBoard, unless the trial's launcher does so by its configuration."""
        if self.info.trial._config.get("tensorboard") != "import":
            super().import_tensorboard(folder, own or self.info.task_dir / "tensorboard")

    def _log_artifact(self, made: Artifact, aliases: list[str]) -> None:
        self.artifacts.log(made, aliases=aliases)

    def _end(self, status: ExitStatus, reason: str) -> None:
        self.artifacts.close()
        super()._end(status, reason)

    def _found_version(self, given: Artifact | str) -> ArtifactVersion:
        return self.artifacts.use(given if isinstance(given, str) else given.logged.reference)


def trial_run(config: Any, *, strict: bool, about: Mapping[str, str | None] | None = None) -> Run | None:
    """Return the run of the trial that this process is of; None: it is of none.

    Only the first rank reports: further ones log nothing.

    Args:
        config: Of the script.
        strict: Raise what goes wrong.
        about: What the script says of its run, such as its name.
    """
    try:
        info = get_cluster_info()
    except NotInCluster as error:
        logger.warning("%s", error)
        return None
    if info is None or info.task_type != "TRIAL":
        return None
    return _run_of(info, config, strict=strict, about={key: value for key, value in (about or {}).items() if value})


def _run_of(info: ClusterInfo, config: Any, *, strict: bool, about: Mapping[str, str | None]) -> Run:
    trial = info.trial
    key = f"{trial.trial_id:032x}"
    if os.environ.get("RANK", "0") != "0":
        run = TrialRun(None, key, mode="disabled", strict=strict)
    else:
        searched = str((trial._config.get("searcher") or {}).get("metric") or "")
        metadata = RunMetadata(info)
        metadata.take("about", about)
        spool = info.task_dir / "spool"
        records, media = TrialRecords(spool, searched, metadata, strict=strict), MediaSpool(spool / "media")
        run = TrialRun(None, key, strict=strict, records=records, media=media)
    run.info, run.artifacts = info, ArtifactContext(info)
    run.config.update({**plain_config(config), **trial.hparams})
    return run
