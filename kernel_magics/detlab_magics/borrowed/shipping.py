"""A cell on borrowed slots: what it ships, before anything is asked of the cluster."""

from __future__ import annotations

import keyword
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from detlab.client.bundling.bundle import Bundle
from detlab.remote_functions.packing import pack_cell
from detlab.run.cell import compiled
from detlab.run.values import EncodedVariable, ValueProblem, encode
from detlab.schemas.taskwire import DEFAULT_ENTRYPOINTS, TaskKind
from detlab_magics.cells.expand import near_variable
from detlab_magics.cells.modules import CellModules, refuse_magics
from detlab_magics.cells.prepare import captured_files
from detlab_magics.errors import MagicError

ENTRYPOINT = DEFAULT_ENTRYPOINTS[TaskKind.CELL]
"""Sent although it is the default: for earlier masters it is not."""


@dataclass(frozen=True)
class Shipment:
    """A cell, ready to be sent.

    Attributes:
        bundle: The cell, the variables that go in, the modules that it imports.
        ins: The variables that go in.
        pickled: Which of them had to be pickled, and their types.
        modules: Captured cells that go with it, for tracebacks.
    """

    bundle: Bundle
    ins: dict[str, EncodedVariable] = field(repr=False)
    modules: tuple[str, ...] = ()

    @property
    def pickled(self) -> dict[str, str]:
        """Variables that had to be pickled: name -> type."""
        return {name: value.pickled for name, value in self.ins.items() if value.pickled is not None}


def names_of(words: Sequence[str] | None, option: str) -> list[str]:
    """Return the names in `a,b c`, in order and once each.

    Raises:
        MagicError: A name is not a valid variable name.
    """
    found = [name for word in words or [] for name in word.split(",") if name]
    for name in found:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise MagicError(f"{option} {name}: not a valid variable name", hint=f"{option} a,b")
    return list(dict.fromkeys(found))


def check_text(text: str, name: str) -> None:
    """Refuse a cell that could never run, before any slot is asked for.

    Raises:
        MagicError: The cell is empty, or has lines that only IPython understands.
        SyntaxError: It is not Python; the line is the cell's own.
    """
    lines = text.split("\n")
    if not any(line.strip() and not line.lstrip().startswith("#") for line in lines[1:]):
        raise MagicError("the cell is empty", hint="%%det_run? shows an example")
    try:
        compiled(text, name)
    except SyntaxError:
        refuse_magics(text, name, "a borrowed cell, which is plain Python")
        raise


def ship(
    text: str,
    name: str,
    namespace: Mapping[str, Any],
    modules: CellModules,
    *,
    ins: Sequence[str] = (),
    outs: Sequence[str] = (),
    context: pathlib.Path | None = None,
) -> Shipment:
    """Pack a cell by the rules of `%%det_experiment`: captured cells and local modules that it imports, or a folder.

    Args:
        text: The cell, the magic's own line replaced by a comment, so that line n is the notebook's line n.
        name: What tracebacks call it.
        namespace: The notebook's variables.
        modules: The captured cells.
        ins: Names of variables to pass into the cell.
        outs: Names of variables to return from it.
        context: Folder to ship; None: what the cell imports.

    Raises:
        MagicError: A variable does not exist or cannot travel.
        BundleError: The code and the variables are too large or cannot be read.
    """
    values = {variable: _encoded(variable, namespace) for variable in ins}
    needed = sorted({module for value in values.values() for module in value.modules})
    cells = captured_files([], modules, [text, "\n".join(f"import {module}" for module in needed)])
    bundle = pack_cell(
        text,
        name,
        values,
        outs,
        files=cells,
        hidden=list(modules.cells),
        context=context,
        too_large="--in is for small values; the largest here: {largest}. Put data on storage that tasks read",
    )
    return Shipment(bundle, values, tuple(file.removesuffix(".py") for file in cells))


def _encoded(variable: str, namespace: Mapping[str, Any]) -> EncodedVariable:
    if variable not in namespace:
        close = near_variable(variable, namespace)
        maybe = f", did you mean {close}?" if close else ""
        raise MagicError(f"--in {variable}: no variable {variable!r} in this notebook{maybe}")
    try:
        return encode(namespace[variable], variable)
    except ValueProblem as problem:
        raise MagicError(f"--in {problem}") from None
