"""Values of MLflow's messages and files, taken from what anybody may have written there."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

STATUSES = ("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
MOST_WHOLE = 2**63
PROMPT_TAG = "mlflow.prompt.is_prompt"
_MODEL_IN = re.compile(r"/models/(m-[0-9a-f]{32})(?:/artifacts)?/?$")


def text(one: Any, key: str) -> str:
    """Return a text of a message, empty if there is none."""
    value = one.get(key) if isinstance(one, Mapping) else None
    return "" if value is None or isinstance(value, dict | list) else str(value)


def whole(value: Any) -> int:
    """Return a whole number of 64 bits, 0 for what is none."""
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError):
        return 0
    return found if -MOST_WHOLE <= found < MOST_WHOLE else 0


def number(value: Any) -> float:
    """Return a number; texts such as `NaN` and `Infinity` are some, and what is none is NaN."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def entries(one: Any, key: str) -> dict[str, str]:
    """Return a list of keys and values as a mapping."""
    items = one.get(key) if isinstance(one, Mapping) else None
    if not isinstance(items, list):
        return {}
    return {text(item, "key"): text(item, "value") for item in items if text(item, "key")}


def is_prompt(tags: Mapping[str, str]) -> bool:
    """Whether a registered model is a prompt."""
    return tags.get(PROMPT_TAG, "").lower() == "true"


def version_source(source: str, run: str, model: str) -> tuple[str, str, str]:
    """Return (logged model, run, folder of the run) that a registered version is of; empty where it says none."""
    if model:
        return model, run, ""
    if source.startswith("models:/m-"):
        return source.removeprefix("models:/").strip("/"), run, ""
    if source.startswith("runs:/"):
        said, _, folder = source.removeprefix("runs:/").strip("/").partition("/")
        return "", said, folder
    if found := _MODEL_IN.search(source):
        return found[1], run, ""
    if run:
        _, mark, folder = source.partition(f"/{run}/artifacts/")
        if mark:
            return "", run, folder.strip("/")
    return "", run, ""
