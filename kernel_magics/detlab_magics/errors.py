"""Mistakes as a notebook should show them: short, with the next command, and they still stop Run-All."""

from __future__ import annotations

import traceback

from detlab.errors import DetlabError
from detlab_magics.plaintext import in_notebook, plain_lines


class MagicError(Exception):
    """A user's mistake or an unmet need: shown as a few lines, without a Python traceback.

    Args:
        message: What happened, where, and the likely cause.
        hint: The next command.
        kind: The word in front; default: the class's own.
    """

    shown_as = "UsageError"

    def __init__(self, message: str, *, hint: str | None = None, kind: str | None = None) -> None:
        text = plain_lines(message)
        if hint is not None:
            text += "\n  next: " + plain_lines(hint).replace("\n", "\n        ")
        super().__init__(text)
        self.kind = kind or self.shown_as

    def _render_traceback_(self) -> list[str]:
        """IPython shows these lines instead of a traceback."""
        return [f"\x1b[0;31m{self.kind}\x1b[0m: {self}"]


class ExperimentFailed(MagicError):
    """An experiment that a cell waited for did not end COMPLETED."""

    shown_as = "ExperimentFailed"


class StoppedWatching(MagicError, KeyboardInterrupt):
    """The user interrupted a cell that watches; the experiment continues."""

    shown_as = "Interrupted"


def as_cell_error(problem: SyntaxError) -> MagicError:
    """Return a syntax error of a cell as Python prints it, without the frames of those who compiled it."""
    *place, reason = traceback.format_exception_only(problem)
    where = "".join(place).rstrip("\n").expandtabs()
    kind, _, what = reason.strip().partition(": ")
    return MagicError(f"{what}\n{where}", kind=kind)


def as_magic_error(problem: DetlabError) -> MagicError:
    """Return `problem` as the short error that a cell shows (a ConfigError's message lists every mistake)."""
    hint = None if problem.hint is None else in_notebook(problem.hint)
    return MagicError(problem.message, hint=hint, kind=type(problem).__name__)
