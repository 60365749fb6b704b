"""Notebooks as code: what a run leaves in the file is no part of it.

Jupyter saves outputs, execution counts and times into the file each time a cell runs. They would make other code of the
same cells, in digests, lineage and comparisons, and be shipped with it.
"""

from __future__ import annotations

import json
import re
from typing import Any

_OF_A_RUN = frozenset({"execution", "ExecuteTime", "papermill", "collapsed", "scrolled"})
"""Keys of a cell's metadata that a run or a look at it writes."""


def as_shipped(path: str, content: bytes) -> bytes:
    """Return a file as it travels: a notebook without what a run left in it, all others as they are.

    Args:
        path: The path in the bundle.
        content: The file's bytes.
    """
    if not path.endswith(".ipynb"):
        return content
    try:
        notebook = json.loads(content)
    except (ValueError, RecursionError):
        return content
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        return content
    cells = [_cell(cell, number) for number, cell in enumerate(notebook["cells"])]
    settled = {**notebook, "cells": cells, "metadata": _metadata(notebook.get("metadata"))}
    try:
        return (json.dumps(settled, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()
    except UnicodeEncodeError:  # half a character in a text
        return content


def _metadata(found: Any) -> dict[str, Any]:
    """Return what says which language the notebook is in: the rest is extensions' and of the kernel that ran it."""
    kept: dict[str, Any] = {}
    if isinstance(found, dict):
        kept = {"kernelspec": found["kernelspec"]} if "kernelspec" in found else {}
        language = found.get("language_info")
        if isinstance(language, dict) and "name" in language:
            kept["language_info"] = {"name": language["name"]}
    return kept


def _cell(cell: Any, number: int) -> Any:
    if not isinstance(cell, dict):
        return cell
    found = dict(cell)
    if "id" in found:  # JupyterLab draws new ones when it copies cells
        found["id"] = f"cell-{number}"
    if isinstance(found.get("metadata"), dict):
        found["metadata"] = {key: value for key, value in found["metadata"].items() if key not in _OF_A_RUN}
    source = found.get("source", "")
    text = source if isinstance(source, str) else "".join(map(str, source))
    found["source"] = re.findall(r"[^\n]*\n|[^\n]+", text)
    if found.get("cell_type") == "code":
        found |= {"outputs": [], "execution_count": None}
    return found
