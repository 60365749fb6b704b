"""The tutorial and an example in a newcomer's file browser: copied once, into a folder that is empty otherwise.

They are the documentation's own files, which the wheel carries; the tutorial becomes a notebook whose cells are its
Python blocks. A note of the folders that got them keeps them from coming back where somebody has removed them.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from detlab.files import write_atomic

ASKED = "DET_WELCOME"
"""Variable by which the Hub of `det up` asks for it."""
FOLDER = "detlab-tutorial"
NOTES = "welcomed"
"""Name of the file, in the user's state folder, with the folders that got it."""
NOTEBOOK = "your-first-search.ipynb"
_TUTORIAL = "your-first-search.md"
_EXAMPLES = ("digits_search.ipynb", "digits_trial")
_BEGIN = (
    "> This notebook is the tutorial of detlab. Your cluster runs already: begin with step 2, and run the cells one by "
    "one (Shift+Enter). Paths such as `docs/how-to/plot-a-search.md` are in detlab's repository."
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)
_SAVED = re.compile(r"\bas `([\w.-]+)`:\s*$")
"""What prose says before a file that the reader is to write."""
_LINK = re.compile(r"!?\[([^\]]*)\]\((?!https?:)(?:\.\./)*([^)]*)\)")
"""A link to another page: its text, and its path from the folder of the documentation."""


def sources(package: Path | None = None) -> tuple[Path, list[Path]] | None:
    """Return the tutorial's page and the examples: of the package, else of the checkout; None if there are none."""
    here = package or Path(__file__).resolve().parents[1]
    inside, checkout = here / "launch" / "newcomers", here.parents[1]
    for pages, examples in ((inside, inside), (checkout / "docs" / "tutorial", checkout / "examples")):
        found = [examples / name for name in _EXAMPLES]
        if (pages / _TUTORIAL).is_file() and all(path.exists() for path in found):
            return pages / _TUTORIAL, found
    return None


def is_newcomers(root: Path, notes: Path) -> bool:
    """Whether this file browser has nothing to show, and never had what is given here.

    Args:
        root: The folder that it opens.
        notes: The file of folders that got it.
    """
    try:
        visible = [path for path in root.iterdir() if not path.name.startswith(".")]
        told = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
    except OSError:
        return False
    return not [path for path in visible if not (path / "pyvenv.cfg").exists()] and str(root) not in told


def welcome(root: Path, notes: Path) -> Path | None:
    """Put tutorial and example into a newcomer's folder; return where, or None if it is nobody new's.

    Raises:
        OSError: The folder or the note cannot be written.
    """
    found = sources()
    if found is None or not is_newcomers(root, notes):
        return None
    tutorial, examples = found
    target = root / FOLDER
    with tempfile.TemporaryDirectory(prefix=".detlab-", dir=root) as name:
        made = Path(name) / FOLDER
        made.mkdir()
        notebook = notebook_of(tutorial.read_text(encoding="utf-8"))
        (made / NOTEBOOK).write_text(json.dumps(notebook, indent=1) + "\n", encoding="utf-8")
        for path in examples:
            if path.is_dir():
                shutil.copytree(path, made / path.name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
            else:
                shutil.copyfile(path, made / path.name)
        told = notes.read_text(encoding="utf-8") if notes.exists() else ""
        notes.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(notes, f"{told}{root}\n".encode())
        made.rename(target)  # refused if another server of the same user was faster
    return target


def notebook_of(text: str) -> Mapping[str, object]:
    """Return a page of the documentation as a notebook: Python blocks are cells, links between pages become text."""
    cells = [{"id": f"cell-{number}", **cell} for number, cell in enumerate(_cells(text))]
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}


def _pointed(link: re.Match[str]) -> str:
    """Return a link between pages as text: the pages are not where the notebook is."""
    path = link[2].partition("#")[0]
    where = path if path.startswith("examples/") else f"docs/{path}"
    return f"{link[1]} (`{where}`)" if path else link[1]


def _cells(text: str) -> Iterator[dict[str, object]]:
    prose, at = f"{_BEGIN}\n\n", 0
    for block in _FENCE.finditer(text):
        prose += text[at : block.start()]
        at = block.end()
        saved = _SAVED.search(prose)
        if block[1] != "python" and saved is None:
            prose += block[0]
            continue
        yield from _markdown(prose)
        prose = ""
        code = block[2].rstrip("\n") if saved is None else f"%%writefile {saved[1]}\n{block[2]}".rstrip("\n")
        yield {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": code}
    yield from _markdown(prose + text[at:])


def _markdown(prose: str) -> Iterator[dict[str, object]]:
    if shown := _LINK.sub(_pointed, prose.replace("papermill examples/", "papermill ")).strip():
        yield {"cell_type": "markdown", "metadata": {}, "source": shown}
