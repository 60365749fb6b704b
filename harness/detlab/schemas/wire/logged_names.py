"""Names of metrics, parameters, tags and results of runs, as clients send them and the master keeps them."""

from __future__ import annotations

import posixpath
import re

KEY_CHARS = 250
TRAINING, VALIDATION, SYSTEM = "training", "validation", "system"
_VALIDATES = ("val_", "val/", "val.", "eval_", "eval/", "eval.", "validation_", "test_", "test/", "test.")
"""What the names of validation metrics begin with in Keras, Lightning and Transformers, and in nested mappings."""
_GROUPS = (TRAINING, VALIDATION, SYSTEM)
_KEY = re.compile(r"[\w\-. :/]+")
_OTHERS = re.compile(r"[^\w\-. :/]")


class BadKey(ValueError):
    """A name that no metric, parameter or tag can have; says why."""


def check_key(key: str, what: str) -> str:
    """Return a name, if it can be one.

    Raises:
        BadKey: It cannot.
    """
    shown = repr(key[:80])
    if not key or len(key) > KEY_CHARS:
        raise BadKey(f"the name {shown} of a {what} has {len(key)} characters; 1 to {KEY_CHARS} are possible")
    if not _KEY.fullmatch(key):
        raise BadKey(f"the name {shown} of a {what} may have letters, digits, `_`, `-`, `.`, `:`, `/` and spaces only")
    if key.startswith("/") or posixpath.normpath(key) != key or ".." in key.split("/"):
        raise BadKey(f"the name {shown} of a {what} is no plain path: no `/` at its ends, no `..`")
    return key


def near_key(key: str) -> str:
    """Return the name nearest to one that can be none: what it may not have becomes `_`; it has 250 characters at most.

    A script that logs must not end because of a name such as `acc@1`.
    """
    parts = [part for part in _OTHERS.sub("_", key).split("/") if part not in {"", "."}]
    return "/".join("__" if part == ".." else part for part in parts)[:KEY_CHARS].rstrip("/") or "_"


def place_of(key: str, searched: str) -> tuple[str, str]:
    """Return the group and the name under which a trial keeps a metric that was logged by a name.

    Args:
        key: The name.
        searched: The metric that the trial's search goes by, which is one of validation whatever it is called.
    """
    if key == searched:
        return VALIDATION, key
    group, slash, rest = key.partition("/")
    if slash and rest and group in _GROUPS:
        return group, rest
    return (VALIDATION if key.startswith(_VALIDATES) else TRAINING), key


def keys_of(name: str) -> tuple[str, ...]:
    """Return by which names a metric may have been logged that `place_of` keeps under one."""
    return name, *(f"{group}/{name}" for group in _GROUPS)
