"""End a forked interpreter without taking down what it shares with its zygote.

A trial's own end is the interpreter's: threads are waited for, `atexit` runs, its modules are cleared, files left
open are flushed. Only what the zygote had loaded is left standing: clearing its two thousand modules, taking back the
operators that torch registered and running libtorch's static destructors takes a third of a second, and copies every
page that they touch.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
import weakref
from dataclasses import dataclass, field


@dataclass
class Ending:
    """What to leave standing; nothing, until `know` is called."""

    _before: frozenset[str] = field(default_factory=lambda: frozenset(sys.modules))
    _loaded: tuple[str, ...] = ()

    @classmethod
    def prepare(cls) -> Ending:
        """Take the last turn among the functions of `atexit`, which are called from the newest to the oldest."""
        ending = cls()
        atexit.register(ending._leave)
        return ending

    def know(self) -> None:
        """All that was imported since `prepare`, with its libraries, is to be left standing."""
        self._loaded = tuple(name for name in sys.modules if name not in self._before)
        _keep_operators()
        _skip_destructors()

    def _leave(self) -> None:
        kept = [sys.modules.pop(name) for name in self._loaded if name in sys.modules]
        # One reference that nobody gives back.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


def _keep_operators() -> None:
    """Have torch's own libraries of operators, in Python, not taken back at the end; those of a program are."""
    for finalizer, what in list(weakref.finalize._registry.items()):  # type: ignore[attr-defined]  # no other list
        if what.func.__module__ == "torch.library":
            finalizer.atexit = False


def _skip_destructors() -> None:
    """Have exit(3) end the process once it has called what is registered from now on, and flushed what C wrote.

    Only glibc can: elsewhere the destructors run.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit") and hasattr(libc, "fcloseall"):
        libc.on_exit(libc._exit, None)  # with the exit status as its argument
        libc.on_exit(libc.fcloseall, None)  # called before, as the newer one
