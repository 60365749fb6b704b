"""Mistakes as a notebook should show them: short, with the next command, and they still stop Run-All."""

from __future__ import annotations

from detlab.errors import DetlabError


class MagicError(Exception):
    """A user's mistake or an unmet need: shown as a few lines, without a Python traceback."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n  next: {hint}")

    def _render_traceback_(self) -> list[str]:
        """IPython shows these lines instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class ExperimentFailed(MagicError):
    """An experiment that a cell waited for did not end COMPLETED."""


class StoppedWatching(MagicError, KeyboardInterrupt):
    """The user interrupted a cell that watches; the experiment runs on."""


def as_magic_error(problem: DetlabError) -> MagicError:
    """Return `problem` as the short error that a cell shows (a ConfigError's message lists every mistake)."""
    return MagicError(problem.message, hint=problem.hint)
