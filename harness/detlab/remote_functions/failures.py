"""What goes wrong with a function that runs elsewhere: before it is sent, while it runs, with its result."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Sequence
from typing import Any

from detlab.errors import DetlabError
from detlab.visible import visible

_KNOWN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    FileExistsError,
    FileNotFoundError,
    ImportError,
    IndexError,
    KeyError,
    LookupError,
    MemoryError,
    ModuleNotFoundError,
    NameError,
    NotImplementedError,
    OSError,
    OverflowError,
    PermissionError,
    RecursionError,
    RuntimeError,
    TimeoutError,
    TypeError,
    ValueError,
    ZeroDivisionError,
)
_OF_PYTHON: dict[str, type[Exception]] = {kind.__name__: kind for kind in _KNOWN}
MOST_CHARS = 20_000


class FunctionNotShipped(DetlabError):
    """A function, an argument or a value it uses that cannot travel; nothing was submitted."""

    default_code = "remote.not_shipped"

    @classmethod
    def of(cls, headline: str, problems: Sequence[str], *, hint: str | None = None) -> FunctionNotShipped:
        """Return one error that lists all problems."""
        return cls("\n".join([headline, *(f"  {problem}" for problem in problems)]), hint=hint)


class ResultNotTrusted(DetlabError):
    """A result that is a pickle, which was not allowed: reading one runs code."""

    default_code = "remote.not_trusted"


class RemoteError(DetlabError):
    """The function raised, or its task ended without a result.

    An exception of Python's own is raised as a class that is both: `except ValueError` catches it. Others are never
    made here: only their name and their text come back.

    Attributes:
        kind: Name of the exception's class.
        remote_traceback: Its lines, in the function's own source.
        task_id: The task.
    """

    default_code = "remote.failed"
    kind: str = ""
    remote_traceback: str = ""
    task_id: str = ""

    def __str__(self) -> str:
        """Return the message, and the traceback of the task below it."""
        parts = [self.message]
        if self.remote_traceback:
            parts.append(f"\nIn {self.task_id}:\n{self.remote_traceback}")
        if self.hint:
            parts.append(self.hint)
        return "\n".join(parts)


def raised(report: dict[str, Any], task_id: str) -> RemoteError:
    """Return the exception that stands for the one a function raised.

    Args:
        report: `error` of the task's report (`detlab.run.cell`).
        task_id: The task.
    """
    name = str(report.get("type"))
    known = _OF_PYTHON.get(name)
    kind: type[RemoteError] = RemoteError
    if known is not None:
        kind = type(name, (RemoteError, known), {"__module__": __name__})
    lines = [visible(str(line), keep="\t") for line in report.get("traceback") or []]
    message = visible(_message(name, str(report.get("message"))), keep="\n\t")[:MOST_CHARS]
    error = kind(message if known is not None else f"{visible(name, keep='')}: {message}", hint=_hint(name))
    error.kind = name
    error.remote_traceback = "\n".join(lines)[-MOST_CHARS:]
    error.task_id = task_id
    return error


def _message(name: str, text: str) -> str:
    """Return what an exception was made with: the text of a `KeyError` is its key as code, in quotes."""
    if name == "KeyError":
        with contextlib.suppress(ValueError, SyntaxError):
            if isinstance(key := ast.literal_eval(text), str):
                return key
    return text


def _hint(name: str) -> str | None:
    if name in {"ModuleNotFoundError", "ImportError"}:
        return (
            "What it imports must be installed where it runs (environment=…), lie beside this code, or in a folder that"
            " is uploaded (context=…)"
        )
    return None
