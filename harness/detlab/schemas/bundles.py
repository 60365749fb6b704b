"""The digest of a code bundle: over its files, not over the bytes that they were packed to.

Client, browser, master and agent compute it, each with its own tar and gzip: one tree has one digest. Bundles
of before it are known by `sha256:` and the digest of their packed bytes, and stay so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

PACKED = "sha256"
"""Kind of a digest of the tar.gz itself."""
TREE = "tree"
"""Kind of a digest of the files."""
BUNDLE_DIGEST = re.compile(rf"(?P<kind>{PACKED}|{TREE}):(?P<hex>[0-9a-f]{{64}})")
FORM = "tree:<64 hex digits> or sha256:<64 hex digits>"
_HEAD = b"detlab bundle 1\n"
"""Keeps the text below apart from a bundle of the same bytes."""


class BundleEntry(NamedTuple):
    """One file of a bundle.

    Attributes:
        path: POSIX path below the task's working directory.
        executable: Whether it may be run; no other bit of its mode travels.
        sha256: Digest of its content, 64 hex digits.
    """

    path: str
    executable: bool
    sha256: str


def digest_of(entries: Iterable[BundleEntry]) -> str:
    r"""Return `tree:<hex>`: SHA-256 of `detlab bundle 1\n`, then `MODE SHA256 PATH\0` of each file, sorted by path.

    MODE is `755` or `644`, paths are UTF-8 and sorted by code points.
    """
    found = hashlib.sha256(_HEAD)
    for entry in sorted(entries):
        mode = "755" if entry.executable else "644"
        found.update(f"{mode} {entry.sha256} {entry.path}\0".encode(errors="surrogateescape"))
    return f"{TREE}:{found.hexdigest()}"


def file_name(digest: str) -> str | None:
    """Return the name under which a bundle is stored, None if this is not a digest of a bundle.

    The kinds have different names: otherwise a user who can choose bytes by their own digest could replace a tree.
    """
    found = BUNDLE_DIGEST.fullmatch(digest)
    if found is None:
        return None
    return f"{found['hex']}.tar.gz" if found["kind"] == PACKED else f"{TREE}-{found['hex']}.tar.gz"


_SECRETS = re.compile(
    r"\.env(?!\.(example|sample|template|dist)$)(\.[\w.-]+)?|\.netrc|\.pypirc|\.pgpass|\.htpasswd|id_(rsa|dsa|ecdsa|ed25519)"
    r"|credentials(\.json)?|client_secret[\w.-]*\.json|[\w.-]*service[_-]account[\w.-]*\.json",
    re.IGNORECASE,
)


def holds_secrets(path: str) -> bool:
    """Whether the name of a file says that it holds passwords or keys."""
    return _SECRETS.fullmatch(path.rpartition("/")[2]) is not None
