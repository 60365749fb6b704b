"""End a forked interpreter without taking down what it shares with its zygote.

A trial's own end is the interpreter's: threads are waited for, `atexit` runs, its modules are cleared, files left
open are flushed. Only what the zygote had loaded is kept: clearing its two thousand modules, taking back the
operators that torch registered and running libtorch's static destructors takes a third of a second, and copies every
page that they touch.

The interpreter then clears itself: the strings and types of all modules, without any visible effect, which would be
most of what a small trial costs. Where the exit status is known before, the process ends at that point, and not
earlier: what a program has left in a context, a hook or a ring is freed, and so written, by then.

Not so what hangs on a function or class that the zygote had loaded (an attribute that the program set on
`json.JSONEncoder`, a function that it put in the place of one of `threading.Thread`'s): those are never freed. A file
that is held there alone, and neither closed nor flushed, is not written; an interpreter that started cold mostly does.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import sys
import weakref
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import ExtensionFileLoader, FileFinder
from types import FunctionType
from typing import Any

_KNOWN_TO_END_SO = frozenset({(3, 11), (3, 12)})
"""Versions of CPython that clear `sys.__dict__` as the very last of what a program could have put something into."""
_NO_NAME = 0
"""A key of `sys.__dict__` that is no string: it is still there when the names of all modules have been set to None."""
_INT = 1 << 31


@dataclass
class WarmEnding:
    """What to leave standing; nothing, until `know` is called."""

    # Thousands of names: not among what is printed where a function of `atexit` fails.
    _before: frozenset[str] = field(default_factory=lambda: frozenset(sys.modules), repr=False)
    _loaded: tuple[str, ...] = field(default=(), repr=False)
    _exit: Any = None
    status: int | None = None
    """With which status the program ends; None: the interpreter is to say."""

    @classmethod
    def prepare(cls) -> WarmEnding:
        """Take the last turn among the functions of `atexit`, which are called from the newest to the oldest."""
        ending = cls()
        atexit.register(ending._leave)
        return ending

    def know(self) -> None:
        """All that was imported since `prepare`, with its libraries, is to be left standing."""
        self._loaded = tuple(name for name in sys.modules if name not in self._before)
        _keep_operators()
        _skip_destructors()
        _keep_objects()
        if sys.version_info[:2] in _KNOWN_TO_END_SO:
            self._exit = ctypes.CDLL(None).exit
            self._exit.argtypes, self._exit.restype = (ctypes.c_int, ctypes.py_object), None

    def note(self, end: SystemExit | None = None) -> None:
        """Note that the program has ended, by its last line (None) or by an exit."""
        code = 0 if end is None or end.code is None else end.code
        # Anything else is printed, or is too large for C.
        self.status = int(code) if isinstance(code, int) and -_INT <= code < _INT else None

    def _leave(self) -> None:
        _keep([sys.modules.pop(name) for name in self._loaded if name in sys.modules])
        if self._exit is None or self.status is None or self._has_functions_of_c() or not _flushed():
            return
        _end_last(partial(self._exit, self.status))

    def _has_functions_of_c(self) -> bool:
        """Whether the program has loaded libraries that may want to be called by `Py_AtExit`, the very last of all."""
        return any(_may_be_of_c(module) for name, module in list(sys.modules.items()) if name not in self._before)


def _may_be_of_c(module: object) -> bool:
    """Whether a module is a library in C that did not come with Python, or does not let that be seen."""
    try:
        loader = getattr(getattr(module, "__spec__", None), "loader", None)
        return isinstance(loader, ExtensionFileLoader) and loader.name not in sys.stdlib_module_names
    except BaseException:  # a program may have put anything among the modules
        return True


class _Last:
    """The object that is released last."""

    __slots__ = ("__weakref__",)


def _end_last(end: Any) -> None:
    """Have the process ended when the interpreter has cleared all that a program could have put something into.

    Args:
        end: Ends it, given a reference: a function of C, as no line of Python runs any more by then.
    """
    last = _Last()
    _keep(weakref.ref(last, end))
    vars(sys)[_NO_NAME] = last  # type: ignore[index]  # see there


def _flushed() -> bool:
    """Flush what the program wrote; False when that fails, which the interpreter makes a status of its own of."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except BaseException:  # a stream may be anything that the program has put there
        return False
    return True


def _keep_objects() -> None:
    """Keep every function and class alive: a fork would free, and so copy, all that hangs on what it clears.

    Lists, tables and contexts are not kept: a program may put something into them that is to end with them.
    """
    # By their types: an object may do anything when it is asked for its class.
    _keep([found for found in gc.get_objects() if issubclass(type(found), (FunctionType, type, FileFinder))])


def _keep(what: object) -> None:
    """Take one reference that is never released."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(what))


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
