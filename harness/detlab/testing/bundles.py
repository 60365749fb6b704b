"""Digests of bundles that a double was sent, as clients of now and of before compute them."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from detlab.launch.archives import UnsafeBundle, tree_digest


def packed_digest(data: bytes) -> str:
    """Return `sha256:<hex>` of a packed bundle."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def files_digest(data: bytes) -> str | None:
    """Return `tree:<hex>` of the files in a packed bundle, None if it is no bundle."""
    with tempfile.NamedTemporaryFile(suffix=".tar.gz") as file:
        file.write(data)
        file.flush()
        try:
            return tree_digest(Path(file.name))
        except UnsafeBundle:
            return None
