"""The files that pages load: read once, packed once, addressed by what is in them.

A page names an asset by `url`, which ends with the first digits of its digest: a browser may keep that address for
ever, and a new version has another one. Names are looked up in a table, never made into paths.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.resources
import json
from dataclasses import dataclass
from functools import cache

from detlab.schemas.publish import json_schema

_STATIC = importlib.resources.files("detlab_hub.web") / "static"

MEDIA = {
    "hub.js": "text/javascript; charset=UTF-8",
    "hub.css": "text/css; charset=UTF-8",
    "plotly.js": "text/javascript; charset=UTF-8",
    "style.css": "text/css; charset=UTF-8",
    "icon.svg": "image/svg+xml",
    "experiment.schema.json": "application/schema+json",
}
"""Every asset there is. Without node those that are built from `labextension/` are missing: `hub.*` and `plotly.js`."""

_SCHEMA = "experiment.schema.json"
"""The JSON Schema of an experiment's config, for the form; made from the models."""

_WORTH_PACKING = 1024


@dataclass(frozen=True)
class Asset:
    """One file, in the form in which it is sent."""

    name: str
    media: str
    body: bytes
    packed: bytes | None
    """By gzip, if that is shorter."""
    digest: str
    """First 16 hex digits of the SHA-256 of `body`."""

    @property
    def etag(self) -> str:
        """Its entity tag, quoted; weak, since the packed form is the same thing."""
        return f'W/"{self.digest}"'

    def url(self, base: str) -> str:
        """Return its address below the service's prefix, which ends with a slash."""
        return f"{base}static/{self.name}?v={self.digest}"


@cache
def asset(name: str) -> Asset | None:
    """Return an asset, or None if there is no such file here."""
    media = MEDIA.get(name)
    if media is None:
        return None
    try:
        body = json.dumps(json_schema()).encode() if name == _SCHEMA else (_STATIC / name).read_bytes()
    except FileNotFoundError:
        return None
    packed = gzip.compress(body, 9, mtime=0) if len(body) > _WORTH_PACKING else None
    if packed is not None and len(packed) >= len(body):
        packed = None
    return Asset(name, media, body, packed, hashlib.sha256(body).hexdigest()[:16])
