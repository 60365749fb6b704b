"""Cells as modules: importable in the kernel, shipped in the bundle, with line numbers that stay the cell's own.

Line 1 of the module is the `%%det_module` line as a comment, so line n of the file is line n of the cell. The text is
the same each time a notebook runs: which execution of which cell it was is kept beside it (`provenance`). The files lie
in a folder of this kernel's, first on `sys.path`: worker processes (spawn, forkserver, joblib) import them from there,
and `inspect` reads them. The kernel itself imports them by `CellModules`, so that its tracebacks name the cell.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import keyword
import linecache
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, ClassVar

from detlab.files import write_atomic
from detlab.short_folder import short_folder
from detlab_magics.errors import MagicError


def refuse_magics(text: str, name: str, where: str) -> None:
    """Refuse a text that is no Python for a line which only IPython understands.

    Args:
        text: The cell's text, from its first line on.
        name: What the cell is called.
        where: What cannot hold such lines, and why.

    Raises:
        MagicError: There is such a line.
    """
    for number, line in enumerate(text.split("\n")[1:], 2):
        if line.lstrip().startswith(("%", "!")):
            raise MagicError(
                f"line {number} of {name}: {line.strip()[:60]}: magics and shell lines do not work in {where}",
                hint="subprocess.run([…], check=True) instead of !…; plain calls instead of %…",
            )


def module_text(name: str, body: str) -> str:
    """Return the text of a cell's module: the same for cells that differ in nothing that Python reads.

    Line ends, and white space at the ends of lines and of the cell, do not count; texts of several lines keep theirs.
    No line moves.
    """
    lines = body.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    kept = _inside_texts(body)
    clean = [line if number in kept else line.rstrip() for number, line in enumerate(lines, 1)]
    return f"# %%det_module {name}\n" + "\n".join(clean).rstrip("\n") + "\n"


def _inside_texts(body: str) -> set[int]:
    """Return the lines whose end lies inside of a text of several lines; of code that is none, all of them."""
    try:
        tree = ast.parse(body)
    except (SyntaxError, ValueError):
        return set(range(1, body.count("\n") + 2))
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr))
    return {line for text in texts for line in range(text.lineno, text.end_lineno or text.lineno)}


@dataclass(frozen=True)
class CellModule:
    """One captured cell."""

    name: str
    source: str
    cell: int
    """The number in In[…]."""
    cell_id: str | None = None

    @property
    def filename(self) -> str:
        """The file in the bundle."""
        return f"{self.name}.py"

    @property
    def shown_as(self) -> str:
        """What tracebacks call it."""
        return f"cell {self.cell} ({self.filename})"

    def code(self) -> CodeType:
        """Compile the cell.

        Raises:
            SyntaxError: At the cell's own line.
        """
        return compile(self.source, self.shown_as, "exec")


class ModuleFolder:
    """The folder of this kernel's modules; made when the first one is written, removed with the kernel."""

    made: ClassVar[set[str]] = set()
    """All of this process."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self._removal = contextlib.ExitStack()
        self._owner = os.getpid()

    def write(self, filename: str, source: str) -> Path:
        """Write a module; return its path.

        Raises:
            OSError: No folder can be written to, or the disk is full.
        """
        if self.path is None:
            self.path = self._removal.enter_context(short_folder())
            self._owner = os.getpid()
            self.made.add(str(self.path))
            sys.path.insert(0, str(self.path))
            atexit.register(self.remove)
        # Compiled files are told apart by size and second: two versions of a cell may share both.
        for compiled in (self.path / "__pycache__").glob(f"{Path(filename).stem}.*.pyc"):
            compiled.unlink(missing_ok=True)
        return write_atomic(self.path / filename, source.encode())

    def remove(self) -> None:
        """Remove the folder; not by a forked child, which ends before the kernel does."""
        if self.path is None or self._owner != os.getpid():
            return
        with contextlib.suppress(ValueError):
            sys.path.remove(str(self.path))
        atexit.unregister(self.remove)
        self._removal.close()
        self.path = None


class CellModules(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """The captured cells of one kernel session, importable by name; a later cell of a name replaces the former."""

    def __init__(self) -> None:
        self.cells: dict[str, CellModule] = {}
        self.folder = ModuleFolder()
        self.files: dict[str, Path] = {}
        """Where the cells lie on disk, by the name of the module."""

    @property
    def filenames(self) -> set[str]:
        """The files that the cells are in a bundle."""
        return {cell.filename for cell in self.cells.values()}

    def capture(self, name: str, body: str, cell: int, cell_id: str | None = None) -> CellModule:
        """Keep a cell as module `name`. It runs when it is first imported, not now.

        Raises:
            MagicError: The name cannot be a module's, or it would hide an installed package; or a line of the cell
                is IPython's.
            SyntaxError: The cell is not Python; the line is the cell's.
        """
        if not name.isidentifier() or keyword.iskeyword(name):
            raise MagicError(f"{name!r} cannot be a module name", hint="%%det_module train")
        if name not in self.cells and self._taken(name):
            raise MagicError(
                f"a module {name!r} already exists here{self._place(name)}; the cell would hide it",
                hint=f"choose another name, for example %%det_module my_{name}",
            )
        module = CellModule(name, module_text(name, body), cell, cell_id)
        try:
            module.code()
        except SyntaxError:
            refuse_magics(module.source, module.shown_as, "a module, which is plain Python")
            raise
        self.files.pop(name, None)
        with contextlib.suppress(OSError):  # the kernel imports it all the same
            self.files[name] = self.folder.write(module.filename, module.source)
        self.cells[name] = module
        sys.modules.pop(name, None)
        lines = module.source.splitlines(keepends=True)
        linecache.cache[module.shown_as] = (len(module.source), None, lines, module.shown_as)
        return module

    def _taken(self, name: str) -> bool:
        try:
            spec = importlib.util.find_spec(name)
            return spec is not None and str(Path(spec.origin or "").parent) not in ModuleFolder.made
        except (ImportError, ValueError):
            return name in sys.modules

    def _place(self, name: str) -> str:
        """Return the file of a module that exists, in brackets: from the working folder where it is below that."""
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return ""
        if spec is None or not spec.has_location or spec.origin is None:
            return ""
        file = Path(spec.origin)
        return f" ({file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file})"

    def install(self) -> None:
        """Make the cells importable."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def uninstall(self) -> None:
        """Undo `install`."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self.folder.remove()
        self.files.clear()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a captured cell, or None."""
        cell = self.cells.get(fullname)
        if cell is None:
            return None
        file = self.files.get(fullname)
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=str(file) if file else cell.shown_as)
        spec.has_location = file is not None
        return spec

    def get_source(self, fullname: str) -> str | None:
        """Return the cell's text."""
        cell = self.cells.get(fullname)
        return None if cell is None else cell.source

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the cell compiled, named after the cell."""
        cell = self.cells.get(fullname)
        return None if cell is None else cell.code()

    def is_package(self, fullname: str) -> bool:
        """Cells are modules, never packages."""
        return False

    def provenance(self) -> dict[str, Any]:
        """Return file -> cell, as experiments keep it in `source.cells`."""
        return {c.filename: {"cell": c.cell, "cell_id": c.cell_id, "line_offset": 0} for c in self.cells.values()}
