"""Pinning the master's certificate, for `det login`, `det agent enrol` and `det agent pin`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from detlab.cli.output.printing import clean, say
from detlab.client.transport.discovery import service_url
from detlab.errors import DetlabError
from detlab.files import write_atomic
from detlab.trust import accept, fingerprint_of, is_known_to_system, parse_fingerprint, read_certificate

if TYPE_CHECKING:
    from detlab.client.client import Client

AGENT_PIN = "master.pem"
"""Where an agent keeps it, in its directory."""


def agents_way(client: Client) -> tuple[str, str | None]:
    """Return the address by which agents reach the master, and the fingerprint that they have to pin there.

    None for an address that the system's authorities vouch for: such a certificate is renewed often, and needs no pin.
    """
    url = client.get_cluster().url or client.address.url
    pinned = client.address.certificate
    if pinned is None or not url.startswith("https:") or is_known_to_system(url):
        return url, None
    return url, fingerprint_of(pinned)


def chosen_pin(url: str, fingerprint: str | None, certificate: Path | None) -> str | None:
    """Return the certificate (PEM) that a person named by its fingerprint or its file, None if by neither.

    Raises:
        DetlabError: The server shows another certificate or cannot be reached, or an argument is invalid.
    """
    if fingerprint is None and certificate is None:
        return None
    if not url.startswith("https:"):
        raise DetlabError(f"{url} is plain http: there is no certificate to pin", hint="Give its https address")
    said = parse_fingerprint(fingerprint) if fingerprint else None
    if certificate is not None:
        pem = read_certificate(certificate)
        if said is not None and fingerprint_of(pem) != said:
            raise DetlabError(f"{certificate} does not have the fingerprint {said}", hint="Give one of the two")
        return pem
    assert said is not None
    try:
        return accept(url, said)
    except OSError as error:
        raise DetlabError(
            f"no answer from {url}: {error}", hint="Check the address and that the cluster runs"
        ) from error


def _agent_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_state_dir("detlab")) / "agent"


@click.command()
@click.argument("url")
@click.option(
    "--dir",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=_agent_folder,
    show_default="~/.local/state/detlab/agent",
    help="The agent's state.",
)
@click.option(
    "--fingerprint",
    required=True,
    metavar="SHA256",
    help="Fingerprint of the current certificate: det status prints it.",
)
def pin(url: str, directory: Path, fingerprint: str) -> None:
    """Pin the master's new certificate for an agent on this machine, after it was renewed.

    The agent keeps its key and reconnects by itself. Running tasks keep the old certificate: their reports are
    delivered when they end.

    \b
    Example:
      det agent pin https://node-1:8642 --fingerprint sha256:…
    """
    address = service_url(url)
    found = chosen_pin(address, fingerprint, None)
    assert found is not None
    path = directory / AGENT_PIN
    write_atomic(path, found.encode("ascii"), mode=0o644, durable=True)
    say(clean(f"The agent in {directory} now accepts {address} only with the certificate {fingerprint_of(found)}."))
