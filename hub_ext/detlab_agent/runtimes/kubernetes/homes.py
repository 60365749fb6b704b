"""Homes of users: volumes that their notebooks and shells find again, on whatever node the next one runs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from detlab_agent.runtimes.kubernetes.options import Home

Object = dict[str, Any]
VOLUME = "det-home"
_USER = "{user}"
_DIGESTED = re.compile("-[0-9a-f]{10}$")
"""Ends a name with a digest: who is called so on purpose gets another one."""


def user_name(owner: str) -> str:
    """Return a user's name as part of the name of an object or a folder; no two users have the same."""
    plain = re.sub(r"[^a-z0-9]+", "-", owner.lower()).strip("-")
    if plain == owner and 0 < len(plain) <= 40 and not _DIGESTED.search(owner):
        return plain
    return f"{plain[:40].strip('-') or 'user'}-{hashlib.sha256(owner.encode()).hexdigest()[:10]}"


def claim_name(home: Home, owner: str) -> str:
    """Return the name of the claim of a user's home."""
    return home.claim.replace(_USER, user_name(owner))


def is_home(name: str, home: Home | None) -> bool:
    """Whether a claim may be the home of a user, which nobody mounts by name: a notebook of its owner has it."""
    patterns = [Home().claim, *([] if home is None else [home.claim])]
    return any(re.fullmatch(".+".join(map(re.escape, one.split(_USER))), name) for one in patterns)


def mounted(home: Home, owner: str) -> tuple[Object, Object]:
    """Return the volume of a user's home and its mount."""
    volume = {"name": VOLUME, "persistentVolumeClaim": {"claimName": claim_name(home, owner)}}
    mount: Object = {"name": VOLUME, "mountPath": home.path}
    if home.sub_path:
        mount["subPath"] = home.sub_path.replace(_USER, user_name(owner))
    return volume, mount


def claim(home: Home, owner: str, labels: Mapping[str, str]) -> Object | None:
    """Return the claim of a user's home, to be made if it is not there; None: others make it."""
    if not home.size:
        return None
    spec: Object = {"accessModes": home.access_modes, "resources": {"requests": {"storage": home.size}}}
    if home.storage_class is not None:
        spec["storageClassName"] = home.storage_class
    meta = {"name": claim_name(home, owner), "labels": dict(labels)}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}
