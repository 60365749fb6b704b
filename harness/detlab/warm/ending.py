"""End a forked interpreter without taking down what it shares with its zygote.

A trial's own end is the interpreter's: threads are waited for, `atexit` runs, its modules are cleared, files left
open are flushed. Only what the zygote had loaded is left standing: clearing its two thousand modules, taking back the
operators that torch registered and running libtorch's static destructors takes a third of a second, and copies every
page that they touch.

A program that ends well or with a number, and leaves no thread behind, is ended from `atexit`, in the same order:
what the interpreter does after that (it walks through all strings of all modules) would be a tenth of a second.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import gc
import sys
import weakref
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any


@dataclass(repr=False)
class Ending:
    """What to leave standing; nothing, until `know` is called."""

    _before: frozenset[str] = field(default_factory=lambda: frozenset(sys.modules))
    _loaded: tuple[str, ...] = ()
    _known: frozenset[str] = frozenset()
    _attributes: tuple[int, int] = (0, 0)
    _exit: Any = None
    status: int | None = None
    """With which status the program ends; None: whatever the interpreter makes of it."""

    @classmethod
    def prepare(cls) -> Ending:
        """Take the last turn among the functions of `atexit`, which are called from the newest to the oldest."""
        ending = cls()
        atexit.register(ending._leave)
        return ending

    def know(self) -> None:
        """All that was imported since `prepare`, with its libraries, is to be left standing."""
        self._loaded = tuple(name for name in sys.modules if name not in self._before)
        self._known = frozenset(sys.modules)
        self._attributes = (len(vars(sys)), len(vars(builtins)))
        self._exit = ctypes.CDLL(None).exit
        for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # no other way to list them
            finalizer.atexit = False
        _skip_destructors()

    def _leave(self) -> None:
        if self._exit is not None and self.status is not None and len(sys._current_frames()) == 1:
            self._clear()
            if _flushed():
                self._exit(self.status)
        kept = [sys.modules.pop(name) for name in self._loaded if name in sys.modules]
        # One reference that nobody gives back.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))

    def _clear(self) -> None:
        """Take down what the program has made, in the interpreter's order (`finalize_modules` in pylifecycle.c)."""
        if gc.isenabled():
            gc.collect()  # which also brings files before their buffers: they would else be closed unflushed
        modules = _take_modules(self._known)
        _clear_new(vars(builtins), self._attributes[1])
        gc.collect()
        for reference in modules:
            if (module := reference()) is not None:
                _clear_module(vars(module))
                del module
        _clear_new(vars(sys), self._attributes[0])


def status_of(code: object) -> int | None:
    """Return the exit status of a program that raised `SystemExit(code)`; None if there is something to print."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else None


def _clear_new(names: dict[str, Any], known: int) -> None:
    """Drop what the program has added to a module of the interpreter's own."""
    for name in list(reversed(names))[: max(0, len(names) - known)]:
        names[name] = None


def _take_modules(known: frozenset[str]) -> list[weakref.ref[ModuleType]]:
    """Take the program's modules out of `sys.modules`; most of them end with that."""
    modules = sys.modules
    names: list[str] = []
    # The newest first, and none before the first known one: to look at a name is to copy its page.
    for name in reversed(modules):
        if name in known:
            break
        names.append(name)
    left = []
    for name in ("__main__", *reversed(names)):
        module = modules.pop(name, None)
        if isinstance(module, ModuleType):
            left.append(weakref.ref(module))
        del module
    return left


def _clear_module(names: dict[str, Any]) -> None:
    """Set a module's names to None, those that begin with one underscore first; as `_PyModule_Clear` does."""
    for name in list(names):
        if isinstance(name, str) and name.startswith("_") and not name.startswith("__"):
            names[name] = None
    for name in list(names):
        if name != "__builtins__":
            names[name] = None


def _flushed() -> bool:
    """Flush what the program wrote; False when the interpreter must say that it cannot be."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except Exception:  # a stream may be anything that the program has put there
        return False
    return True


def _skip_destructors() -> None:
    """Have exit(3) end the process once it has called what is registered from now on, and flushed what C wrote.

    Only glibc can: elsewhere the destructors run.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit") and hasattr(libc, "fcloseall"):
        libc.on_exit(libc._exit, None)  # with the exit status as its argument
        libc.on_exit(libc.fcloseall, None)  # called before, as the newer one
