"""The source files of a trial for the `code/` folder of its checkpoints."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

logger = logging.getLogger("detlab.pytorch")

SUFFIXES = (".py", ".yaml", ".json", ".toml", ".txt", ".cfg")
MOST_BYTES_EACH = 1024 * 1024
MOST_BYTES = 10 * 1024 * 1024
_MOST_ENTRIES = 20_000  # a home directory must not be read to its end
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}
_MARKS = {"pyvenv.cfg", "load_data.json"}
"""Files that mark folders without source code: virtual environments, and checkpoints, whose `code/` would otherwise be
copied into each later one and double every time."""


def collect(root: Path) -> dict[str, bytes]:
    """Return the source files below a directory, by relative POSIX path; Python files first when not all fit.

    Hidden files and folders, caches, virtual environments, checkpoints and links to folders are left out, as is what
    is over 1 MiB or cannot be read.
    """
    found: dict[str, bytes] = {}
    room, left_out = MOST_BYTES, 0
    candidates = sorted(_candidates(root), key=lambda path: (path.suffix != ".py", len(path.parts), path))
    for path in candidates:
        try:
            if not path.is_file() or path.stat().st_size > MOST_BYTES_EACH:
                continue
            content = path.read_bytes()
        except OSError:
            continue
        if len(content) > room:
            left_out += 1
            continue
        room -= len(content)
        found[path.relative_to(root).as_posix()] = content
    if left_out:
        logger.warning(
            "checkpoints take %d MiB of source files; %d files of %s are left out", MOST_BYTES // 2**20, left_out, root
        )
    return dict(sorted(found.items()))


def write(files: dict[str, bytes], target: Path) -> None:
    """Put collected files below a directory, made if it is missing."""
    target.mkdir(exist_ok=True)
    for name, content in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)


def _candidates(root: Path) -> Iterator[Path]:
    seen = 0
    for folder, folders, names in os.walk(root):
        if folder != str(root) and not _MARKS.isdisjoint(names):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if _wanted_folder(name))
        for name in sorted(names):
            seen += 1
            if name.endswith(SUFFIXES) and not name.startswith(".") and _is_text_name(name):
                yield Path(folder) / name
        if seen > _MOST_ENTRIES:
            logger.warning("%s holds more than %d files: the code in checkpoints is not complete", root, _MOST_ENTRIES)
            return


def _wanted_folder(name: str) -> bool:
    return not name.startswith(".") and name not in _SKIPPED and _is_text_name(name)


def _is_text_name(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
