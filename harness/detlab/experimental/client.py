"""`detlab.client`, where Determined's scripts look for it."""

from __future__ import annotations

from typing import Any

from detlab import client as _client

_RENAMED = {
    "CheckpointOrderBy": "OrderBy",
    "ExperimentOrderBy": "OrderBy",
    "ExperimentReference": "Experiment",
    "TrainingMetrics": "TrialMetrics",
    "TrialOrderBy": "OrderBy",
    "TrialReference": "Trial",
    "ValidationMetrics": "TrialMetrics",
}
"""Names that Determined deprecated, and what they are called now."""


def __getattr__(name: str) -> Any:
    return getattr(_client, _RENAMED.get(name, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *_RENAMED, *dir(_client)})
