"""Text made fit for a cell: unseen characters become visible, long text is cut, files and commands are the cell's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from detlab.visible import visible

if TYPE_CHECKING:
    from detlab.schemas.wire import GivenView, ProblemView


def plain(text: str, limit: int = 120) -> str:
    """Return one line of `text`: line ends become spaces, unseen characters visible, long text is cut."""
    shown = visible(text.replace("\n", " "), keep="")
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def plain_lines(text: str, limit: int = 600) -> str:
    """Return `text` with each of its lines made plain."""
    return "\n".join(plain(line, limit) for line in text.split("\n"))


def name_cells(text: str, cells: Mapping[str, Any]) -> str:
    """Return a traceback line with the file of a captured cell named by its cell: `File "cell 14 (train.py)"`."""
    for filename, cell in cells.items():
        start = text.find(f'/{filename}", line ')
        begin = text.rfind('"', 0, start) if start >= 0 else -1
        if begin >= 0:
            end = text.index('"', start)
            text = f"{text[: begin + 1]}cell {cell['cell']} ({filename}){text[end:]}"
    return text


_MAGIC_FOR = (
    (re.compile(r"\bdet (?:experiment|e) list\b"), "%det_list"),
    (re.compile(r"\bdet (?:experiment|e) (pause|activate|kill) (\d+)"), r"%det_\1 \2"),
    (re.compile(r"\bdet search (?=[a-z])"), "%det_search "),
    (re.compile(r"\bdet (?:model|m) (?=[a-z])"), "%det_model "),
    (re.compile(r"\bdet governance (?!plan)(?=[a-z])"), "%det_governance "),
    (re.compile(r"\bdet (?:trial|t) logs (\d+)"), r"%det_logs \1"),
)


def in_notebook(hint: str) -> str:
    """Return a hint with the commands that have a magic named by it."""
    for command, magic in _MAGIC_FOR:
        hint = command.sub(magic, hint)
    return hint


def print_warnings(warnings: Iterable[ProblemView]) -> None:
    """Print what a submission is warned of, a line each."""
    for warning in warnings:
        path = f"{warning.path}: " if warning.path else ""
        hint = f" ({warning.hint})" if warning.hint else ""
        print(plain(f"warning: {path}{warning.message}{hint}", 400))


def print_given(given: Iterable[GivenView]) -> None:
    """Print which values a submission has got from templates, workspace, pool, cluster and policies, a line each."""
    for one in given:
        value = one.value if isinstance(one.value, str) else json.dumps(one.value)
        print(f"{plain(one.path)}: {plain(value)} (from {plain(one.source)})")
