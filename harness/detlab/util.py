"""The one function of Determined's `determined.util` that scripts use; nothing else belongs here."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any


def merge_dicts(base_dict: Mapping[Any, Any], source_dict: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a new dict: `base_dict` with the values of `source_dict`; dicts in both are merged in turn.

    Args:
        base_dict: Stays as it is.
        source_dict: Its values win; stays as it is.
    """
    merged = dict(copy.deepcopy(base_dict))
    for key, value in source_dict.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = merge_dicts(before, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged
