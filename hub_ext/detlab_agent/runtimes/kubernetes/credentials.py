"""What an agent shows to an API server, and how it gets a new one: token files, plugins of a kubeconfig."""

from __future__ import annotations

import asyncio
import base64
import datetime
import hashlib
import json
import logging
import math
import os
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)

FILE_SECONDS = 60.0
"""Seconds after which the file of a token is read anew: the kubelet writes a new one long before the old one ends."""
_EARLY = 60.0
"""Seconds before its end at which a token is replaced."""
_AGAIN = 5.0
"""Seconds for which none is asked for again after the server has refused one, or none could be had."""
_PLUGIN_SECONDS = 60.0
_GROUP = "client.authentication.k8s.io"


class NoCredential(Exception):
    """There is none; the message says why."""


@dataclass(frozen=True)
class Credential:
    """What is shown.

    Attributes:
        authorization: The header; "": none, as with a client certificate.
        certificate: The digest of the client certificate; "": none.
        until: When it ends, in seconds since the epoch.
    """

    authorization: str = field(default="", repr=False)
    certificate: str = ""
    until: float = field(default=math.inf, compare=False)


Read = Callable[[], Awaitable[Credential]]


class ShownCredentials:
    """The one that is shown now; a new one is read before its end, and when the server refuses it.

    Args:
        read: Returns a new one.
        first: The first.
        clock: Seconds since the epoch.
    """

    def __init__(self, read: Read, first: Credential, clock: Callable[[], float] = time.time) -> None:
        self._read, self._held, self._clock = read, first, clock
        self._not_before = 0.0
        self._lock = asyncio.Lock()

    async def current(self, refused: Credential | None = None) -> Credential:
        """Return what to show.

        Args:
            refused: What the server did not accept; the same one is returned if there is no other.

        Raises:
            NoCredential: The old one has ended, and there is no new one.
        """
        async with self._lock:  # many requests at once ask for one
            held, now = self._held, self._clock()
            due = held.until - _EARLY <= now or refused == held
            if due and now >= self._not_before:
                try:
                    self._held = await self._read()
                except NoCredential as error:
                    if held.until <= now:
                        raise
                    _log.warning("no new credential for Kubernetes: %s; the old one is used", error)
                if self._held.until - _EARLY <= now or self._held == refused:
                    self._not_before = now + _AGAIN
            return self._held


def of_token(text: str, until: float = math.inf) -> Credential:
    """Return the credential that a token is.

    Raises:
        NoCredential: It is none.
    """
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise NoCredential("the token is empty, or has characters that no token has")
    return Credential(f"Bearer {token}", until=until)


def of_token_file(path: Path, clock: Callable[[], float] = time.time) -> Credential:
    """Read a token from a file that somebody rotates.

    Raises:
        NoCredential: It cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NoCredential(f"token file {path}: {error}") from error
    return of_token(text, clock() + FILE_SECONDS + _EARLY)


def of_password(name: str, password: str) -> Credential:
    """Return the credential of a user with a password."""
    return Credential(f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}")


def load_certificate(trust: ssl.SSLContext | None, certificate: bytes, key: bytes) -> str:
    """Let a client certificate be shown in all connections to come; return its digest.

    Raises:
        NoCredential: It is not valid.
    """
    if trust is None:
        return ""
    with tempfile.NamedTemporaryFile(prefix="detlab-") as file:  # 0600; no interface takes the texts
        file.write(certificate.strip() + b"\n" + key.strip() + b"\n")
        file.flush()
        try:
            trust.load_cert_chain(file.name, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise NoCredential(f"the client certificate cannot be used: {error}") from error
    return hashlib.sha256(certificate).hexdigest()


@dataclass(frozen=True)
class Plugin:
    """A program that a kubeconfig names under `exec`, such as that of a cloud.

    Attributes:
        command: The program and its arguments.
        version: Of the interface.
        environ: Its variables.
        info: What it is told.
        hint: How to install it.
    """

    command: Sequence[str]
    version: str
    environ: Mapping[str, str] = field(repr=False)
    info: Mapping[str, Any] = field(repr=False)
    hint: str = ""

    @classmethod
    def of(cls, asked: Mapping[str, Any], base: Path, cluster: Mapping[str, Any], environ: Mapping[str, str]) -> Plugin:
        """Read the block of a kubeconfig.

        Args:
            asked: The block.
            base: The folder of the kubeconfig.
            cluster: What the plugin is told of the cluster, if it asks for that.
            environ: Of the agent.

        Raises:
            NoCredential: It is wrong, or needs a person.
        """
        name, version = str(asked.get("command") or ""), str(asked.get("apiVersion") or "")
        if not name or not version.startswith(f"{_GROUP}/"):
            raise NoCredential(f"exec: needs a command and an apiVersion of {_GROUP}")
        if asked.get("interactiveMode") == "Always":
            raise NoCredential(f"exec: {name} asks a person (interactiveMode: Always), and an agent has no terminal")
        program = str(base / name) if os.sep in name else name
        spec: dict[str, Any] = {"interactive": False}
        if asked.get("provideClusterInfo"):
            spec["cluster"] = dict(cluster)
        more = {str(one["name"]): str(one["value"]) for one in asked.get("env") or ()}
        info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
        words = [program, *map(str, asked.get("args") or ())]
        return cls(words, version, {**environ, **more}, info, str(asked.get("installHint") or "").strip())

    async def run(self, trust: ssl.SSLContext | None) -> Credential:
        """Run it, and return what it gives.

        Raises:
            NoCredential: It gives nothing that can be used.
        """
        name = self.command[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *self.command,
                env={**self.environ, "KUBERNETES_EXEC_INFO": json.dumps(self.info)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f". {self.hint[:500]}" if self.hint else ""
            raise NoCredential(f"exec: {name} cannot be started: {error}{hint}") from error
        try:
            async with asyncio.timeout(_PLUGIN_SECONDS):
                said, wrong = await process.communicate()
        except TimeoutError as error:
            raise NoCredential(f"exec: {name} does not end within {_PLUGIN_SECONDS:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            told = wrong.decode("utf-8", errors="replace").strip()[-500:]
            raise NoCredential(f"exec: {name} ended with status {process.returncode}: {told or 'it says nothing'}")
        return self._taken(said, trust)

    def _taken(self, said: bytes, trust: ssl.SSLContext | None) -> Credential:
        try:
            value = json.loads(said)
            status, version = dict(value.get("status") or {}), value.get("apiVersion")
            ends = status.get("expirationTimestamp")
            until = math.inf if ends is None else datetime.datetime.fromisoformat(ends).timestamp()
        except (ValueError, TypeError, AttributeError) as error:
            # What it wrote may hold a token: it is not repeated.
            raise NoCredential(f"exec: {self.command[0]} writes no ExecCredential: {type(error).__name__}") from error
        if version != self.version:
            raise NoCredential(f"exec: {self.command[0]} speaks {version}, and the kubeconfig says {self.version}")
        certificate, key, mark = status.get("clientCertificateData"), status.get("clientKeyData"), ""
        if certificate and key:
            mark = load_certificate(trust, str(certificate).encode(), str(key).encode())
        if status.get("token"):
            return replace(of_token(str(status["token"]), until), certificate=mark)
        if not certificate:
            raise NoCredential(f"exec: {self.command[0]} gives neither a token nor a certificate")
        return Credential(certificate=mark, until=until)
