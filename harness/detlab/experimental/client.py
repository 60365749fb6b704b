"""`detlab.client`, where Determined's scripts look for it."""

from __future__ import annotations

from typing import Any

from detlab import client as _client


def __getattr__(name: str) -> Any:
    return getattr(_client, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_client)})
