"""Servers of three kinds of object store: S3 by moto, Azure by azurite, Google's by its XML interface before moto.

obstore speaks to Google Cloud Storage by the XML interface, which is that of S3 with other headers; the emulators that
there are speak JSON only. So `GoogleFace` translates what differs (a bearer token, the precondition) and moto stores.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import hmac
import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detlab.testing.ports import free_port
from testbed.objectstores.faultproxy import Answer, Asked, FaultProxy

AZURITE = Path(__file__).parent / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Public: that of every emulator."""
BUCKET = "models"
_KEYS = "AWS4-HMAC-SHA256 Credential={}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


@dataclass
class ObjectServer:
    """A running store with a bucket.

    Attributes:
        kind: `s3`, `gcs` or `azure`.
        port: Where it listens on loopback.
    """

    kind: str
    port: int

    def block(self, prefix: str, *, port: int | None = None, **more: Any) -> dict[str, Any]:
        """Return the `checkpoint_storage` block of a place in it, perhaps by a proxy on another port."""
        url = f"http://127.0.0.1:{port or self.port}"
        block: dict[str, Any] = {"type": self.kind, "prefix": prefix}
        if self.kind == "s3":
            block |= {"bucket": BUCKET, "endpoint_url": url, "access_key": "key", "secret_key": "secret"}
        elif self.kind == "gcs":
            block |= {"bucket": BUCKET, "endpoint_url": url}
        else:
            account = f"{url}/{AZURE_ACCOUNT}"
            block |= {"container": BUCKET, "account_url": account, "credential": AZURE_KEY}
        return {**block, **more}


@contextlib.contextmanager
def s3_server(folder: Path, tls: tuple[Path, Path] | None = None, **environment: str) -> Iterator[ObjectServer]:
    """Start moto with a bucket, perhaps behind TLS with a certificate and its key."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1"]
    if tls is not None:
        command += ["-c", str(tls[0]), "-k", str(tls[1])]
    with _running([*command, "-p"], folder / "moto.log", environment) as port:
        ask(port, "PUT", f"/{BUCKET}", {"Authorization": _KEYS.format("key")}, tls=tls is not None)
        yield ObjectServer("s3", port)


@contextlib.contextmanager
def gcs_server(s3: ObjectServer) -> Iterator[ObjectServer]:
    """Put Google's face before a moto."""
    proxy = FaultProxy(s3.port)
    proxy.before = _from_google
    try:
        yield ObjectServer("gcs", proxy.port)
    finally:
        proxy.close()


@contextlib.contextmanager
def azure_server(folder: Path) -> Iterator[ObjectServer]:
    """Start azurite with a container."""
    node = shutil.which("node")
    assert node, "node is needed: make setup-test"
    assert AZURITE.exists(), f"azurite is not in {AZURITE.parents[4]}: make setup-test"
    options = ["--blobHost", "127.0.0.1", "--location", str(folder / "azurite"), "--silent", "--disableTelemetry"]
    command = [node, str(AZURITE), *options, "--skipApiVersionCheck", "--blobPort"]
    with _running(command, folder / "azurite.log", {}) as port:
        _make_container(port)
        yield ObjectServer("azure", port)


def ask(
    port: int, method: str, path: str, headers: dict[str, str], body: bytes = b"", *, tls: bool = False
) -> tuple[int, bytes]:
    """Send one request to a server on loopback."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    if tls:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=30, context=ssl._create_unverified_context()
        )
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _from_google(asked: Asked) -> Answer | None:
    """Turn a request of Google's XML interface into one of S3."""
    headers = {name.lower(): value for name, value in asked.headers.items()}
    if headers.pop("x-goog-if-generation-match", None) == "0":
        headers["if-none-match"] = "*"
    headers["authorization"] = _KEYS.format("google")
    asked.headers = headers
    return None


def _make_container(port: int) -> None:
    now = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    version = "2021-08-06"
    resource = f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{BUCKET}\nrestype:container"
    text = f"PUT{chr(10) * 12}x-ms-date:{now}\nx-ms-version:{version}\n{resource}"
    signed = base64.b64encode(hmac.new(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256).digest()).decode()
    headers = {"x-ms-date": now, "x-ms-version": version, "Authorization": f"SharedKey {AZURE_ACCOUNT}:{signed}"}
    status, body = ask(port, "PUT", f"/{AZURE_ACCOUNT}/{BUCKET}?restype=container", headers)
    assert status == 201, body


@contextlib.contextmanager
def _running(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[int]:
    """Run a server on a free port, which is the last argument of its command, until the block ends."""
    port = free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, str(port)], stdout=output, stderr=output, env={**os.environ, **environment}
        )
    try:
        _wait(process, port, log)
        yield port
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise AssertionError(f"{process.args!r} does not listen: {log.read_text(errors='replace')[-3000:]}")
