"""The version of this client, which it sends to the master."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def client_version() -> str:
    """Return the installed version of detlab, or `0+unknown` when it runs from a bare source tree."""
    try:
        return version("detlab")
    except PackageNotFoundError:
        return "0+unknown"


USER_AGENT = f"detlab/{client_version()}"
