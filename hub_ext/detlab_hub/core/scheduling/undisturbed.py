"""No search for garbage while a pass is made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """For passes: tens of thousands of small objects, and no cycles worth the search through all that lives.

    Two of them may be under way in two threads: whoever stopped the collector starts it again.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
