"""The supervisor's report of itself and its parts, for `det status` and for the next supervisor."""

from __future__ import annotations

import json
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, ValidationError

from detlab_hub.embedded.process import Running
from detlab_hub.embedded.state import StateFolder, read_json, write_somehow


class PartState(StrEnum):
    """The state of a part."""

    RUNNING = "running"
    WAITING = "waiting"
    """It ended by itself and is restarted after a pause."""
    STOPPED = "stopped"


class PartReport(BaseModel):
    """One part."""

    model_config = ConfigDict(extra="ignore")

    state: PartState = PartState.STOPPED
    pid: int | None = None
    ticks: int | None = None
    started_at: float = 0.0
    restarts: int = 0
    exit_code: int | None = None
    """Status of the last exit; None if it never ended or was not our child."""
    digest: str = ""

    @property
    def running(self) -> Running | None:
        """The process, if it is still there."""
        if self.pid is None or self.ticks is None:
            return None
        process = Running(self.pid, self.ticks, self.started_at)
        return process if process.alive else None


class ClusterReport(BaseModel):
    """The supervisor and its parts."""

    model_config = ConfigDict(extra="ignore")

    pid: int
    ticks: int
    started_at: float
    version: str = ""
    parts: dict[str, PartReport] = {}

    @property
    def supervisor(self) -> Running | None:
        """The supervisor's process, if it is still there."""
        process = Running(self.pid, self.ticks, self.started_at)
        return process if process.alive else None


def read_report(folder: StateFolder) -> ClusterReport | None:
    """Return the last report, None if there is none."""
    raw = read_json(folder.report_file)
    if raw is None:
        return None
    try:
        return ClusterReport.model_validate(raw)
    except ValidationError:
        return None


def write_report(folder: StateFolder, report: ClusterReport) -> None:
    """Replace the report.

    Raises:
        OSError: It cannot be written, not even over the last one.
    """
    text = json.dumps(report.model_dump(mode="json"), indent=1) + "\n"
    write_somehow(folder.report_file, text, mode=0o600)
