"""The magics in kernels that start by themselves: of notebook servers, and of notebook runs."""

from __future__ import annotations

import importlib.util
from collections.abc import MutableMapping
from pathlib import Path


def magics_startup() -> Path | None:
    """Return the file that preloads the magics in a kernel, without importing it; None if they are not installed."""
    spec = importlib.util.find_spec("detlab_magics")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "startup.py"
        if path.exists():
            return path
    return None


def preload_magics(env: MutableMapping[str, str]) -> None:
    """Have kernels start with the magics, if they are installed, and then with the user's own PYTHONSTARTUP."""
    startup = magics_startup()
    if startup is None:
        return
    own = env.get("PYTHONSTARTUP")
    if own and own != str(startup):
        env["DETLAB_CHAIN_PYTHONSTARTUP"] = own
    env["PYTHONSTARTUP"] = str(startup)
