"""Cells as modules: importable in the kernel, shipped in the bundle, with line numbers that stay the cell's own.

Line 1 of the module is the `%%det_module` line as a comment, so line n of the file is line n of the cell.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import keyword
import linecache
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

from detlab_magics.errors import MagicError


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


class CellModules(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """The captured cells of one kernel session, importable by name; a later cell of a name replaces the former."""

    def __init__(self) -> None:
        self.cells: dict[str, CellModule] = {}

    @property
    def filenames(self) -> set[str]:
        """The files that the cells are in a bundle."""
        return {cell.filename for cell in self.cells.values()}

    def capture(self, name: str, body: str, cell: int, cell_id: str | None = None) -> CellModule:
        """Keep a cell as module `name`. It runs when it is first imported, not now.

        Raises:
            MagicError: The name cannot be a module's, or it would hide an installed package.
            SyntaxError: The cell is not Python; the line is the cell's.
        """
        if not name.isidentifier() or keyword.iskeyword(name):
            raise MagicError(f"{name!r} cannot be a module name", hint="%%det_module train")
        if name not in self.cells and self._taken(name):
            raise MagicError(
                f"a module {name!r} already exists in this environment; the cell would hide it",
                hint=f"choose another name, for example %%det_module my_{name}",
            )
        module = CellModule(name, f"# %%det_module {name}: cell {cell}\n{body}", cell, cell_id)
        module.code()
        self.cells[name] = module
        sys.modules.pop(name, None)
        lines = module.source.splitlines(keepends=True)
        linecache.cache[module.shown_as] = (len(module.source), None, lines, module.shown_as)
        return module

    def _taken(self, name: str) -> bool:
        try:
            return name in sys.modules or importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            return False

    def install(self) -> None:
        """Make the cells importable."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def uninstall(self) -> None:
        """Undo `install`."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a captured cell, or None."""
        cell = self.cells.get(fullname)
        return None if cell is None else importlib.machinery.ModuleSpec(fullname, self, origin=cell.shown_as)

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
