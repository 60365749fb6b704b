"""A small registry of images: as much of the OCI distribution API as a pull asks for, with a password or open to all.

with registry("ada:secret") as found:
    found.push("mine:1", tar_of_files)
    ...  # pull f"{found.address}/mine:1"
    found.pulls("mine:1")
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass
class Registry:
    """What it has and what it was asked; images may be pushed anew while it serves."""

    address: str
    """HOST:PORT, the first part of its images' names."""
    login: str | None
    """USER:PASSWORD, or None: everybody may pull."""
    served: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """Path -> (media type, content)."""
    asked: list[tuple[str, int]] = field(default_factory=list)
    """(path, status) of every request, in order."""

    def push(self, image: str, files: bytes, environment: Sequence[str] = ()) -> None:
        """Have an image of one layer under `NAME:TAG`, in the place of an earlier one.

        Args:
            image: Its name here.
            files: A tar.
            environment: `NAME=VALUE` of its processes.
        """
        name, _, tag = image.partition(":")
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": list(environment), "Cmd": ["/bin/sh"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(files)]},
        }
        parts = [(_CONFIG, json.dumps(config).encode()), (_LAYER, gzip.compress(files, mtime=0))]
        described = [{"mediaType": kind, "digest": _digest(data), "size": len(data)} for kind, data in parts]
        made = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": described[0], "layers": described[1:]}
        manifest = json.dumps(made).encode()
        for kind, data in parts:
            self.served[f"/v2/{name}/blobs/{_digest(data)}"] = (kind, data)
        for reference in (tag, _digest(manifest)):
            self.served[f"/v2/{name}/manifests/{reference}"] = (_MANIFEST, manifest)

    def pulls(self, image: str) -> int:
        """Return how often the manifest of `NAME:TAG` was given."""
        name, _, tag = image.partition(":")
        return sum(found == (f"/v2/{name}/manifests/{tag}", 200) for found in self.asked)

    def answer(self, path: str, given: str | None) -> tuple[int, str, bytes]:
        """Return (status, media type, content) for a request with this `Authorization`."""
        if self.login is not None and given != f"Basic {base64.b64encode(self.login.encode()).decode()}":
            return 401, "application/json", _problem("UNAUTHORIZED", "authentication required")
        if path == "/v2/":
            return 200, "application/json", b"{}"
        if path in self.served:
            return 200, *self.served[path]
        return 404, "application/json", _problem("MANIFEST_UNKNOWN", "manifest unknown")


@contextmanager
def registry(login: str | None = None) -> Iterator[Registry]:
    """Serve one on loopback, where engines ask for no TLS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, data = found.answer(self.path, self.headers.get("Authorization"))
            found.asked.append((self.path, status))
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="registry"')
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            self.send_header("Docker-Content-Digest", _digest(data))
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Nothing to standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Registry(f"127.0.0.1:{server.server_port}", login)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield found
        finally:
            server.shutdown()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _problem(code: str, message: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()
