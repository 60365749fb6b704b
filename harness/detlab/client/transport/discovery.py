"""Which cluster, and with which token: one search order for the CLI, the SDK and the notebook.

1. what the caller said (`url`, `token`);
2. `DET_URL` and `DET_TOKEN`;
3. `DET_URL` with `JUPYTERHUB_API_TOKEN` (a notebook server that the Hub started);
4. in a notebook run: `DET_MASTER` with the run's own token, of the file `DET_TOKEN_FILE`;
5. a state folder `.detlab` here or in a folder above whose cluster runs;
6. the cluster that this user started last;
7. the file that `det login` writes.

The sixth is a guess, and so is whatever is found although the cluster of a nearer `.detlab` is not running: all shells
of an account share it, so that it may be somebody else's work. Commands say which cluster they guessed and only read
from it; what would change it is refused (`ClusterAddress.unchanged`). `det status` and `det down` follow the same order
to find a state folder (`Discovery.state_folder_of`).

A token goes only to the address it belongs to: naming another URL never sends it the token of the folder or
of the login file. Naming the URL of any cluster that this user started on this machine finds its token: their folders
are in a note (`started`), which nothing else reads. State folders count only if they belong to this user or to root,
so that no other user can leave a `.detlab` in a shared folder and collect what others submit.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from detlab.client.transport.logins import Logins, user_state_folder
from detlab.errors import (
    AuthError,
    ClusterGuessed,
    ClusterNotFound,
    ClusterUnreachable,
    DetlabError,
    UntrustedMaster,
)
from detlab.pasted import word
from detlab.token_text import one_word
from detlab.trust import environment_certificate, fingerprint_of, naming

STATE_FOLDER = ".detlab"
SERVICE_PATH = "/services/detlab"
_READING = frozenset({"GET", "HEAD"})
LAST_NOTE = "last"
"""Note with the state folder of the cluster that this user started last."""
STARTED_NOTE = "started"
"""Note with the state folders of all clusters that this user started, the latest first."""
USE_PROXY = "DET_USE_PROXY"
"""Environment variable: `1` sends calls to a master on another machine through the proxies of the environment."""
_PROXIES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """Where the master is, the token to show it, and how that was found.

    Attributes:
        url: Base of the service; ends with `/services/detlab/`.
        token: A Hub token, or None if none was found.
        source: How it was found, for people: `DET_URL`, `the folder /x/.detlab`, …
        folder: The state folder, if one named the cluster.
        certificate: The pinned certificate (PEM) of a master with TLS; None to trust what the system trusts.
        guess: Why this cluster was taken although nobody named it here; None if somebody did.
    """

    url: str
    token: str | None = field(repr=False)
    source: str
    folder: Path | None = None
    certificate: str | None = field(default=None, repr=False)
    guess: str | None = None

    def __post_init__(self) -> None:
        if self.token is not None:
            object.__setattr__(self, "token", one_word(self.token, self.source) or None)

    @property
    def loopback(self) -> bool:
        """Whether the address is on this machine."""
        return is_loopback(urlsplit(self.url).hostname or "")

    @property
    def proxied(self) -> bool:
        """Whether calls use the proxies of the environment: where DET_USE_PROXY is 1, and never to this machine.

        A site sets these variables for the world outside; its proxy seldom reaches a master within.
        """
        return not self.loopback and os.environ.get(USE_PROXY) == "1"

    def unchanged(self, method: str) -> None:
        """Refuse a request that could change a cluster that was only guessed.

        Args:
            method: The HTTP verb.

        Raises:
            ClusterGuessed: It may change something, and nobody named this cluster.
        """
        if self.guess is None or method in _READING:
            return
        base = self.url.removesuffix(f"{SERVICE_PATH}/")
        raise ClusterGuessed(
            f"no cluster is named, and {self.url} is only a guess ({self.guess})",
            hint=f"If it is the right one: det login {word(base)}. For one command: det -m {word(base)} …",
        )

    def untrusted(self) -> UntrustedMaster:
        """Return the error for a server at this address whose certificate is not trusted."""
        return _untrusted(self)

    def unreachable(self, reason: str) -> ClusterUnreachable:
        """Return the error for a master that does not answer, with the command that helps."""
        if self.folder is not None:
            return ClusterUnreachable(
                f"the cluster recorded in {self.folder} does not answer at {self.url}: {reason}",
                hint=f"It may have stopped. Start it again: det up --dir {word(self.folder)}",
            )
        hint = "Check the address and that the cluster runs. To start one on this machine: det up"
        proxy = next((name for name in _PROXIES if os.environ.get(name)), None)
        if proxy is not None and not self.loopback:
            hint += (
                f". The proxy in {proxy} was used, because {USE_PROXY} is 1"
                if self.proxied
                else f". The proxy in {proxy} was not used; {USE_PROXY}=1 uses it"
            )
        return ClusterUnreachable(f"no answer from {self.url} (named by {self.source}): {reason}", hint=hint)


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine for itself only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _untrusted(address: ClusterAddress) -> UntrustedMaster:
    pin = address.certificate
    if pin is None:
        return UntrustedMaster(
            f"no authority that this machine trusts signed the certificate of {address.url}",
            hint="If detlab made it, det status prints its fingerprint there; pin it:\n"
            f"  det login {word(address.url)} --fingerprint sha256:…\n"
            "For your own authority, name its file in SSL_CERT_FILE",
        )
    return UntrustedMaster(
        f"{address.url} does not show the pinned certificate {fingerprint_of(pin)}{naming(pin)}: it was renewed "
        "since or has expired, or an attacker is intercepting the connection",
        hint="Ask the operator for the current fingerprint (det status), and pin it:\n"
        f"  det login {word(address.url)} --fingerprint sha256:…",
    )


def service_url(url: str) -> str:
    """Return the base URL of the service for any address of a Hub or service that a person pasted.

    `http://host:8642`, `http://host:8642/hub/home` and `http://host:8642/services/detlab` all give
    `http://host:8642/services/detlab/`.

    Raises:
        ClusterNotFound: It is not an http(s) address, or it contains a password.
    """
    parts = urlsplit(url.strip())
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ClusterNotFound(
            f"{url!r} is not the address of a cluster: it must begin with http:// or https://",
            hint="For example: det login http://127.0.0.1:8642",
        )
    if parts.username or parts.password:
        raise ClusterNotFound(
            "the address of a cluster carries no user name or password",
            hint="Give the token by DET_TOKEN, det login or --token-file instead",
        )
    prefix = parts.path.rstrip("/")
    for segment in (SERVICE_PATH, "/hub", "/user"):
        at = f"{prefix}/".find(f"{segment}/")
        if at >= 0:
            prefix = prefix[:at]
            break
    return urlunsplit((parts.scheme, parts.netloc, f"{prefix}{SERVICE_PATH}/", "", ""))


@dataclass
class Discovery:
    """The search, with everything it looks at injected.

    Attributes:
        environ: Environment variables.
        start: Folder from which `.detlab` is looked for, upwards.
        state_folder: Where the notes are: `last` with the path of the folder of the cluster that was started last,
            `started` with those of all that were started.
        logins: The file of `det login`.
        uid: Whose state folders count, besides root's.
        tried: What was searched without success, for the error message.
        stopped: The nearest state folder whose cluster is not running; None if there is none.
    """

    environ: Mapping[str, str]
    start: Path
    state_folder: Path
    logins: Logins
    uid: int
    tried: list[str] = field(default_factory=list)
    stopped: Path | None = None

    @classmethod
    def default(cls) -> Discovery:
        """Return the search of this process, user and working folder."""
        return cls(
            environ=os.environ,
            start=Path.cwd(),
            state_folder=user_state_folder(),
            logins=Logins.default(),
            uid=os.getuid(),
        )

    def find(self, url: str | None = None, token: str | None = None) -> ClusterAddress:
        """Return the cluster to talk to.

        Args:
            url: Said by the caller; wins over everything.
            token: Said by the caller; wins over every token found.

        Raises:
            ClusterNotFound: Nothing names a cluster; the message says what was tried.
            ClusterUnreachable: The nearest state folder's cluster has been shut down, and there is no other.
        """
        self.tried.clear()
        self.stopped = None
        found = self._named(url) if url else self._search()
        return replace(found, token=token) if token else found

    def _named(self, url: str) -> ClusterAddress:
        wanted = service_url(url)
        return ClusterAddress(
            wanted, self._token_for(wanted), "the given address", certificate=self._certificate_for(wanted)
        )

    def _search(self) -> ClusterAddress:
        for look in (self._environment, self._run, self._folders, self._last, self._login):
            found = look()
            if found is not None:
                if self.stopped is not None:
                    found = replace(found, guess=f"{found.source}; the cluster of {self.stopped} is not running")
                explicit = self.environ.get("DET_TOKEN")
                return replace(found, token=explicit) if explicit else found
        if self.stopped is not None:
            raise ClusterUnreachable(
                f"the cluster of the folder {self.stopped} is not running",
                hint=f"Start it: det up --dir {word(self.stopped)}\nor name another one by DET_URL and DET_TOKEN",
            )
        raise ClusterNotFound(
            "no cluster found; searched " + "; ".join(self.tried),
            hint="Start one on this machine: det up\nor name a running one: det login URL (or DET_URL and DET_TOKEN)",
        )

    def _environment(self) -> ClusterAddress | None:
        url = self.environ.get("DET_URL")
        if not url:
            self.tried.append("DET_URL (not set)")
            return None
        wanted = service_url(url)
        return ClusterAddress(wanted, self._token_for(wanted), "DET_URL", certificate=self._certificate_for(wanted))

    def _run(self) -> ClusterAddress | None:
        master = self.environ.get("DET_MASTER")
        if not master or (token := self._run_token(service_url(master))) is None:
            return None
        wanted = service_url(master)
        return ClusterAddress(wanted, token, "this notebook run", certificate=self._certificate_for(wanted))

    def _run_token(self, wanted: str) -> str | None:
        """Return the token that a notebook run has for its own master, and for no other address."""
        file, master = self.environ.get("DET_TOKEN_FILE"), self.environ.get("DET_MASTER")
        if not file or not master or not _leads_to(master, wanted):
            return None
        try:
            return Path(file).read_text(encoding="ascii").strip() or None
        except (OSError, UnicodeDecodeError):
            return None

    def _certificate_for(self, wanted: str) -> str | None:
        """Return the certificate that is pinned for a service URL: by the environment, a folder or a login.

        Raises:
            DetlabError: DET_MASTER_CERT_FILE names a file without a certificate.
        """
        if not wanted.startswith("https:"):
            return None
        pinned = environment_certificate(wanted, self.environ)
        if pinned:
            return pinned
        for folder in self._candidates():
            found = self._recorded(folder)
            if found is not None and found.url == wanted:
                return found.certificate
        return self.logins.certificate(wanted)

    def _token_for(self, wanted: str) -> str | None:
        """Return the token that belongs to a service URL, never another cluster's."""
        named = self.environ.get("DET_URL")
        if not named or _leads_to(named, wanted):
            if self.environ.get("DET_TOKEN"):
                return self.environ["DET_TOKEN"]
            if named and self.environ.get("JUPYTERHUB_API_TOKEN"):
                return self.environ["JUPYTERHUB_API_TOKEN"]
        if (token := self._run_token(wanted)) is not None:
            return token
        for folder in self._candidates():
            found = self._recorded(folder)
            if found is not None and found.url == wanted:
                return found.token
        return self.logins.token(wanted)

    def _candidates(self) -> Iterator[Path]:
        for parent in (self.start, *self.start.parents):
            yield parent / STATE_FOLDER
        last = self._last_folder()
        if last is not None:
            yield last
        yield from started_folders(self.state_folder)

    def _folders(self) -> ClusterAddress | None:
        for parent in (self.start, *self.start.parents):
            folder = parent / STATE_FOLDER
            found = self._recorded(folder)
            if found is not None:
                return found
            if self.stopped is None and self._mine(folder) and self._mine(folder / "secrets"):
                self.stopped = folder
        self.tried.append(f"{STATE_FOLDER} in {self.start} and above (none that you own)")
        return None

    def _last_folder(self) -> Path | None:
        note = self.state_folder / LAST_NOTE
        try:
            text = note.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return Path(text) if text and Path(text).is_absolute() else None

    def _last(self) -> ClusterAddress | None:
        folder = self._last_folder()
        if folder is None:
            self.tried.append("the cluster started last (none)")
            return None
        found = self._recorded(folder)
        if found is None:
            self.tried.append(f"the cluster started last ({folder}: not running)")
            return None
        return replace(found, guess=f"the cluster started last, {folder}")

    def state_folder_of(self, url: str | None = None) -> tuple[Path, ClusterAddress | None]:
        """Return the state folder that a command about a whole cluster means, by the same order.

        Args:
            url: Address of the cluster, said by the caller.

        Returns:
            The folder, whose cluster need not run; `.detlab` here if nothing names another. And the cluster of other
            commands run here if nobody named that one: with a guess of its own.

        Raises:
            DetlabError: The cluster that is named has no state folder on this machine.
        """
        try:
            found = self.find(url)
        except ClusterUnreachable:
            return self.stopped or Path(STATE_FOLDER), None
        except ClusterNotFound:
            if url or self.environ.get("DET_URL"):
                raise
            return Path(STATE_FOLDER), None
        if self.stopped is not None:
            return self.stopped, found
        folder = found.folder or next((path for path in self._candidates() if self._records(path, found.url)), None)
        if folder is None or self._owner(folder) != self.uid:
            raise DetlabError(
                f"the cluster {found.url} (named by {found.source}) has no state folder of yours on this machine",
                hint="This command works where it was started: name the folder by --dir",
            )
        return folder, found if found.guess else None

    def folder_to_start(self) -> Path:
        """Return the state folder that `det up` means without `--dir`: the nearest one of this user, here or above.

        It is the one that other commands run here would take if its cluster was running; `.detlab` here if there is
        none. Neither DET_URL nor the cluster started last matters: `det up` names no running cluster.
        """
        here = self.start / STATE_FOLDER
        if here.exists():
            return here
        for parent in self.start.parents:
            folder = parent / STATE_FOLDER
            if self._owner(folder) == self.uid and self._owner(folder / "secrets") == self.uid:
                return folder
        return here

    def _records(self, folder: Path, url: str) -> bool:
        found = self._recorded(folder)
        return found is not None and found.url == url

    def _login(self) -> ClusterAddress | None:
        current = self.logins.current()
        if current is None:
            self.tried.append(f"{self.logins.path} (no login)")
            return None
        url, token = current
        return ClusterAddress(url, token, f"det login ({self.logins.path})", certificate=self.logins.certificate(url))

    def _mine(self, path: Path) -> bool:
        return self._owner(path) in {self.uid, 0}

    def _owner(self, path: Path) -> int | None:
        try:
            return path.stat().st_uid
        except OSError:
            return None

    def _recorded(self, folder: Path) -> ClusterAddress | None:
        """Return the cluster that a state folder records, if folder and files are this user's or root's."""
        record, secret = folder / "cluster.json", folder / "secrets" / "user_token"
        if not (self._mine(folder) and self._mine(record)):
            return None
        try:
            data: Any = json.loads(record.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        url = data.get("url") or data.get("service_url") if isinstance(data, dict) else None
        if not isinstance(url, str):
            return None
        token: str | None = None
        if self._mine(secret):
            try:
                token = secret.read_text(encoding="utf-8").strip() or None
            except OSError:
                token = None  # root's folder: another user brings a token of their own (DET_TOKEN)
        base = service_url(url)
        pinned = data.get("certificate")
        return ClusterAddress(
            base,
            token or self.logins.token(base),
            f"the folder {folder}",
            folder,
            pinned if isinstance(pinned, str) and pinned else None,
        )


def started_folders(notes: Path) -> list[Path]:
    """Return the state folders of all clusters that this user started on this machine, the latest first."""
    try:
        lines = (notes / STARTED_NOTE).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    return [Path(line) for line in lines if Path(line).is_absolute()]


def _leads_to(address: str, wanted: str) -> bool:
    try:
        return service_url(address) == wanted
    except ClusterNotFound:  # nonsense in DET_URL does no harm to who names a cluster
        return False


def find_cluster(url: str | None = None, token: str | None = None) -> ClusterAddress:
    """Return the cluster that a command run here would talk to (see the module's text for the order).

    Raises:
        ClusterNotFound: Nothing names a cluster.
        ClusterUnreachable: The nearest state folder's cluster has been shut down, and there is no other.
    """
    return Discovery.default().find(url, token)


def with_token(address: ClusterAddress) -> ClusterAddress:
    """Return the address if there is a token for it.

    Raises:
        AuthError: There is no token for it.
    """
    if address.token:
        return address
    raise AuthError(
        f"no token for {address.url} (named by {address.source})",
        hint=f"Log in: det login {word(address.url)}\nor set DET_TOKEN",
    )
