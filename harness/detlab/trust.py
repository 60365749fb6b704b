"""Which server is trusted as the master over TLS: the holder of a pinned certificate, or else what the system trusts.

A *pin* is the master's own certificate, kept as PEM text. With one, only the holder of its key is trusted, under any
name; one that may sign others (an authority's) is trusted for those only under the name that was requested.
Without a pin, a certificate must come from an authority of the system (SSL_CERT_FILE counts), for that name. A pin is
passed on by its *fingerprint*, `sha256:` and 64 hexadecimal digits: in the string by which an agent enrols, and to
`det login`.

Only the standard library is imported here, and `ssl` itself when it is needed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from detlab.errors import DetlabError, UntrustedMaster

if TYPE_CHECKING:
    import ssl

VARIABLE = "DET_MASTER_CERT_FILE"
"""Environment variable that names the file of the pinned certificate; tasks of a pinned agent have it."""
_PREFIX = "sha256:"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_MARK = "@"
"""Between token and fingerprint; in neither."""
_MOST = 64 * 1024


def parse_fingerprint(text: str) -> str:
    """Return a fingerprint in our form, `sha256:…`; the text may also be `AB:CD:…` as openssl prints it.

    Raises:
        DetlabError: The text is not a fingerprint.
    """
    said = text.strip().lower().removeprefix("sha256 fingerprint=").removeprefix(_PREFIX).replace(":", "")
    if not _DIGEST.fullmatch(said):
        raise DetlabError(
            f"{text[:100]!r} is not a fingerprint: it must be sha256: and 64 hexadecimal digits",
            hint="det up and det status print the cluster's",
        )
    return _PREFIX + said


def fingerprint_of(certificate: str) -> str:
    """Return the fingerprint of the first certificate in a PEM text.

    Raises:
        DetlabError: The text contains no certificate.
    """
    import ssl

    block = _BLOCK.search(certificate)
    try:
        data = ssl.PEM_cert_to_DER_cert(block.group()) if block else b""
    except ValueError:
        data = b""
    if not data:
        raise DetlabError("not a certificate: it has no block BEGIN CERTIFICATE")
    return _PREFIX + hashlib.sha256(data).hexdigest()


def read_certificate(path: Path) -> str:
    """Return the PEM text of a certificate's file.

    Raises:
        DetlabError: The file cannot be read, or contains no certificate.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MOST).decode("ascii", "replace")
        block = _BLOCK.search(text)
        fingerprint_of(text)
    except OSError as error:
        raise DetlabError(f"the certificate {path} cannot be read: {error.strerror}") from error
    except DetlabError as error:
        raise DetlabError(f"{path}: {error.message}") from error
    assert block is not None
    return block.group() + "\n"


def join_enrolment(token: str, fingerprint: str | None) -> str:
    """Return the string by which an agent enrols: the token, and the fingerprint that it is to pin."""
    return f"{token}{_MARK}{fingerprint}" if fingerprint else token


def split_enrolment(text: str) -> tuple[str, str | None]:
    """Return token and fingerprint of such a string.

    Raises:
        DetlabError: The part after the token is not a fingerprint.
    """
    token, mark, fingerprint = text.strip().partition(_MARK)
    return token, parse_fingerprint(fingerprint) if mark else None


def pinning(certificate: str) -> ssl.SSLContext:
    """Return a context that trusts only the holder of this certificate's key.

    A certificate that may sign others is also trusted for what it signed, and so only under the requested name:
    otherwise anyone with a certificate of the same authority would pass as the master.

    Raises:
        DetlabError: The text contains no certificate.
    """
    import ssl

    fingerprint_of(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN  # itself, without those who signed it
    block = _BLOCK.search(certificate)
    assert block is not None
    context.load_verify_locations(cadata=block.group())
    # OpenSSL's own word on what may sign others. Where it may not, the holder of the key is meant, under any name.
    context.check_hostname = context.cert_store_stats()["x509_ca"] > 0
    return context


def naming(certificate: str) -> str:
    """Return what a message about a refused pin has to add: that the name was looked at, too; else nothing."""
    if not pinning(certificate).check_hostname:
        return ""
    return " for that name (it may sign others, so that the name counts)"


def trust_for(
    url: str, certificate: str | None = None, *, environ: Mapping[str, str] = os.environ
) -> bool | ssl.SSLContext:
    """Return the value of httpx's `verify` for the master at an address.

    False for plain http, where no certificate is shown and loading the system's would take 50 ms for nothing.

    Args:
        url: Address of the master.
        certificate: The pinned one; without it the one that the environment names for this master, if it names one.
        environ: Environment variables.

    Raises:
        DetlabError: The file that the variable names contains no certificate.
    """
    if url.startswith("http:"):
        return False
    pinned = certificate or environment_certificate(url, environ)
    return pinning(pinned) if pinned else _system()


def environment_certificate(url: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the certificate that DET_MASTER_CERT_FILE names, None if it is not set or is not for this address.

    It is for the clusters that DET_MASTER and DET_URL name by https, and for every address where neither does.

    Raises:
        DetlabError: The file cannot be read: no connection is better than one that trusts another certificate.
    """
    name = environ.get(VARIABLE)
    if not name or not url.startswith("https:"):
        return None
    named = [said for said in (environ.get("DET_MASTER", ""), environ.get("DET_URL", "")) if said.startswith("https:")]
    if named and _origin(url) not in map(_origin, named):
        return None
    return read_certificate(Path(name))


def _origin(url: str) -> tuple[str | None, int | None]:
    try:
        parts = urlsplit(url)
        return parts.hostname, parts.port or 443
    except ValueError:  # nonsense in the environment names nobody
        return None, None


def tls_context(url: str, certificate: str | None = None) -> ssl.SSLContext | None:
    """Return the TLS context of a connection to an address, also where httpx would need none; None for plain http.

    Raises:
        DetlabError: See `trust_for`.
    """
    trust = trust_for(url, certificate)
    if trust is True:
        import ssl

        return ssl.create_default_context()
    return trust or None


def system_trust(url: str) -> bool | ssl.SSLContext:
    """Return what httpx takes as `verify` for a server that is no master, such as the Hub; False for plain http."""
    return False if url.startswith("http:") else _system()


def _system() -> bool | ssl.SSLContext:
    """Return what the system trusts, SSL_CERT_FILE included; True, for what httpx brings, where it keeps nothing."""
    import ssl

    kept = ssl.get_default_verify_paths()
    return ssl.create_default_context() if kept.cafile or (kept.capath and _holds(kept.capath)) else True


def _holds(folder: str) -> bool:
    try:
        return any(Path(folder).iterdir())  # where a system has OpenSSL and no certificates, it is there and empty
    except OSError:
        return False


def shown_certificate(url: str, *, timeout: float = 10.0) -> str:
    """Return the certificate that a server shows, without trusting it or sending it anything.

    Raises:
        UntrustedMaster: The server does not speak TLS, so it shows no certificate.
        OSError: The server cannot be reached.
    """
    import ssl

    parts = urlsplit(url)
    try:
        return ssl.get_server_certificate((parts.hostname or "", parts.port or 443), timeout=timeout)
    except ssl.SSLError as error:
        raise UntrustedMaster(
            f"{url} shows no certificate: it does not speak TLS ({error.reason or error})",
            hint="Compare the address and the port with the output of det up",
        ) from error


def is_known_to_system(url: str, *, timeout: float = 10.0) -> bool:
    """Whether an authority that this system trusts vouches for the server at an https address, under its name."""
    import socket
    import ssl

    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        with (
            socket.create_connection((host, parts.port or 443), timeout) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=host),
        ):
            return True
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        return False


def accept(url: str, fingerprint: str, *, timeout: float = 10.0) -> str:
    """Return the certificate of the server at an address if it is the one with this fingerprint.

    Raises:
        UntrustedMaster: The server shows another certificate.
        OSError: The server cannot be reached.
    """
    shown = shown_certificate(url, timeout=timeout)
    found = fingerprint_of(shown)
    if found != fingerprint:
        raise UntrustedMaster(
            f"{url} shows the certificate {found}, not {fingerprint}: it was renewed since, or the connection "
            "is intercepted",
            hint="Compare with the output of det status on the master's machine, and continue only if it is the same",
        )
    return shown


def is_refusal(error: BaseException | None) -> bool:
    """Whether an error is, or was caused by, a certificate that is not trusted."""
    import ssl

    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(error):
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False
