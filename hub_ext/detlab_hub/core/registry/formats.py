"""What the files of a checkpoint are, by their names; nobody opens them."""

from __future__ import annotations

from collections.abc import Iterable

SAFETENSORS, PICKLE, OTHER = "safetensors", "pickle", "other"
_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin", ".joblib", ".dill", ".distcp")
"""Endings of files that Python's pickle writes, or may have written."""


def format_of(paths: Iterable[str]) -> str:
    """Return `safetensors`, `pickle` (loading it runs code) or `other`; weights count, not the trainer's state."""
    names = [path.lower() for path in paths]
    if any(name.endswith(".safetensors") for name in names):
        return SAFETENSORS
    return PICKLE if any(name.endswith(_PICKLES) for name in names) else OTHER
