"""Paths in commands that a hint tells to paste into a shell."""

from __future__ import annotations

import shlex


def word(path: object) -> str:
    """Return a path as one word of a shell."""
    return shlex.quote(str(path))
