"""How a task ended, from what Slurm says of its job and what the job left in the shared folder. Pure."""

from __future__ import annotations

import json
import math
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from detlab_agent.runtimes.base import TaskExit
from detlab_agent.runtimes.records import TaskElsewhere
from detlab_agent.runtimes.slurm.answers import JobEnd
from detlab_agent.runtimes.slurm.script import REQUEUED

NOT_ITS_FAULT = "machine_restarted"
"""The reason of ends that do not count as a restart of the trial."""
TIME_LIMIT = "time_limit"
_BY_OTHERS = {
    "NODE_FAIL": "a node of it failed",
    "BOOT_FAIL": "its node did not boot",
    "PREEMPTED": "Slurm preempted it for another job",
    "REVOKED": "Slurm revoked it",
    "CANCELLED": "somebody cancelled it (scancel)",
    "LAUNCH_FAILED": "Slurm could not launch it on its node",
    "RECONFIG_FAIL": "its node could not be configured",
}
_WORDS = 500
_MEMORY = re.compile(
    r"^slurmstepd\S*: error: +((?:.*?exceeded (?:job |step |virtual )?memory limit|Detected \d+ oom[-_ ]?kill).*)$",
    re.MULTILINE | re.IGNORECASE,
)
"""What Slurm itself writes into a job's output about its memory; the state of the job may be any."""
DOUBTFUL = frozenset({"FAILED", "CANCELLED", "OUT_OF_MEMORY", "NODE_FAIL", "COMPLETED"})
"""States behind which there may be such a line."""


def exit_of(job_id: str, end: JobEnd | None, said: str, output: str, *, killed: bool) -> TaskExit:
    """Return how a task ended.

    Args:
        job_id: Slurm's number of the job.
        end: What Slurm says; None if it has forgotten the job.
        said: Content of the exit file; "" if there is none.
        output: What the job's script printed, and what Slurm wrote there; "" if the report alone says how it ended.
        killed: Whether this agent ended it, for the master.
    """
    report = TaskElsewhere.exit_of(None if end is None else end.status, said)
    if killed:
        told = report.exit_code is not None or report.reason == "setup"
        return report if told else TaskExit(exit_code=-signal.SIGKILL, message=f"Slurm job {job_id} was killed")
    if _reason(said) == REQUEUED or (end is not None and end.restarts):
        return _not_its_fault(job_id, "Slurm started it a second time (scontrol requeue)")
    state = "" if end is None else end.state
    if report.exit_code != 0 and (state == "OUT_OF_MEMORY" or _MEMORY.search(output)):
        return TaskExit(exit_code=report.exit_code, reason="oom", message=_of_memory(job_id, end, output))
    by_itself = bool(said) and report.reason not in {"launcher_lost"} and (report.exit_code or 0) >= 0
    if by_itself and not (state in _BY_OTHERS and report.exit_code is None):
        return report
    if state in {"TIMEOUT", "DEADLINE"}:
        limit = f" of {end.limit}" if end is not None and end.limit else ""
        return TaskExit(
            exit_code=report.exit_code,
            reason=TIME_LIMIT,
            message=f"Slurm ended job {job_id}{_where(end)} at its time limit{limit} before it had saved and left",
        )
    if state in _BY_OTHERS:
        return _not_its_fault(f"{job_id}{_where(end)}", _BY_OTHERS[state])
    return report if said else _without_report(job_id, end, output)


def of_ranks(said: Sequence[str], end: JobEnd | None) -> str:
    """Return the report of the node that decides how a trial over several ended; "" if none does.

    Args:
        said: Content of the exit file of each node; "" where there is none.
        end: What Slurm says of the job.
    """
    told = [(text, report) for text in said if (report := _report(text))]
    silent = len(told) < len(said)
    if silent and end is not None and end.state in _BY_OTHERS:
        return ""  # those that live fail for want of the others
    failed = [(text, report) for text, report in told if report.get("exit_code") != 0 or report.get("reason")]
    if failed:
        return min(failed, key=lambda one: _decides(one[1]))[0]
    return "" if silent or not told else told[0][0]


def _decides(report: Mapping[str, Any]) -> tuple[bool, float]:
    """Order reports of failures: who failed by itself comes before who was ended for it, and then who failed first."""
    code, at = report.get("exit_code"), report.get("ended_at")
    return isinstance(code, int) and code < 0, at if isinstance(at, int | float) else math.inf


def _of_memory(job_id: str, end: JobEnd | None, output: str) -> str:
    """Return that a job has exceeded its memory, in Slurm's words where it has some."""
    found = _MEMORY.search(output)
    words = found[1].strip()[:200] if found else "OUT_OF_MEMORY"
    return (
        f"Slurm job {job_id}{_where(end)} exceeded its memory limit: {words}; raise resources.memory or --mem-per-gpu"
    )


def _where(end: JobEnd | None) -> str:
    return f" on {end.node}" if end is not None and end.node and end.node != "(null)" else ""


def _without_report(job_id: str, end: JobEnd | None, output: str) -> TaskExit:
    """Return the exit of a job whose launcher never came to say something."""
    if end is None:
        # A controller that dies forgets the jobs of its last seconds, and has its nodes end them.
        why = "Slurm does not know it by its name (any more), and it left no report: it was forgotten, or renamed"
        return _not_its_fault(job_id, why)
    words = "; ".join(line.strip() for line in output.strip()[-_WORDS:].splitlines()[-4:] if line.strip())
    message = f"Slurm job {job_id}{_where(end)} ended as {end.state} with status {end.status}"
    if end.status is not None and end.status < 128:
        return TaskExit(
            exit_code=None, reason="setup", message=f"{message} before its launcher: {words or 'no output'}"
        )
    return TaskExit(reason="launcher_lost", message=f"{message}: {words}" if words else message)


def _not_its_fault(job_id: str, why: str) -> TaskExit:
    return TaskExit(reason=NOT_ITS_FAULT, message=f"Slurm job {job_id}: {why}")


def _reason(said: str) -> str:
    return str(_report(said).get("reason") or "")


def _report(said: str) -> dict[str, Any]:
    try:
        report = json.loads(said or "null")
    except (ValueError, RecursionError):  # the latter: brackets in brackets, thousands deep
        return {}
    return report if isinstance(report, dict) else {}


def code_of(said: str) -> int | None:
    """Return the exit code that a report says; None if it says none."""
    code = _report(said).get("exit_code")
    return code if isinstance(code, int) else None


def killed_by(said: str) -> int:
    """Return the signal that ended a task, as its report says; 0 if none did."""
    code = _report(said).get("exit_code")
    return -code if isinstance(code, int) and code < 0 else 0


def delivered(exit_: TaskExit) -> TaskExit:
    """Return an exit after which the agent has nothing to deliver: the job's spool was on another machine."""
    return replace(exit_, delivered=True)
