"""A notebook cell on borrowed slots: `python -m detlab.run.cell` runs the one that was shipped in `.det_cell/`.

    .det_cell/cell.json         {"name": "cell 7", "out": [names], "in": {name: file}}
    .det_cell/cell.py           its text; line n is the notebook's line n
    .det_cell/<n>.value         the variables that go in (detlab.run.values)

Its variables go back as outputs `<name>.value`, and how it ended as `cell.json`:

    {"ok": true, "pickled": {name: type}}
    {"ok": false, "error": {"type", "message", "traceback": [lines], "line"}, "pickled": {…}}

The cell runs as `__main__`, in the folder of the bundle.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import linecache
import os
import sys
import threading
import traceback
import types
from pathlib import Path
from typing import Any, TextIO

from detlab.run.outputs import TaskOutputs
from detlab.run.values import ValueProblem, decode, encode

FOLDER = ".det_cell"
REPORT = "cell.json"
SUFFIX = ".value"
EXIT_SECONDS = 5.0
"""How long exit hooks and threads of the cell may take after it."""
_MOST_TRACEBACK = 200


def compiled(text: str, name: str) -> list[types.CodeType]:
    """Return the code of a cell: its statements, and apart from them the expression at its end, whose value is shown.

    Top-level `await` is allowed, as in a notebook.

    Raises:
        SyntaxError: With the cell's name and line.
    """
    tree = ast.parse(text, name)
    last: list[ast.Expression] = []
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not text.rstrip().endswith(";"):
        statement = tree.body.pop()
        assert isinstance(statement, ast.Expr)
        last = [ast.Expression(statement.value)]
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    codes = [compile(tree, name, "exec", flags=flags, dont_inherit=True)]
    return codes + [compile(part, name, "eval", flags=flags, dont_inherit=True) for part in last]


def run_cell(text: str, name: str, namespace: dict[str, Any]) -> None:
    """Run a cell's text in a namespace; print the value of the expression at its end.

    Raises:
        BaseException: The exception that the cell raised.
    """
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    shown = None
    for code in compiled(text, name):
        shown = eval(code, namespace)  # noqa: S307  (running the user's cell is what this is for)
        if code.co_flags & inspect.CO_COROUTINE:
            shown = asyncio.run(_awaited(shown))
    if shown is not None:
        print(repr(shown))


async def _awaited(coroutine: Any) -> Any:
    return await coroutine


def exit_status(error: SystemExit) -> int:
    """Return the status with which Python itself would exit."""
    return (error.code if isinstance(error.code, int) else 0 if error.code is None else 1) & 0xFF


def described(error: BaseException, name: str, folder: Path) -> dict[str, Any]:
    """Return an exception as plain data, with the frames of the cell and what it called.

    Args:
        error: What was raised.
        name: The cell's name in frames.
        folder: The working folder: files below it are named from there.
    """
    raised = error.__traceback__
    first = raised
    while first is not None and first.tb_frame.f_code.co_filename != name:
        first = first.tb_next
    lines = traceback.format_exception(type(error), error, first or raised)
    shown = "".join(lines).replace(f'"{folder}{os.sep}', '"').splitlines()
    if len(shown) > _MOST_TRACEBACK:
        half = _MOST_TRACEBACK // 2
        shown = [*shown[:half], f"  … {len(shown) - 2 * half} lines …", *shown[-half:]]
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == name else None
    while first is not None:
        if first.tb_frame.f_code.co_filename == name:
            line = first.tb_lineno
        first = first.tb_next
    return {"type": type(error).__name__, "message": _text_of(error), "traceback": shown, "line": line}


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # a user's own __str__
        return f"(its text cannot be made: {type(second).__name__})"


class Cell:
    """One shipped cell.

    Args:
        folder: The working folder, in which `.det_cell` lies.
        outputs: Where results go.
        aside: Where an error is written for the log; the notebook shows it by itself.
    """

    def __init__(self, folder: Path, outputs: TaskOutputs, aside: TextIO) -> None:
        self._folder = folder
        self._outputs = outputs
        self._aside = aside
        self._request = json.loads((folder / FOLDER / "cell.json").read_text(encoding="utf-8"))
        self._name = str(self._request["name"])
        self._pickled: dict[str, str] = {}

    def run(self) -> int:
        """Run it, hand over its variables and how it ended; return the exit status."""
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = main
        sys.path.insert(0, str(self._folder))
        error: BaseException | None = None
        try:
            self._take_in(main.__dict__)
            text = (self._folder / FOLDER / "cell.py").read_text(encoding="utf-8")
            run_cell(text, self._name, main.__dict__)
        except BaseException as raised:  # SystemExit and KeyboardInterrupt are ends, too
            error = raised
        sys.stdout.flush()
        sys.stderr.flush()
        # What was set before an error is worth as much as after it.
        well = error is None or (isinstance(error, SystemExit) and exit_status(error) == 0)
        problem = self._hand_over(main.__dict__, strict=well)
        return self._report(problem if well and problem is not None else error)

    def _take_in(self, namespace: dict[str, Any]) -> None:
        for name, file in self._request["in"].items():
            namespace[name] = decode((self._folder / FOLDER / file).read_bytes(), name)

    def _hand_over(self, namespace: dict[str, Any], *, strict: bool) -> BaseException | None:
        """Upload the named variables; return the first problem, once the others are up."""
        first: BaseException | None = None
        for name in self._request["out"]:
            try:
                if name not in namespace:
                    raise NameError(f"--out {name}: the cell has set no variable {name!r}")
                encoded = encode(namespace[name], name)
                self._outputs.put(name + SUFFIX, encoded.data)
                if encoded.pickled is not None:
                    self._pickled[name] = encoded.pickled
            except Exception as error:  # a user's value may raise anything; the others are still wanted
                first = first or error
        return first if strict else None

    def _report(self, error: BaseException | None) -> int:
        status = 0
        found: dict[str, Any] = {"ok": True, "pickled": self._pickled}
        if isinstance(error, SystemExit):
            status = exit_status(error)
            if isinstance(error.code, str):
                print(error.code)
        elif error is not None:
            status = 1
        if status:
            assert error is not None
            told = described(error, self._name, self._folder)
            if isinstance(error, ValueProblem | NameError) and told["line"] is None:
                told["traceback"] = [f"{told['type']}: {told['message']}"]
            found = {"ok": False, "error": told, "pickled": self._pickled}
            self._aside.write("\n".join(told["traceback"]) + "\n")
            self._aside.flush()
        self._outputs.put(REPORT, json.dumps(found).encode())
        return status


def main() -> int:
    """Run the shipped cell; return the exit status."""
    # One pipe: what the cell prints and what it warns of stay in order. The other one is ours.
    with os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace") as aside:
        sys.stdout.flush()
        os.dup2(1, 2)
        return Cell(Path.cwd(), TaskOutputs(), aside).run()


def _leave(status: int) -> None:
    """Exit cleanly but soon: a thread that the cell left behind must not hold the slots."""
    last = threading.Timer(EXIT_SECONDS, os._exit, (status,))
    last.daemon = True
    last.start()
    sys.exit(status)


if __name__ == "__main__":
    _leave(main())
