"""What lies in a checkpoint store."""

from __future__ import annotations

from pathlib import Path


def names_in(root: Path) -> list[str]:
    """Return the names of what is in a store, finished or not, sorted; none if it was never made.

    What is unfinished lies in a folder of its user's own. That folder itself stays, and is left out: if it went when it
    is empty, others could take its name.
    """
    if not root.exists():
        return []
    kept = set(root.glob(".unfinished-*"))
    return sorted(path.name for folder in (root, *kept) for path in folder.iterdir() if path not in kept)
