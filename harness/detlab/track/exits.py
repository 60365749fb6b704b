"""How this process ends: an exception that nobody catches, `sys.exit`, or the end of the script."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from detlab.schemas.wire.runs import ExitStatus

REASON_CHARS = 500


class ExitWatch:
    """Notes how the process ends, and calls back when it does.

    Args:
        at_exit: Called at the end of the process, unless `stop` was.
    """

    def __init__(self, at_exit: Callable[[], None]) -> None:
        self._at_exit = at_exit
        self.status: ExitStatus = "FINISHED"
        self.reason = ""
        self._hook = sys.excepthook
        self._exit: Callable[..., Any] = sys.exit

    def start(self) -> None:
        """Begin. What was there before is called, too."""
        self._hook, self._exit = sys.excepthook, sys.exit
        sys.excepthook = self._uncaught
        sys.exit = self._exiting  # it ends in the one that was there
        atexit.register(self._at_exit)

    def stop(self) -> None:
        """Put back what was there, unless somebody has replaced it since."""
        atexit.unregister(self._at_exit)
        if sys.excepthook == self._uncaught:
            sys.excepthook = self._hook
        if sys.exit == self._exiting:
            sys.exit = self._exit

    def failed(self, kind: type[BaseException], error: BaseException | None) -> None:
        """Note an exception that ends the run."""
        if issubclass(kind, SystemExit):
            self._coded(getattr(error, "code", None))
            return
        self.status = "KILLED" if issubclass(kind, KeyboardInterrupt) else "FAILED"
        self.reason = f"{kind.__name__}: {error}"[:REASON_CHARS].encode(errors="replace").decode()

    def _uncaught(self, kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        self.failed(kind, error)
        self._hook(kind, error, where)

    def _exiting(self, code: Any = None, /) -> Any:
        self._coded(code)
        self._exit(code)

    def _coded(self, code: Any) -> None:
        if code not in {None, 0}:
            self.status, self.reason = "FAILED", f"exit code {code}"[:REASON_CHARS]
