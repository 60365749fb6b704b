"""The metadata of a checkpoint as JSON can hold it, checked before anything is uploaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from detlab.errors import CheckpointError

_DEEPEST = 100


def plain_metadata(metadata: Mapping[Any, Any]) -> dict[str, Any]:
    """Return metadata of JSON's own types.

    Numbers and arrays of NumPy and torch become Python's, tuples lists, paths texts, and keys that are numbers texts.

    Raises:
        CheckpointError: A value or a key can be nothing of JSON; the place of the first one is named.
    """
    return _mapping(metadata, "metadata", 0)


def _mapping(value: Mapping[Any, Any], where: str, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        name = _key(key, where)
        if name in found:
            raise CheckpointError(f"{where} has two keys that are {name!r} as a text")
        found[name] = _value(item, f"{where}[{name!r}]", depth + 1)
    return found


def _key(key: Any, where: str) -> str:
    plain = _scalar(key)
    if isinstance(plain, str):
        return _text(plain, f"a key of {where}")
    if plain is None or isinstance(plain, bool) or not isinstance(plain, int | float):
        raise CheckpointError(
            f"{where} has a key of type {type(key).__name__}: {str(key)[:80]}", hint="Keys must be texts: str(key)."
        )
    return str(plain)


def _value(value: Any, where: str, depth: int) -> Any:
    if depth > _DEEPEST:
        raise CheckpointError(f"{where[:200]}… is nested too deep, or contains itself")
    plain = _scalar(value)
    if isinstance(plain, str):
        return _text(plain, where)
    if plain is None or isinstance(plain, bool | int | float):
        return plain
    if isinstance(plain, Mapping):
        return _mapping(plain, where, depth)
    if isinstance(plain, list | tuple):
        return [_value(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(plain)]
    raise CheckpointError(
        f"{where} is of type {type(value).__name__}, which JSON cannot hold",
        hint="Metadata are numbers, texts, lists and dicts; other values belong into files of the checkpoint.",
    )


def _scalar(value: Any) -> Any:
    """Return what NumPy, torch and paths have as a value of Python; everything else as it is."""
    if hasattr(value, "tolist") and not isinstance(value, type):
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _text(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CheckpointError(
            f"{where} is no valid text: {text[:80]!r} has half of a character (a lone surrogate)",
            hint="Names of files that are not UTF-8 have such: text.encode(errors='backslashreplace').decode().",
        ) from error
    return text
