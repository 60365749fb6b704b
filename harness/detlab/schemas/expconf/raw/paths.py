"""How a place in a config is written: `searcher.max_trials`, `bind_mounts[0].host_path`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from detlab.schemas.expconf.blocks.hyperparameters import TAG

Part = str | int
Path = tuple[Part, ...]

MAX_KEY = 80
"""Longest part of a path that is shown, in characters."""

_PLAIN = re.compile(r"[^\s.\[\]'\":]+")


def render(parts: Iterable[Part]) -> str:
    """Return the path as text; union tags are left out, and odd keys are quoted."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.startswith(TAG):
            continue
        else:
            shown = part if len(part) <= MAX_KEY else part[: MAX_KEY - 3] + "..."
            if _PLAIN.fullmatch(shown):
                text += f".{shown}" if text else shown
            else:
                text += f"[{shown!r}]"
    return text
