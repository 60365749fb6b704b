"""A script with `init` and `log` that a cluster runs as a trial: its run is the trial."""

from __future__ import annotations

import logging
import os
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


class TrialRecords(LoggedRecords):
    """Reports metrics of a trial, in its groups; its launcher sends them. All else a trial has by itself.

    Args:
        directory: The spool of the task.
        searched: The metric that the search goes by: one of validation, whatever it is called.
        strict: Raise what goes wrong.
    """

    def __init__(self, directory: Path, searched: str, *, strict: bool = False) -> None:
        super().__init__(directory, strict=strict)
        self._searched = searched

    def append(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Append reports, if these are metrics."""
        if kind != "metrics":
            return
        groups: dict[str, dict[str, Any]] = {}
        for key, value in fields["values"].items():
            group, name = place_of(key, self._searched)
            groups.setdefault(group, {})[name] = value
        step = max(0, fields["step"])  # a trial counts from 0
        for group, metrics in groups.items():
            super().append("metrics", {"group": group, "steps_completed": step, "metrics": metrics})


class TrialRun(Run):
    """The run that is a trial: its artifacts are sent at once, by the token of its task."""

    artifacts: ArtifactContext

    def _log_artifact(self, made: Artifact, aliases: list[str]) -> None:
        self.artifacts.log(made, aliases=aliases)

    def _end(self, status: ExitStatus, reason: str) -> None:
        self.artifacts.close()
        super()._end(status, reason)

    def _found_version(self, given: Artifact | str) -> ArtifactVersion:
        return self.artifacts.use(given if isinstance(given, str) else given.logged.reference)


def trial_run(config: Any, *, strict: bool) -> Run | None:
    """Return the run of the trial that this process is of; None: it is of none.

    Only the first rank reports: further ones log nothing.
    """
    try:
        info = get_cluster_info()
    except NotInCluster as error:
        logger.warning("%s", error)
        return None
    if info is None or info.task_type != "TRIAL":
        return None
    return _run_of(info, config, strict=strict)


def _run_of(info: ClusterInfo, config: Any, *, strict: bool) -> Run:
    trial = info.trial
    key = f"{trial.trial_id:032x}"
    if os.environ.get("RANK", "0") != "0":
        run = TrialRun(None, key, mode="disabled", strict=strict)
    else:
        searched = str((trial._config.get("searcher") or {}).get("metric") or "")
        spool = info.task_dir / "spool"
        records, media = TrialRecords(spool, searched, strict=strict), MediaSpool(spool / "media")
        run = TrialRun(None, key, strict=strict, records=records, media=media)
    run.artifacts = ArtifactContext(info)
    run.config.update({**plain_config(config), **trial.hparams})
    return run
