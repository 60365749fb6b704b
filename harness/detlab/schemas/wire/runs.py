"""Wire models of runs that no cluster started: begun by a script anywhere, which sends its records as they come."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field

from detlab.schemas.text_limits import NOTES_CHARS
from detlab.schemas.wire.base import PersonRequest, Wire

RUN_KEY_CHARS, RUN_NAME_CHARS, GROUP_CHARS, PLACE_CHARS = 128, 500, 250, 600
RUN_KEY_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
METRIC_TAG = "detlab.metric"
"""Tag with the metric by which a run is measured: `min val_loss`, `max accuracy`."""
SUMMARY_CHARS = 8000
"""Of one value of a summary, as JSON."""
RunKey = Annotated[str, Field(min_length=1, max_length=RUN_KEY_CHARS, pattern=RUN_KEY_PATTERN)]
WriterKey = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9-]+$")]
ExitStatus = Literal["FINISHED", "FAILED", "KILLED"]


def is_drawn_key(text: str) -> bool:
    """Whether a key is one that a script has drawn by chance, not chosen: nobody else has it."""
    return re.fullmatch("[0-9a-f]{32}", text) is not None


class BeginRun(PersonRequest):
    """POST runs: a run begins, or more of it is to come. The same key of the same user is the same run."""

    key: RunKey
    """Drawn by the script, or chosen by its user; or the id of a run that is there, which goes on."""
    project: str = Field("", max_length=PLACE_CHARS)
    """`NAME` of the caller's own workspace, `WORKSPACE/NAME`, or `OWNER/WORKSPACE/NAME`; made if it is not there.
    Empty: the one for what names none."""
    name: str = Field("", max_length=RUN_NAME_CHARS)
    group: str = Field("", max_length=GROUP_CHARS)
    """What it belongs to: an experiment of several runs."""
    job_type: str = Field("", max_length=GROUP_CHARS)
    """Its part in that: `train`, `eval` …"""
    notes: str = Field("", max_length=NOTES_CHARS)
    started: float = Field(0.0, ge=0, le=2**43, allow_inf_nan=False)
    """Seconds since the epoch, by the clock of where it ran."""
    writer: WriterKey | None = None
    """The process that asks: each has records of its own."""


class LastPoint(Wire):
    """The newest value of a metric: that of the greatest step."""

    value: float
    step: int
    time: float = 0.0


class RunView(Wire):
    """A run that no cluster started, or what MLflow's clients have logged into or below a trial."""

    id: str
    key: str = ""
    """What its script calls it and prints, where the run is the caller's own; it names the run as the id does."""
    name: str = ""
    owner: str = ""
    status: Literal["RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"] = "RUNNING"
    end_reason: str = ""
    """Why it failed, if it is known: an exception, or that it was not heard from any more."""
    workspace: str = ""
    """`OWNER/NAME`."""
    project: str = ""
    project_id: int | None = None
    experiment_id: int | None = None
    """Of the trial below which it lies."""
    group: str = ""
    job_type: str = ""
    notes: str = ""
    started_at: float = 0.0
    ended_at: float | None = None
    heard_at: float | None = None
    """When one of its processes was last heard from; null: its client is another, which does not say that it lives."""
    deleted: bool = False
    config: dict[str, str] = {}
    """Parameters, as texts, by the path of their names."""
    tags: dict[str, str] = {}
    may: Literal["read", "write", "own"] = "read"
    """What the caller may do with it: look at it, log into it, or delete it, too."""
    shortened: list[str] = []
    """Fields of which a list has a part only."""
    metrics: dict[str, LastPoint] = {}
    summary: dict[str, Any] = {}
    """What the script has said to be its results; metrics that it does not name have their newest value."""


class RunBegun(Wire):
    """The reply to `BeginRun`."""

    run: RunView
    acked: int = 0
    """Records of the writer that are stored already: the next one follows."""


class RunViewList(Wire):
    """A page of runs, the newest first."""

    items: list[RunView]
    next: int | None = None
    """`skip` of the next page; null: this is the last one."""


class _OfRun(PersonRequest):
    seq: int
    """1, 2, 3, … per process of the run; a seq seen before is skipped."""
    time: float


class WriterBegins(_OfRun):
    """A process of the run begins; its first record."""

    kind: Literal["begin"] = "begin"
    host: str = Field("", max_length=253)
    pid: int = 0


class LoggedMetrics(_OfRun):
    """Values of metrics at a step."""

    kind: Literal["metrics"] = "metrics"
    step: int
    values: dict[str, Any]
    """Numbers; or the names of those that JSON lacks."""


class LoggedValues(_OfRun):
    """Parameters, tags or results; each replaces what had its name."""

    kind: Literal["config", "tags", "summary"]
    values: dict[str, Any]


class PrintedLine(_OfRun):
    """A line that the process has printed."""

    kind: Literal["log"] = "log"
    stdtype: Literal["stdout", "stderr"] = "stdout"
    level: str | None = Field(None, max_length=20)
    text: str


class RaisedAlert(_OfRun):
    """People are told: `det.alert()`. It is cut to 200 characters of title, 4,000 of text."""

    kind: Literal["alert"] = "alert"
    title: str = ""
    text: str = ""
    level: str = "info"


class WriterExit(_OfRun):
    """A process of the run has ended; its last record."""

    kind: Literal["exit"] = "exit"
    status: ExitStatus
    reason: str = ""


_AnyRecord = WriterBegins | LoggedMetrics | LoggedValues | PrintedLine | RaisedAlert | WriterExit
RunRecord = Annotated[_AnyRecord, Field(discriminator="kind")]


class RunRecords(PersonRequest):
    """POST runs/{run_id}/writers/{writer}/records: in order, at most 1,000 records or 4 MB; none: it is alive."""

    stream: str = Field("", max_length=20)
    """What sends tasks' records names it; there is one here."""
    records: list[RunRecord] = Field(max_length=1000, fail_fast=True)


class RunPoints(Wire):
    """A page of the values of a metric of a run, by step and time."""

    name: str
    steps: list[int] = []
    values: list[float] = []
    times: list[float] = []
    next: str | None = None
    """`after` of the next page; null: this is the last one."""


class RunBeat(Wire):
    """A run has logged something, or has been heard from, since the beat before."""

    status: str
    heard_at: float | None = None


class RunCurve(Wire):
    """The values of a metric, thinned so that its shape is that of all of them."""

    name: str
    steps: list[int] = []
    values: list[float] = []
    times: list[float] = []
    """Seconds since the epoch."""
    total: int = 0
    """Values that there are."""


class RunCurveList(Wire):
    """A part of the curves of a run, by name."""

    items: list[RunCurve]
    next: int | None = None
    """`skip` of the next part; null: this is the last one."""


class RunFileView(Wire):
    """A file of a run: code, packages, or what it has logged."""

    path: str
    size: int = 0
    """Bytes."""
    updated_at: float = 0.0


class RunFileList(Wire):
    """A part of the files of a run, by path."""

    items: list[RunFileView]
    next: int | None = None
    """`skip` of the next part; null: this is the last one."""
