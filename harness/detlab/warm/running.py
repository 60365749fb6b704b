"""Run a program as the interpreter itself runs `python3 SCRIPT`, `-m MODULE` and `-c CODE`: `__main__` and all.

detlab's frames are not visible in it: a traceback begins in the program, exit codes and signals come from the
interpreter's own end, because an exception is left to reach it.
"""

from __future__ import annotations

import builtins
import io
import runpy
import sys
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

from detlab.launch.python_program import Program


@dataclass
class ReadyProgram:
    """A program in an interpreter that is ready for it.

    Attributes:
        program: What to run.
        cwd: Where.
        path: `sys.path`, without the place of the program.
    """

    program: Program
    cwd: str
    path: tuple[str, ...]

    def set_up(self) -> None:
        """Set `sys.argv`, `sys.path` and an empty `__main__`."""
        program = self.program
        sys.orig_argv = list(program.words)
        main = ModuleType("__main__")
        main.__dict__.update(__annotations__={}, __builtins__=builtins, __loader__=BuiltinImporter)
        first, place = {
            "script": (program.target, str(Path(self.cwd, program.target).resolve().parent)),
            "module": ("-m", self.cwd),
            "code": ("-c", ""),
        }[program.kind]
        if program.kind == "script":
            script = f"{self.cwd}/{program.target}" if not program.target.startswith("/") else program.target
            loader = SourceFileLoader("__main__", script)
            main.__dict__.update(__file__=script, __cached__=None, __loader__=loader)
        sys.argv = [first, *program.arguments]
        sys.path[:] = [place, *self.path]
        sys.modules["__main__"] = main

    def run(self) -> None:
        """Run the program; its exceptions are left for the interpreter to report."""
        try:
            self._execute()
        except SystemExit:
            raise
        except BaseException:
            _hide_our_frames()
            raise

    def _execute(self) -> None:
        program = self.program
        if program.kind == "module":
            runpy._run_module_as_main(program.target)  # type: ignore[attr-defined]  # what `-m` itself calls
            return
        space = sys.modules["__main__"].__dict__
        if program.kind == "script":
            name = space["__file__"]
            with io.open_code(name) as file:
                source: str | bytes = file.read()
        else:
            name, source = "<string>", program.target
        exec(compile(source, name, "exec", dont_inherit=True), space)  # noqa: S102  (the user's own program)


def _hide_our_frames() -> None:
    """Let the traceback that is about to be shown begin where the program begins."""
    hook = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.excepthook = hook
        while trace is not None and not _is_programs(trace):
            trace = trace.tb_next
        sys.last_traceback = trace
        hook(kind, error.with_traceback(trace), trace)

    sys.excepthook = show


def _is_programs(trace: TracebackType) -> bool:
    """Whether we are past `-c` of the zygote, `main` and this module."""
    return trace.tb_frame.f_globals.get("__name__") not in {"detlab.warm.zygote", __name__} and (
        trace.tb_frame.f_globals.get("__zygote__") is None
    )
