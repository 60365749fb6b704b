"""A strict schema of pods: that of Kubernetes' own generated client, in which an unknown field is a fault.

API servers drop most unknown fields in silence; here they are told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kubernetes_asyncio.client import models

_SCALARS: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "bool": bool,
    "datetime": str,
    "object": object,
}


def fields_of(name: str) -> dict[str, str]:
    """Return the fields of a type of the API, as they are spelt in JSON, with their types."""
    model = getattr(models, name)
    return {model.attribute_map[key]: kind for key, kind in model.openapi_types.items()}


def element(kind: str) -> tuple[str, str]:
    """Return what a type is (list, dict, or "" for itself) and of what."""
    if found := re.fullmatch(r"list\[(.+)\]", kind):
        return "list", found[1]
    if found := re.fullmatch(r"dict\(str, (.+)\)", kind):
        return "dict", found[1]
    return "", kind


def faults(value: Any, kind: str = "V1Pod", path: str = "pod") -> Iterator[str]:
    """Yield what a value has that the API does not know, and what has another type than there."""
    shape, of = element(kind)
    if shape == "list":
        if not isinstance(value, list):
            yield f"{path}: {value!r} is no list"
        else:
            for number, one in enumerate(value):
                yield from faults(one, of, f"{path}[{number}]")
    elif shape == "dict":
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            yield f"{path}: {value!r} is no mapping"
        else:
            for key, one in value.items():
                yield from faults(one, of, f"{path}[{key!r}]")
    elif of in _SCALARS:
        if not isinstance(value, _SCALARS[of]) or (of == "int" and isinstance(value, bool)):
            yield f"{path}: {value!r} is no {of}"
    elif not isinstance(value, dict):
        yield f"{path}: {value!r} is no {of}"
    else:
        known = fields_of(of)
        for key, one in value.items():
            if key in known:
                yield from faults(one, known[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}: {of} has no such field"


def paths(value: Any, kind: str = "V1Pod", path: str = "") -> Iterator[str]:
    """Yield the path of every field that a pod has, without numbers of lists and keys of mappings."""
    shape, of = element(kind)
    if shape == "list":
        for one in value:
            yield from paths(one, of, path)
    elif shape == "" and of not in _SCALARS:
        known = fields_of(of)
        for key, one in value.items():
            here = f"{path}.{key}".lstrip(".")
            yield here
            if key in known:
                yield from paths(one, known[key], here)
