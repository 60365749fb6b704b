"""The packages that tasks have found installed, each set of them once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from sqlalchemy.orm import Session

from detlab_hub.store.queries.statements import insert_or_ignore
from detlab_hub.store.tables import EnvironmentRow, clean_text

MOST_PACKAGES = 6_000
MOST_CHARS = 200


def note(s: Session, packages: Mapping[str, str]) -> str | None:
    """Store a set of packages, unless it is known; return its digest, None if there is nothing to store."""
    some = {clean_text(name): clean_text(version) for name, version in list(packages.items())[:MOST_PACKAGES]}
    kept = {name: version for name, version in some.items() if len(name) <= MOST_CHARS and len(version) <= MOST_CHARS}
    if not kept:
        return None
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    if s.get(EnvironmentRow, digest) is None:
        s.execute(insert_or_ignore(s, EnvironmentRow.__table__), {"digest": digest, "packages": kept})
    return digest
