"""A registry of containers, spoken to by oras: logins, uploads, and errors in the registry's own words.

oras tries each request six times over two minutes, also those that were refused; here, only what may pass by itself is
tried again, and soon.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from detlab.errors import DetlabError
from detlab.visible import visible

CHUNK = 16 * 1024 * 1024
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_PAUSES = (0.2, 1.0, 3.0)
"""Seconds before each further try."""
_REFERENCE = re.compile(
    r"(?P<registry>[A-Za-z0-9.-]+(?::\d+)?|\[[0-9a-fA-F:]+\](?::\d+)?)"
    r"/(?P<repository>[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?"
)
_WANTED = "A reference is REGISTRY/REPOSITORY[:TAG] in lower case, such as registry.example/models/digits:3."


@dataclasses.dataclass(frozen=True)
class Login:
    """How to reach a registry.

    Attributes:
        username: With its password; both empty take what `docker login` stored.
        password: Never shown.
        plain_http: Whether to do without TLS, for a registry on this machine.
        certificate: File of the certificate authority to trust, for one with its own.
    """

    username: str = ""
    password: str = dataclasses.field(default="", repr=False)
    plain_http: bool = False
    certificate: Path | None = None


class Registry:
    """One repository of a registry.

    Args:
        reference: `REGISTRY/REPOSITORY[:TAG]`.
        tag: Taken if the reference has none.
        login: How to reach it.

    Raises:
        DetlabError: The reference is none, or oras is not installed.
    """

    def __init__(self, reference: str, tag: str, login: Login) -> None:
        found = _REFERENCE.fullmatch(reference)
        if found is None:
            raise DetlabError(f"{visible(reference)[:200]!r} does not name a place in a registry", hint=_WANTED)
        try:
            import oras.container
            import oras.provider
        except ImportError as error:
            raise DetlabError(
                f"pushing to a registry needs oras, which is not installed here ({error})",
                hint="Install it: pip install 'detlab[registry]'",
            ) from error
        self._host = found["registry"]
        self.reference = f"{self._host}/{found['repository']}:{found['tag'] or tag}"
        self._container = oras.container.Container(self.reference)
        self._login = login
        self._oras = oras.provider.Registry(
            insecure=login.plain_http,
            tls_verify=str(login.certificate) if login.certificate else True,
            auth_backend=self._backend(),
        )
        self._oras.do_request = self._request
        self._send = oras.provider.Registry.do_request.__wrapped__
        if login.username:
            self._oras.auth.set_basic_auth(login.username, login.password)
        else:
            self._oras.auth.load_configs(self._container, _docker_configs())

    def upload(self, path: Path, digest: str, size: int) -> None:
        """Upload a file unless the registry has it; what is large goes in parts."""
        layer = {"digest": digest, "size": size}
        if self._oras.blob_exists(layer, self._container):
            return
        send = self._oras.chunked_upload if size > CHUNK else self._oras.put_upload
        options = {"chunk_size": CHUNK} if size > CHUNK else {}
        try:
            reply = send(str(path), self._container, layer, **options)
        except ValueError as error:  # what oras raises about replies
            raise self._failed(f"{path.name} could not be uploaded: {error}") from error
        self._check(reply, f"{path.name} could not be uploaded")

    def check_tag(self, digest: str) -> None:
        """Check that nothing else has the tag: who has pulled it would get something else from then on.

        Raises:
            DetlabError: Something has.
        """
        url = f"{self._oras.prefix}://{self._container.manifest_url()}"
        reply = self._request(url, "GET", headers={"Accept": ", ".join(_MANIFESTS)})
        if reply.status_code == 404:
            return
        self._check(reply, f"what {self.reference} is now cannot be read")
        there = "sha256:" + hashlib.sha256(reply.content).hexdigest()
        if there != digest:
            raise DetlabError(
                f"{self.reference} is another artifact already: {there}",
                hint="Push to another tag (…:TAG), or replace what is there: --replace.",
                code="export.exists",
            )

    def put_manifest(self, manifest: bytes, media_type: str) -> str:
        """Upload a manifest under the tag, see that the registry has it, and return its digest."""
        url = f"{self._oras.prefix}://{self._container.manifest_url()}"
        reply = self._request(url, "PUT", data=manifest, headers={"Content-Type": media_type})
        self._check(reply, "the manifest was refused")
        digest = "sha256:" + hashlib.sha256(manifest).hexdigest()
        said = reply.headers.get("Docker-Content-Digest", digest)
        if said != digest:
            raise self._failed(f"the registry stored another manifest than was sent: {said}, not {digest}")
        return digest

    def _backend(self) -> str:
        """Return the kind of login that the registry asks for."""
        import requests

        scheme = "http" if self._login.plain_http else "https"
        verify = str(self._login.certificate) if self._login.certificate else True
        reply = self._tried(lambda: requests.get(f"{scheme}://{self._host}/v2/", timeout=30, verify=verify))
        return "basic" if reply.headers.get("WWW-Authenticate", "").lower().startswith("basic") else "token"

    def _request(self, url: str, method: str = "GET", **options: Any) -> Any:
        """Do what oras does for a request, without its two minutes of waiting."""
        if not hasattr(self._oras.auth, "_basic_auth") and type(self._oras.auth).__name__ == "BasicAuth":
            raise self._denied("it asks for a login, and none is stored for it")
        try:
            reply = self._tried(lambda: self._send(self._oras, url, method, **options))
        except ValueError as error:  # oras: nothing to answer a 401 or 403 with
            raise self._denied("it asks for a login, and refused what it got") from error
        if reply.status_code in (401, 403):
            raise self._denied(_words(reply))
        return reply

    def _tried(self, act: Any) -> Any:
        import requests

        for pause in (*_PAUSES, None):
            try:
                reply = act()
            except requests.exceptions.SSLError as error:
                raise self._failed(f"its certificate is not trusted: {_cause(error)}") from error
            except requests.exceptions.RequestException as error:
                if pause is None:
                    raise self._away(error) from error
            else:
                if pause is None or reply.status_code not in (429, 500, 502, 503, 504):
                    return reply
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _check(self, reply: Any, what: str) -> None:
        if reply.status_code not in (200, 201, 202):
            raise self._failed(f"{what}: {_words(reply)}")

    def _failed(self, why: str) -> DetlabError:
        hint = None
        if "wrong version number" in why.lower() or "record layer failure" in why.lower():
            hint = "It speaks plain HTTP: add --plain-http, on a network that you trust."
        return DetlabError(f"registry {self._host}: {visible(why)[:500]}", hint=hint, code="export.registry")

    def _away(self, error: BaseException) -> DetlabError:
        why, hint = _silence(error)
        return DetlabError(f"registry {self._host} does not answer: {why}", hint=hint, code="export.registry")

    def _denied(self, why: str) -> DetlabError:
        return DetlabError(
            f"registry {self._host}: {visible(why)[:500]}",
            hint=f"Log in by `docker login {self._host}` or `oras login {self._host}`, or give --username and"
            " --password-stdin. Your user also needs the right to push there.",
            code="export.denied",
        )


def _docker_configs() -> list[str]:
    """Return Docker's configuration where the environment says it is; oras itself looks in the home folder alone."""
    folder = os.environ.get("DOCKER_CONFIG")
    path = Path(folder) / "config.json" if folder else None
    return [str(path)] if path is not None and path.is_file() else []


def _words(reply: Any) -> str:
    """Return what a registry says of a failed request, as its specification has it."""
    try:
        errors = json.loads(reply.content)["errors"]
        said = "; ".join(f"{error.get('code', '')} {error.get('message', '')}".strip() for error in errors)
    except (ValueError, KeyError, TypeError, AttributeError):
        said = ""
    return said or f"status {reply.status_code}"


def _silence(error: BaseException) -> tuple[str, str]:
    """Return in words why there was no answer, and what to do about it."""
    import requests

    for cause in _chain(error):
        if isinstance(cause, socket.gaierror):
            return "no such name is known here", "Is the registry's name spelt right, and can this machine look it up?"
        if isinstance(cause, ConnectionRefusedError):
            return "nothing listens at that port", "Is the registry up, and the port right?"
        if isinstance(cause, TimeoutError | requests.exceptions.Timeout):
            return "it was silent until the time was up", "Can this machine reach it, or is a firewall between?"
        if isinstance(cause, ConnectionResetError | BrokenPipeError):
            return "it closed the connection", "Its own log may say why; then try again."
        if isinstance(cause, OSError) and cause.errno is not None:
            return os.strerror(cause.errno).lower(), "Can this machine reach it?"
    return visible(_cause(error)), "Is the registry up, and can this machine reach it?"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Give what has led to an error, the innermost first: requests and urllib3 hand it on in three ways."""
    found: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseException) and one not in found:
            found.append(one)
            waiting += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
    return reversed(found)


def _cause(error: BaseException) -> str:
    """Return the innermost words of an error of requests, without addresses of objects."""
    said = re.sub(r"<[^>]*>:? ?", "", str(error))
    return said.rsplit("(Caused by ", 1)[-1].rstrip(")")[:300]
