"""Names in pods that mean something to detlab, and those that are never a user's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAIN_CONTAINER = "determined-container"
HELD_LABEL = "detlab.io/held"
"""Of a pod that somebody else makes, and whose devices are those of an allocation of detlab's (`DetKubeSpawner`)."""
OUR_VOLUMES = "det-"
"""Begins the names of volumes and objects that agents make."""
USERS_LABELS = "user.detlab.io"
"""The domain of labels and annotations that every user may set."""
_RESERVED = ("detlab.io", "kubernetes.io", "k8s.io", "x-k8s.io", "helm.sh", "jupyter.org")
"""Domains, with all below them, by which Services, policies and controllers find pods."""
_PLAIN = frozenset({"app", "chart", "component", "heritage", "release"})
"""Keys without a domain by which charts select their own pods."""


def reserved(key: str) -> bool:
    """Whether a label or annotation is never a user's, whatever an operator allows."""
    domain, slash, _ = key.rpartition("/")
    if not slash:
        return key in _PLAIN
    if domain == USERS_LABELS:
        return False
    return any(domain == one or domain.endswith(f".{one}") for one in _RESERVED)


def block(raw: Any, key: str) -> Mapping[str, Any]:
    """Return a mapping in a mapping; empty if it is none."""
    value = raw.get(key) if isinstance(raw, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def items(raw: Any, *keys: str) -> list[Any]:
    """Return the list under the first of the keys that has one."""
    for key in keys:
        value = raw.get(key) if isinstance(raw, Mapping) else None
        if isinstance(value, list):
            return value
    return []
