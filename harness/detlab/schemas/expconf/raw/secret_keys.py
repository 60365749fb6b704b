"""Where a config holds secrets: views mask what is there, and messages on it say its type, never its value."""

from __future__ import annotations

import re

from detlab.schemas.expconf.raw.paths import Path

MASK = "********"
"""What views show instead of a secret."""
SECRET_BLOCKS = ("checkpoint_storage", "environment", "integrations")
"""Blocks whose secret keys are masked; elsewhere, as in `hyperparameters`, they are names like any other."""
SECRET_KEYS = frozenset(
    {
        "access_key",
        "secret_key",
        "session_token",
        "connection_string",
        "credential",
        "password",
        "identitytoken",
        "registrytoken",
        "token",
        "auth",
    }
)


_OPTIONS = ("checkpoint_storage", "options")
_SECRET_OPTION = re.compile(r"pass|secret|token|key|cred|auth|sas|cert|cookie|header|connection", re.IGNORECASE)


def is_secret_option(name: object) -> bool:
    """Whether an option of an `fsspec` storage has a name as secrets have: each file system names its own."""
    return isinstance(name, str) and _SECRET_OPTION.search(name) is not None


def holds_secret(path: Path) -> bool:
    """Whether what is at this path is a secret, or was meant to be a mapping with one."""
    if path[:2] == ("data", "secrets"):
        return True
    if path == () or path[0] not in SECRET_BLOCKS:
        return False
    if path[:2] == _OPTIONS and any(is_secret_option(name) for name in path[2:]):
        return True
    return path[-1] == "registry_auth" or not SECRET_KEYS.isdisjoint(path)
