"""The SDK under the names that Determined's scripts import: `from detlab.experimental import client`.

Everything here is `detlab.client`'s. Nothing is defined here, and new names belong there.
"""

from __future__ import annotations

from typing import Any

from detlab.experimental import client as client


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(client, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(client)})
