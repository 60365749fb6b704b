"""How an error of detlab that a training script does not catch is shown: the script's own frames, and what helps.

The frames inside detlab and the errors of the operating system behind it say nothing that the message does not say.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from pathlib import Path
from types import TracebackType

from detlab.errors import DetlabError

_OURS = (str(Path(__file__).parents[1]), contextlib.__file__)


def show_own_errors_short() -> None:
    """Have this process show uncaught errors of detlab without detlab's own frames; all others as before."""
    if getattr(sys.excepthook, "shows_own_errors_short", False):
        return
    earlier = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        if isinstance(error, DetlabError):
            sys.stderr.write("".join(shortened(error).format()))
        else:
            earlier(kind, error, where)

    show.shows_own_errors_short = True  # type: ignore[attr-defined]  # known again by the next context
    sys.excepthook = show


def shortened(error: DetlabError) -> traceback.TracebackException:
    """Return the traceback of an error: frames of the caller's code, at least one frame, and no cause of ours."""
    found = traceback.TracebackException.from_exception(error)
    theirs = [frame for frame in found.stack if not frame.filename.startswith(_OURS)]
    found.stack = traceback.StackSummary.from_list(theirs or found.stack[:1])
    cause = error.__cause__ or error.__context__
    if isinstance(cause, OSError | DetlabError):
        found.__cause__ = found.__context__ = None
    return found
