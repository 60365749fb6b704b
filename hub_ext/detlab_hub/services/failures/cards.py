"""Failure cards: what, where, likely cause, last lines, next command."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from detlab.schemas.expconf.checks.suggestions import closest
from detlab.schemas.wire import FailureView
from detlab.viz import fronts
from detlab_hub.services.base.masking import masked_text, secrets_of
from detlab_hub.services.base.offers import kind_of_slots
from detlab_hub.services.failures import common_mistakes
from detlab_hub.services.failures.diagnosis import (
    Diagnosis,
    Evidence,
    classify,
    is_denied,
    is_denied_storage,
    is_refused_job,
    is_refused_storage,
    is_untested_framework,
)
from detlab_hub.services.failures.rank_faults import RankLine
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.queries.logs import lines as logs
from detlab_hub.store.queries.metrics import lookup
from detlab_hub.store.tables import (
    AgentRow,
    AllocationRow,
    ExperimentRow,
    MetricName,
    MetricSeries,
    TaskRow,
    TrialRow,
)

LINES_READ = 400
"""Lines of output read to understand a failure."""

_HINTS = {
    "oom": "use a smaller batch or model, or ask for a machine with more memory; the whole output: {logs}",
    "disk_full": "make room on that disk (df -h); a restart continues from the last checkpoint; the output: {logs}",
    "import": "the module must be in the code that was sent, or installed where tasks run; the output: {logs}",
    "config": "check the config's entrypoint and that its file is part of the code; the output: {logs}",
    "nan": "a smaller learning rate or clipped gradients may help; set_detect_anomaly(True) says where; {logs}",
    "hang": "its stacks are in the output; if only slow: pytorch.init(hang_timeout=…), or DET_HANG_TIMEOUT; {logs}",
    "killed": "if no one killed it, the machine may have run out of memory (dmesg); the output: {logs}",
}
_DEFAULT_HINT = "read the whole output: {logs}"
_NO_NCCL = re.compile(r"doesn't have NCCL built in|NCCL is only supported with GPUs")
"""Errors of torch for an impossible NCCL process group: its build has no NCCL, or it sees no GPU."""

_REFUSED_JOB = "these are Slurm's own words: correct the slurm block of the config, or ask who runs Slurm"
_STORAGE = re.compile(r"(?:detlab\.errors\.)?StorageError: cannot ")
"""Errors of a checkpoint storage from the operating system; a full disk is another kind."""
_STORAGE_HINT = "the checkpoint storage must be there, and writable for the task's user, on its agent"
_COMPARED = 200
"""Characters by which a message is found again among the lines of output."""


def _logs(holder: int | str, rank: int | None = None) -> str:
    """Return the command that shows the output, of one rank where there are several."""
    only = "" if rank is None else f" --rank {rank}"
    return f"det task logs {holder}{only}" if isinstance(holder, str) else f"det trial logs {holder}{only}"


ON_NODE = "on node "
"""What the stage of an attempt begins with that runs on a node which its agent's name does not say."""
TIME_LIMIT = "time_limit"
"""The reason of an exit at the time limit of a batch system's job."""
LONGER = "raise slurm.time, or slurm.leave_seconds if saving takes long; a trial that saves now and then loses less"


def _hint(kind: str, logs: str) -> str:
    return _HINTS.get(kind, _DEFAULT_HINT).format(logs=logs)


def _nccl_hint(s: Session, row: AllocationRow, logs: str) -> str:
    """Return a hint about missing NCCL, which differs with and without GPUs."""
    agent = s.get(AgentRow, row.agent_id) if row.agent_id else None
    if agent is None:
        return logs
    if row.slots and kind_of_slots(agent) != "cpu":
        cause = "the task has GPUs, which its PyTorch cannot use: install a build for them in its environment or image"
    else:
        cause = 'NCCL is for GPUs, and the task has none: ask for the backend "gloo" (pytorch.init() does so by itself)'
    return f"{cause}; {logs}"


def of_exit(
    s: Session,
    experiment: ExperimentRow,
    trial: TrialRow,
    row: AllocationRow,
    *,
    rank: int | None = None,
    reason: str = "",
    message: str = "",
) -> FailureView:
    """Make the card of a trial's task that failed by itself.

    Args:
        s: A session.
        experiment: The trial's experiment.
        trial: The trial.
        row: The allocation that ended.
        rank: First failing rank, if the launcher knows it.
        reason: Why it ended, as its agent reported it.
        message: The agent's message.
    """
    evidence = Evidence(
        row.exit_code,
        rank,
        size=row.slots_needed if row.slots_needed > 1 else None,
        metric=experiment.metric,
        value=trial.latest_validation,
        out_of_memory=reason == "oom",
    )
    card = _card(s, trial.id, row, experiment, evidence, reason=reason, message=message)
    return card.model_copy(update={"trial_id": trial.id, "node": node_of(row)})


def of_task_exit(
    s: Session, task: TaskRow, row: AllocationRow, *, rank: int | None = None, reason: str = "", message: str = ""
) -> FailureView:
    """Make the card of a user task that failed by itself; see `of_exit`."""
    evidence = Evidence(row.exit_code, rank, out_of_memory=reason == "oom")
    card = _card(s, task.id, row, task, evidence, reason=reason, message=message)
    return card.model_copy(update={"node": node_of(row)})


def node_of(row: AllocationRow) -> str | None:
    """Return the name of the node that an attempt ran on, as the cluster behind its agent calls it; None: of none."""
    if row.stage_message.startswith(ON_NODE):
        return row.stage_message.removeprefix(ON_NODE)
    agent, _, node = (row.agent_id or "").partition("/")
    return node or agent or None


def _card(
    s: Session,
    holder: int | str,
    row: AllocationRow,
    owner: ExperimentRow | TaskRow,
    evidence: Evidence,
    *,
    reason: str,
    message: str,
) -> FailureView:
    if reason == "setup":
        return FailureView(
            kind="config",
            message=f"the task could not be set up: {message}",
            exit_code=row.exit_code,
            hint=_REFUSED_JOB if is_refused_job(f": {message}") else f"det agent list; {_hint('', _logs(holder))}",
            command="det agent list",
        )
    if reason == TIME_LIMIT:
        return FailureView(
            kind="max_time", message=message, exit_code=row.exit_code, hint=LONGER, command=_logs(holder)
        )
    cells = owner.source.get("cells") if isinstance(owner.source, dict) else None
    secrets = secrets_of(owner.config)
    # Masked before anything is cut: of a secret at the cut a part would stay.
    lines = [replace(line, text=masked_text(line.text, secrets)) for line in _last_lines(s, holder, row.run)]
    diagnosis = classify(
        lines,
        evidence,
        allocation_id=row.id,
        cells=cells if isinstance(cells, dict) else None,
    )
    command = _logs(holder, diagnosis.rank if evidence.size else None)
    hint = (
        f"{diagnosis.helps}; {_DEFAULT_HINT}".format(logs=command)
        if diagnosis.helps
        else _hint(diagnosis.kind, command)
    )
    if _NO_NCCL.search(diagnosis.message):
        hint = _nccl_hint(s, row, hint)
    elif is_denied_storage(diagnosis.message) or is_refused_storage(diagnosis.message):
        hint = f"{_line_after(diagnosis) or _STORAGE_HINT}; {hint}"
    elif is_untested_framework(diagnosis.message) and (line := _line_after(diagnosis)):
        hint = f"{line}, where tasks run; the output: {command}"
    elif is_denied(diagnosis.message):
        hint = f"tasks of {row.owner} run as a user of their own (det user uids), whom ls -ld must let in there; {hint}"
    elif diagnosis.kind == "exception" and _STORAGE.match(diagnosis.message):
        hint = f"{_STORAGE_HINT}; {hint}"
    elif (told := common_mistakes.advice(diagnosis.message)) is not None:
        hint = f"{told}; the output: {command}"
    return FailureView(
        kind=diagnosis.kind,
        message=masked_text(message if evidence.out_of_memory and message else diagnosis.message, secrets),
        rank=diagnosis.rank,
        exit_code=row.exit_code,
        signal=diagnosis.signal,
        where=diagnosis.where,
        log_tail=list(diagnosis.log_tail),
        hint=hint,
        command=command,
    )


def _line_after(diagnosis: Diagnosis) -> str:
    """Return the line below the error, where an error of ours says what helps; "" if there is none."""
    tail = diagnosis.log_tail
    below = [tail[at + 1] for at, line in enumerate(tail[:-1]) if line.startswith(diagnosis.message[:_COMPARED])]
    return below[-1] if below else ""


def _last_lines(s: Session, holder: int | str, run: int) -> list[RankLine]:
    return [RankLine(line.rank, line.text, line.stdtype) for line in logs.last_lines(s, holder, run, LINES_READ)]


def without_restart(card: FailureView) -> FailureView:
    """Return the card of a failure that every attempt would meet again, so that the trial is not restarted."""
    return card.model_copy(update={"hint": f"{card.hint} (not restarted: it would fail in the same way each time)"})


def no_metrics(s: Session, experiment: ExperimentRow, trial: TrialRow) -> FailureView:
    """Make the card of a trial that never reported the metric, without which the search cannot continue."""
    instead = never_reported(s, experiment, trial).partition(" (")[2]
    return FailureView(
        kind="no_metrics",
        message=(
            f"the trial ended without ever reporting the searcher metric {experiment.metric!r};"
            f" {experiment.searcher_name} cannot rank it{f' ({instead}' if instead else ''}"
        ),
        trial_id=trial.id,
        exit_code=0,
        hint=(
            f"report {experiment.metric!r} with report_validation_metrics, or correct searcher.metric;"
            f" the output: det trial logs {trial.id}"
        ),
        command=f"det trial logs {trial.id}",
    )


MEND_METRIC = (
    "The experiment is paused and nothing is lost. Say the right name (det search metric {0} NAME) or send mended code"
    " (det search code {0} FOLDER), then activate it: the trial begins anew."
)
NO_VALUE = "no finite value of"
UNGOVERNED = "its checkpoints have no evidence: nothing shows that its code keeps the governance policy of its config"
NO_METRIC_YET = "its first validation report has no"
_SHOWN_NAMES = 8


def never_reported(s: Session, experiment: ExperimentRow, trial: TrialRow) -> str:
    """Return the warning about a trial that ended without the searcher's metric; it names what validations reported."""
    names = [row.name for row in _VALIDATED.all(s, {"trial": trial.id})]
    shown = ", ".join(name[:WARNED_CHARS] for name in names)
    instead = f" (its validations reported: {shown})" if names else ""
    if not names and lookup.is_reported(s, trial.id, "training", experiment.metric):
        instead = " (its validations reported: nothing; its training did, but a search goes by validations)"
    return f"never reported {experiment.metric!r}{instead}"


def without_metric(experiment: ExperimentRow, trial: TrialRow, names: Iterable[str]) -> str:
    """Return the warning about a validation report without the searcher's metric, while the trial still runs."""
    shown = sorted(name[:WARNED_CHARS] for name in names)
    listed = ", ".join(shown[:_SHOWN_NAMES]) + (", …" if shown[_SHOWN_NAMES:] else "")
    return f"trial {trial.id}: {NO_METRIC_YET} {experiment.metric!r}, the searcher's metric; it has {listed or 'none'}"


def without_value(experiment: ExperimentRow, trial: TrialRow | None = None) -> str:
    """Return the warning about a trial, or a whole search, whose searcher metric never was a number.

    Args:
        experiment: The search.
        trial: The trial; None: the warning is about all of them.
    """
    within = " within the search's constraints" if experiment.config["searcher"].get("constraints") else ""
    last = trial.latest_validation if trial is not None else None
    reported = f"; the last one is {last}" if last is not None and not math.isfinite(last) else ""
    return f"{NO_VALUE} {experiment.metric!r} was reported{within}{reported}"


def with_warning(said: list[str], new: str) -> list[str]:
    """Add a warning to those of an experiment's trials; beyond `WARNED_TRIALS` they are only counted.

    The list is written as a whole with each: without a bound ten thousand trials would write it ten thousand times.
    """
    if len(said) < WARNED_TRIALS:
        return [*said, new]
    counted = _AND_MORE.fullmatch(said[-1])
    more = 1 + (int(counted[1]) if counted else 0)
    return [*(said[:-1] if counted else said), f"and {more} more trials, each with a warning of its own"]


def of_search(experiment: ExperimentRow, trial: TrialRow, error: str, report: Iterable[str]) -> FailureView:
    """Make the card of a trial whose report the search cannot use."""
    reported = sorted(report)
    names = ", ".join(reported[:TAIL_NAMES]) or "nothing"
    wanted = experiment.config["searcher"].get("time_metric")
    meant = None if wanted in reported else closest(wanted, reported)
    told = error.replace(trial.request_id, str(trial.id))  # the search knows no ids of trials
    advice = f"write searcher.time_metric: {meant}, which the trial reports, or " if meant else ""
    needed = [one.name for one in fronts.objectives(experiment.config)] or [experiment.metric]
    lacking = [name for name in needed if name not in reported] or needed
    metrics = " and ".join(map(repr, lacking))
    each = f"its metrics {metrics} as numbers" if len(lacking) > 1 else f"its metric {metrics} as a number"
    return FailureView(
        kind="searcher",
        message=f"{told}; the report contained: {names}",
        trial_id=trial.id,
        hint=(
            f"{advice}report what searcher {experiment.searcher_name} needs: {each} and its"
            f" time_metric in the same validation report; the output: det trial logs {trial.id}"
        ),
        command=f"det trial logs {trial.id}",
    )


TAIL_NAMES = 20
WARNED_NAMES = 5
WARNED_CHARS = 80
WARNED_TRIALS = 100
"""Warnings of trials in the row of their experiment."""
_VALIDATED = PreparedStatement(
    select(MetricName.name)
    .join(MetricSeries, MetricSeries.name_id == MetricName.id)
    .where(MetricSeries.trial_id == bindparam("trial"), MetricSeries.group_name == "validation")
    .order_by(MetricName.name)
    .limit(WARNED_NAMES)
)
_AND_MORE = re.compile(r"and (\d+) more trials, each with a warning of its own")
