"""Errors as one block: what, where, likely cause, next command."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Sized
from contextlib import contextmanager

from detlab.cli.output.printing import clean, note, say_json
from detlab.errors import ApiError, AuthError, ConfigError, DetlabError, Problem, ResourcesError, Unavailable
from detlab.schemas.wire import ErrorView, ExperimentState, ExperimentView, FailureView, ProblemView, TrialState

FAILURE = 1
USAGE = 2
CANCELED = 3
FAILED = 4
TIMED_OUT = 5

_STATUS_OF = {ExperimentState.COMPLETED: 0, ExperimentState.CANCELED: CANCELED}


def status_of(state: ExperimentState) -> int:
    """Return the exit status for an experiment that was waited for."""
    return _STATUS_OF.get(state, FAILED)


def problem_line(problem: Problem | ProblemView) -> str:
    """Return `path: message (hint)`, with a mark on warnings."""
    mark = "warning: " if problem.level == "warning" else ""
    where = f"{problem.path}: " if problem.path else ""
    tail = f" ({problem.hint})" if problem.hint else ""
    return clean(f"{mark}{where}{problem.message}{tail}")


def show(error: Exception, *, as_json: bool = False) -> int:
    """Print an error and return the exit status that belongs to it."""
    if os.environ.get("DET_DEBUG") == "1":
        traceback.print_exception(error, file=sys.stderr)
    status = USAGE if isinstance(error, ConfigError | ResourcesError) else FAILURE
    if as_json:
        say_json(_as_json(error))
    else:
        for line in _block(error):
            note(line)
    return status


class OneByOne:
    """The same with several things: what the master refuses for one is said for it, and the others are done.

    Args:
        what: What they are, such as "Experiment".
        named: All that were named; of a single one the error is raised as it is.
    """

    def __init__(self, what: str, named: Sized) -> None:
        self._what, self._single = what, len(named) == 1
        self.failed = 0

    @contextmanager
    def of(self, name: object) -> Iterator[None]:
        """Do it with one of them."""
        try:
            yield
        except ApiError as error:
            if self._single or isinstance(error, AuthError | Unavailable):
                raise
            self.failed += 1
            hint = f" ({error.hint})" if error.hint else ""
            note(clean(f"{self._what} {name}: {error.message}{hint}"))

    @property
    def status(self) -> int:
        """The exit status."""
        return FAILURE if self.failed else 0


def _problems(error: Exception) -> list[Problem]:
    return error.problems if isinstance(error, ConfigError | ApiError) else []


def _block(error: Exception) -> list[str]:
    if isinstance(error, FileNotFoundError) and error.filename is None and not _has_place():
        return ["Error: the working directory was removed", "  → cd to a directory that exists, and run it again"]
    if not isinstance(error, DetlabError):
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if isinstance(error, OSError | TimeoutError | ValueError):
            return [f"Error: {clean(error, lines=True)}"]
        return [f"Error: unexpected {clean(reason, lines=True)}", "  DET_DEBUG=1 shows where."]
    headline = error.headline if isinstance(error, ConfigError) else error.message
    lines = clean(headline, lines=True).splitlines() or [""]
    block = [f"Error: {lines[0]}", *(f"  {line}" for line in lines[1:])]
    problems = _problems(error)
    if len(problems) != 1 or problems[0].hint or problems[0].message not in headline:  # else it is said already
        block += [f"  {problem_line(problem)}" for problem in problems]
    if error.hint:
        block += [f"  → {line}" for line in clean(error.hint, lines=True).splitlines()]
    return block


def _has_place() -> bool:
    """Whether the working directory exists."""
    try:
        os.getcwd()  # noqa: PTH109  (only asked whether it can be told)
    except FileNotFoundError:
        return False
    return True


def wrong_usage(message: str) -> ErrorView:
    """Return what a command that was called wrongly prints as JSON."""
    return ErrorView(code="usage", message=message)


def _as_json(error: Exception) -> ErrorView:
    """Return an error as the master's replies have it: a program reads both alike."""
    problems = [ProblemView.model_validate(problem.to_dict()) for problem in _problems(error)]
    if isinstance(error, DetlabError):
        message = error.headline if isinstance(error, ConfigError) else error.message
        return ErrorView(code=error.code, message=message, hint=error.hint, problems=problems)
    return ErrorView(code=type(error).__name__, message=str(error))


_HEADS = {"user_stop": "Stopped", "preempted": "Interrupted", "lost": "Interrupted"}
"""How a card begins; what is not in it has failed."""


def failure_card(failure: FailureView, *, experiment_id: int | None = None, command: str | None = None) -> list[str]:
    """Return the lines that tell why work failed, or was stopped: what, where, the last output, the next command.

    Args:
        failure: What the master found out.
        experiment_id: Whose it is, when no trial is named.
        command: The next command; None: the card's own, or the logs of the trial or the experiment; empty: none.
    """
    where = [
        f"trial {failure.trial_id}" if failure.trial_id is not None else "",
        f"rank {failure.rank}" if failure.rank is not None else "",
        f"exit code {failure.exit_code}" if failure.exit_code is not None else "",
        f"signal {failure.signal}" if failure.signal else "",
        failure.where or "",
        f"on {failure.node}" if failure.node else "",
    ]
    head = _HEADS.get(failure.kind, "Failed")
    lines = [f"{head} ({clean(failure.kind)}): {clean(failure.message)}"]
    told = ", ".join(clean(part) for part in where if part)
    if told:
        lines.append(f"  where: {told}")
    if failure.log_tail:
        lines.append("  last output:")
        lines += [f"    | {clean(line)}" for line in failure.log_tail]
    if failure.hint:
        lines.append(f"  → {clean(failure.hint)}")
    if command is None:
        command = clean(failure.command or "") or _logs_command(failure.trial_id, experiment_id)
    if command and command not in (failure.hint or ""):
        lines.append(f"  → {command}")
    return lines


def experiment_card(view: ExperimentView) -> list[str]:
    """Return the lines of the card of an experiment, how many of its trials failed before the first one's; or none."""
    card = view.card or view.failure
    if card is None:
        return []
    lines = failure_card(card, experiment_id=view.id)
    failed = view.trials.get(TrialState.ERROR.value, 0)
    several = view.failure is None and view.state is not ExperimentState.CANCELED and failed > 1
    return [f"{failed} trials failed, this one first:", *lines] if several else lines


def _logs_command(trial_id: int | None, experiment_id: int | None) -> str:
    if trial_id is not None:
        return f"det trial logs {trial_id}"
    return "" if experiment_id is None else f"det experiment logs {experiment_id}"
