"""Names of foreign systems in the form that they may have here."""

from __future__ import annotations

import re
from collections.abc import Callable

from detlab.schemas.script_names import name_problem, normal
from detlab.schemas.text_limits import LABEL_CHARS
from detlab.schemas.wire.logged_names import BadKey, check_key, near_key
from detlab.schemas.wire.registry import model_name, version_label
from detlab.schemas.wire.workspaces import folder_name

VALUE_CHARS = 8000
PART_BYTES, MOST_PARTS = 200, 30
"""Of a name in the path of a file, and names in it."""
_STANDS = re.compile(r"[^./]")


def key_of(text: str) -> str | None:
    """Return the name that a metric, a parameter or a tag has here: its own if it can be one; None: it has none."""
    try:
        return check_key(text, "metric")
    except BadKey:
        return near_key(text) if _STANDS.search(text) else None


def project_name(name: str, number: str) -> str:
    """Return the name of the project for a foreign experiment: its own, or the nearest that a project may have.

    Args:
        name: Of the experiment.
        number: Its id, which the name is made of if nothing of its own is left.
    """
    return _nearest(name, folder_name, f"experiment-{number}")


def registered_name(name: str) -> str:
    """Return the name of a registered model, or the nearest that it may have."""
    return _nearest(name, model_name, "model")


def label_of(alias: str) -> str | None:
    """Return the label for an alias; None: it can be none."""
    try:
        return version_label(alias)
    except ValueError:
        return None


def _nearest(name: str, checked: Callable[[str], str], otherwise: str) -> str:
    try:
        return checked(name)
    except ValueError:
        kept = "".join(char if _stands(char) else "-" for char in normal(" ".join(name.split())))
    kept = re.sub(r"-{2,}", "-", kept).strip(" ._-")[:LABEL_CHARS].strip(" ._-")
    for wanted in (kept, f"{otherwise}-{kept}", otherwise):
        try:
            return checked(wanted)
        except ValueError:
            continue
    return "imported"


def _stands(char: str) -> bool:
    return name_problem(f"a{char}a", " ._-", 3) is None


def file_problem(path: str) -> str | None:
    """Return why a path can be that of no file here; None: it can."""
    parts = path.split("/")
    if not path.isprintable() or "\\" in path:
        return "cannot be printed, or has a backslash"
    if any(part in {"", ".", ".."} for part in parts):
        return "is no plain relative path"
    if len(parts) > MOST_PARTS or any(len(part.encode()) > PART_BYTES for part in parts):
        return f"has more than {MOST_PARTS} names, or one of over {PART_BYTES} bytes"
    return None
