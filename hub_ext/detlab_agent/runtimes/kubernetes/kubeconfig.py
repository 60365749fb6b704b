"""How an API server is reached: by a kubeconfig as kubectl reads it, or by the service account of the agent's own pod.

Files are read anew for each new credential, since tools rewrite them. kubernetes_asyncio does the same; but its models,
which it always imports and which nothing here needs, take more memory than the rest of the agent.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import yaml

from detlab_agent.runtimes.kubernetes.credentials import (
    Credential,
    NoCredential,
    Plugin,
    Read,
    load_certificate,
    of_password,
    of_token,
    of_token_file,
)
from detlab_agent.settings import AgentError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its service account."""
_FIX = (
    "Name a kubeconfig that kubectl works with (--kubeconfig FILE, --kube-context NAME), or run the agent in a pod "
    "with a service account"
)


@dataclass(frozen=True)
class ApiServer:
    """An API server.

    Attributes:
        url: Its address.
        trust: For TLS; None: it is plain HTTP.
        name: That its certificate must have; None: the one of the address.
        proxy: Of HTTP, on the way to it.
    """

    url: str
    trust: ssl.SSLContext | None = None
    name: str | None = None
    proxy: str | None = None


@dataclass(frozen=True)
class Opened:
    """A configuration that was read.

    Attributes:
        server: How the server is reached.
        read: Returns a new credential.
        first: The first one.
        namespace: That of the pods.
        origin: Where the configuration is from, for messages.
    """

    server: ApiServer
    read: Read
    first: Credential
    namespace: str
    origin: str


@dataclass(frozen=True)
class Access:
    """Where the configuration is.

    Attributes:
        kubeconfig: A file; None: KUBECONFIG or ~/.kube/config, or inside a cluster its service account.
        context: Of the file; None: its current one.
        namespace: For the pods; None: of the context, or the agent's own.
        environ: Of the agent.
        account: The folder of the service account.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    account: Path = ACCOUNT

    async def open(self) -> Opened:
        """Read the configuration.

        Raises:
            AgentError: There is no usable one.
        """
        asked = self.kubeconfig is not None or self.context is not None or bool(self.environ.get("KUBECONFIG"))
        try:
            if "KUBERNETES_SERVICE_HOST" in self.environ and not asked:
                return await self._of_pod()
            return await self._of_files()
        except (NoCredential, OSError, ValueError, TypeError, AttributeError, KeyError, yaml.YAMLError) as error:
            said = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise AgentError(f"no access to Kubernetes: {said}. {_FIX}") from error

    async def _of_pod(self) -> Opened:
        host, port = self.environ["KUBERNETES_SERVICE_HOST"], self.environ.get("KUBERNETES_SERVICE_PORT", "443")
        trust = _trusting((self.account / "ca.crt").read_bytes())
        server = ApiServer(f"https://{_bracketed(host)}:{port}", trust)
        file = self.account / "token"

        async def read() -> Credential:
            return of_token_file(file)

        namespace = self.namespace or (self.account / "namespace").read_text(encoding="ascii").strip()
        return Opened(server, read, await read(), namespace, "the service account of this pod")

    async def _of_files(self) -> Opened:
        found = str(self.kubeconfig or self.environ.get("KUBECONFIG") or Path("~/.kube/config").expanduser())
        files = [self.kubeconfig] if self.kubeconfig else [Path(one) for one in found.split(os.pathsep) if one]
        chosen = _Chosen.read(files, self.context)
        server = chosen.server()

        async def read() -> Credential:
            try:
                now = _Chosen.read(files, self.context)
                return await now.credential(server.trust, self.environ)
            except (OSError, ValueError, TypeError, AttributeError, KeyError, yaml.YAMLError) as error:
                raise NoCredential(f"kubeconfig {found}: {error}") from error

        namespace = self.namespace or str(chosen.namespace or "default")
        return Opened(server, read, await read(), namespace, f"kubeconfig {found}")


@dataclass(frozen=True)
class _Entry:
    """A cluster, user or context of a kubeconfig, and the folder to which its paths are relative."""

    value: Mapping[str, Any]
    base: Path

    def data(self, key: str) -> bytes | None:
        """Return what `key-data` holds, or the file that `key` names; None if there is neither."""
        text, file = self.value.get(f"{key}-data"), self.value.get(key)
        if text:
            try:
                return base64.b64decode(str(text), validate=False)
            except binascii.Error as error:
                raise ValueError(f"{key}-data is not in base64: {error}") from error
        return (self.base / str(file)).read_bytes() if file else None


@dataclass(frozen=True)
class _Chosen:
    """What a context of kubeconfigs names."""

    cluster: _Entry
    user: _Entry
    namespace: str | None

    @classmethod
    def read(cls, files: list[Path], context: str | None) -> _Chosen:
        """Merge files as kubectl does: the first that says something counts; what is not there is passed over."""
        known: dict[str, dict[str, _Entry]] = {"clusters": {}, "users": {}, "contexts": {}}
        current, there = context, [file for file in files if file.exists()]
        if not there:
            raise ValueError(f"there is no kubeconfig {', '.join(map(str, files))}")
        for file in there:
            value = yaml.safe_load(file.read_text(encoding="utf-8"))
            if not isinstance(value, Mapping):
                raise ValueError(f"kubeconfig {file} is no mapping")
            current = current or value.get("current-context")
            for kind, entries in known.items():
                for one in value.get(kind) or ():
                    entry = _Entry(one.get(kind[:-1]) or {}, file.absolute().parent)
                    entries.setdefault(str(one["name"]), entry)
        where = f"kubeconfig {', '.join(map(str, there))}"
        if not current:
            raise ValueError(f"{where} names no current-context, and its contexts are {_listed(known['contexts'])}")
        found = known["contexts"].get(current)
        if found is None:
            raise ValueError(f"{where} has no context {current!r}; it has {_listed(known['contexts'])}")
        cluster, user = str(found.value.get("cluster")), found.value.get("user")
        if cluster not in known["clusters"]:
            raise ValueError(f"{where}: context {current!r} names the cluster {cluster!r}, which is not there")
        if user and user not in known["users"]:
            raise ValueError(f"{where}: context {current!r} names the user {user!r}, who is not there")
        who = known["users"][user] if user else _Entry({}, Path())
        return cls(known["clusters"][cluster], who, found.value.get("namespace"))

    def server(self) -> ApiServer:
        """Return how the server is reached."""
        said = self.cluster.value
        url = str(said["server"]).rstrip("/")
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"server: {url[:200]!r} is no address of an API server")
        trust = None
        if parts.scheme == "https":
            trust = _trusting(self.cluster.data("certificate-authority"))
            if said.get("insecure-skip-tls-verify"):
                trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        proxy = said.get("proxy-url") or _proxy_of(parts.scheme, parts.hostname)
        return ApiServer(url, trust, said.get("tls-server-name"), proxy)

    async def credential(self, trust: ssl.SSLContext | None, environ: Mapping[str, str]) -> Credential:
        """Return what the user shows; a certificate is put into `trust`.

        Raises:
            NoCredential: There is nothing to show.
        """
        said = self.user.value
        certificate, key, mark = self.user.data("client-certificate"), self.user.data("client-key"), ""
        if certificate and key:
            mark = load_certificate(trust, certificate, key)
        if said.get("exec"):
            told = {"server": self.cluster.value.get("server")}
            authority = self.cluster.data("certificate-authority")
            if authority:
                told["certificate-authority-data"] = base64.b64encode(authority).decode()
            return await Plugin.of(said["exec"], self.user.base, told, environ).run(trust)
        if said.get("tokenFile"):
            return of_token_file(self.user.base / str(said["tokenFile"]))
        if said.get("token"):
            return of_token(str(said["token"]))
        if said.get("username"):
            return of_password(str(said["username"]), str(said.get("password") or ""))
        if said.get("auth-provider"):
            name = str(said["auth-provider"].get("name"))
            raise NoCredential(
                f"auth-provider {name} has been taken out of Kubernetes: the kubeconfig needs a plugin (exec), such as "
                "kubectl oidc-login, gke-gcloud-auth-plugin or kubelogin, or the token of a service account"
            )
        return Credential(certificate=mark)


def _listed(entries: Mapping[str, object]) -> str:
    return ", ".join(sorted(entries)[:20]) or "none"


def _trusting(authority: bytes | None) -> ssl.SSLContext:
    """Return what a server's certificate is checked by: the cluster's own authority, or the machine's if it names none.

    Raises:
        ValueError: The authority is not valid.
    """
    if authority is None:
        return ssl.create_default_context()
    try:
        made = ssl.create_default_context(cadata=authority.decode("ascii", errors="ignore"))  # remarks between them
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"certificate-authority: {error}") from error
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT  # authorities that kubeadm made lack the key's identifier
    return made


def _bracketed(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host


def _proxy_of(scheme: str, host: str) -> str | None:
    return None if proxy_bypass(host) else getproxies().get(scheme)
