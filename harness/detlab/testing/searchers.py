"""The contract of search methods, beside the others: it is the master's, and comes from `detlab_hub.testing.searchers`.

Importing this module needs no master; asking it for a name does (`pip install "detlab[hub]"`), as a search method does.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Driven", "SearchMethodContract", "drive"]  # noqa: F822 - see __getattr__


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("detlab_hub.testing.searchers"), name)
