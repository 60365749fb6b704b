"""Pins and fingerprints: how they are written, what a pinned connection believes, what is said when it does not."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from detlab import trust
from detlab.client.client import Client
from detlab.client.transport.discovery import ClusterAddress, Discovery
from detlab.client.transport.logins import Logins
from detlab.errors import ClusterUnreachable, DetlabError, UntrustedMaster
from testbed.network.tls_peers import Authority, make_pair, tls_peer

DIGEST = "0123456789abcdef" * 4
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


@pytest.mark.parametrize(
    "text",
    [
        f"sha256:{DIGEST}",
        f"  SHA256:{DIGEST.upper()}\n",
        ":".join(DIGEST[at : at + 2].upper() for at in range(0, 64, 2)),
        "sha256 Fingerprint=" + ":".join(DIGEST[at : at + 2] for at in range(0, 64, 2)),
    ],
)
def test_a_fingerprint_is_read_as_people_and_openssl_write_it(text: str) -> None:
    assert trust.parse_fingerprint(text) == f"sha256:{DIGEST}"


@pytest.mark.parametrize("text", ["", "sha256:", DIGEST[:-1], DIGEST + "0", f"md5:{DIGEST}", "sha256:…"])
def test_what_is_no_fingerprint_is_refused(text: str) -> None:
    with pytest.raises(DetlabError, match="not a fingerprint"):
        trust.parse_fingerprint(text)


def test_the_fingerprint_is_that_of_openssl(tmp_path: Path) -> None:
    certificate, _ = make_pair(tmp_path, "a")
    said = subprocess.run(
        ["openssl", "x509", "-in", str(certificate), "-noout", "-fingerprint", "-sha256"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert trust.parse_fingerprint(said.stdout) == trust.fingerprint_of(trust.read_certificate(certificate))


def test_an_enrolment_string_carries_the_pin_or_none() -> None:
    joined = trust.join_enrolment("dtenrol_a-b_c", f"sha256:{DIGEST}")
    assert trust.split_enrolment(f"{joined}\n") == ("dtenrol_a-b_c", f"sha256:{DIGEST}")
    assert trust.split_enrolment(trust.join_enrolment("dtenrol_a", None)) == ("dtenrol_a", None)
    with pytest.raises(DetlabError):
        trust.split_enrolment("dtenrol_a@sha256:12")


def test_a_file_without_a_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("nothing")
    with pytest.raises(DetlabError, match=r"no\.pem: not a certificate"):
        trust.read_certificate(tmp_path / "no.pem")
    with pytest.raises(DetlabError, match="cannot be read"):
        trust.read_certificate(tmp_path / "missing.pem")
    with pytest.raises(DetlabError, match="cannot be read"):
        trust.trust_for("https://x/", environ={trust.VARIABLE: str(tmp_path / "missing.pem")})


def test_plain_http_needs_no_trust_whatever_is_pinned(tmp_path: Path) -> None:
    assert trust.trust_for("http://127.0.0.1:1/", environ={trust.VARIABLE: str(tmp_path / "missing.pem")}) is False
    assert isinstance(trust.trust_for("https://hub.example.org/", environ={}), ssl.SSLContext)


def test_a_pin_believes_its_own_certificate_and_no_other(tmp_path: Path) -> None:
    with tls_peer(tmp_path, answer=HELLO) as peer:
        own, _ = make_pair(tmp_path, "another")
        for believed, heard in ((peer.certificate, 1), (trust.read_certificate(own), 1), (None, 1)):
            with httpx.Client(verify=trust.trust_for(peer.url, believed, environ={}), trust_env=False) as client:
                if believed == peer.certificate:
                    assert client.get(peer.url).text == "ok"
                else:
                    with pytest.raises(httpx.ConnectError) as caught:
                        client.get(peer.url)
                    assert trust.is_refusal(caught.value)
            assert len(peer.heard) == heard


def test_a_pin_is_believed_under_a_name_that_the_certificate_does_not_have(tmp_path: Path) -> None:
    with (
        tls_peer(tmp_path, answer=HELLO, hosts=("elsewhere.example",)) as peer,
        httpx.Client(verify=trust.pinning(peer.certificate), trust_env=False) as client,
    ):
        assert client.get(peer.url).text == "ok"


@pytest.mark.parametrize("san", ["127.0.0.1", "mallory.example"])
def test_a_pinned_authority_is_no_word_for_everybody_whom_it_has_signed(tmp_path: Path, san: str) -> None:
    """Else whoever has a certificate of the same authority, for whatever name, could stand in between."""
    authority = Authority()
    with (
        tls_peer(tmp_path, answer=HELLO, pair=authority.sign(tmp_path, san)) as peer,
        httpx.Client(verify=trust.pinning(authority.certificate), trust_env=False) as client,
    ):
        if san == "127.0.0.1":
            assert client.get(peer.url).text == "ok"
        else:
            with pytest.raises(httpx.ConnectError) as caught:
                client.get(peer.url)
            assert trust.is_refusal(caught.value)
            assert peer.heard == []
            address = ClusterAddress(f"{peer.url}/services/detlab/", "t", "a test", certificate=authority.certificate)
            assert "for that name" in str(address.untrusted())


def test_a_pinned_leaf_of_an_authority_is_believed_alone_and_under_whatever_name(tmp_path: Path) -> None:
    authority = Authority()
    good, bad = (authority.sign(tmp_path, name) for name in ("hub.example", "mallory.example"))
    with httpx.Client(verify=trust.pinning(trust.read_certificate(good[0])), trust_env=False) as client:
        with tls_peer(tmp_path, answer=HELLO, pair=good) as peer:
            assert client.get(peer.url).text == "ok"
        with tls_peer(tmp_path, answer=HELLO, pair=bad) as peer, pytest.raises(httpx.ConnectError):
            client.get(peer.url)


def test_a_certificate_of_detlabs_own_making_can_sign_nobody(tmp_path: Path) -> None:
    assert not trust.pinning(trust.read_certificate(make_pair(tmp_path, "own")[0])).check_hostname


def test_the_systems_authorities_count_where_a_client_has_no_use_for_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """trust_env=False made httpx pass over SSL_CERT_FILE, and believe the authorities of a package of Python."""
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with tls_peer(tmp_path, answer=HELLO, pair=authority.sign(tmp_path, "127.0.0.1")) as peer:
        for verify in (trust.trust_for(peer.url, environ={}), trust.system_trust(peer.url)):
            with httpx.Client(verify=verify, trust_env=False) as client:
                assert client.get(peer.url).text == "ok"


@pytest.mark.parametrize("folder", [True, False])
def test_a_system_that_keeps_no_certificates_gets_those_of_httpx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: bool
) -> None:
    kept = ssl.get_default_verify_paths()._replace(cafile=None, capath=str(tmp_path) if folder else None)
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: kept)
    assert trust.system_trust("https://hub.example.org/") is True
    assert isinstance(trust.tls_context("https://hub.example.org/"), ssl.SSLContext)


def test_the_environments_pin_is_for_the_cluster_that_it_names(tmp_path: Path) -> None:
    certificate, _ = make_pair(tmp_path, "env")
    pem = trust.read_certificate(certificate)

    def found(url: str, **environ: str) -> bool:
        return trust.environment_certificate(url, {**environ, trust.VARIABLE: str(certificate)}) == pem

    a = "https://a.example.org/services/detlab/"
    assert found("https://a.example.org:443/services/detlab/api/v1/task/activity", DET_MASTER=a)
    assert not found("https://b.example.org/", DET_MASTER=a)
    assert not found("https://a.example.org:8642/", DET_MASTER=a)
    assert found("https://b.example.org/", DET_MASTER=a, DET_URL="https://b.example.org")
    assert found("https://b.example.org/")
    assert found("https://b.example.org/", DET_MASTER="http://127.0.0.1:8643/"), "which no certificate is for"
    assert not found("https://b.example.org/", DET_MASTER=a, DET_URL="https://b:nonsense")
    other = trust.trust_for("https://b.example.org/", environ={trust.VARIABLE: str(certificate), "DET_MASTER": a})
    assert isinstance(other, ssl.SSLContext)
    assert other.check_hostname


def test_a_certificate_is_accepted_by_its_fingerprint_and_nothing_is_sent_to_find_out(tmp_path: Path) -> None:
    with tls_peer(tmp_path) as peer:
        assert trust.accept(peer.url, peer.fingerprint) == peer.certificate
        with pytest.raises(UntrustedMaster, match=peer.fingerprint):
            trust.accept(peer.url, f"sha256:{DIGEST}")
        assert not trust.is_known_to_system(peer.url)
        assert peer.heard == []


def test_the_client_says_what_is_wrong_and_sends_nothing(tmp_path: Path) -> None:
    other = trust.read_certificate(make_pair(tmp_path, "another")[0])
    with tls_peer(tmp_path) as peer:
        url = f"{peer.url}/services/detlab/"
        for pin, words in ((other, "does not show the pinned certificate"), (None, "no authority")):
            client = Client(address=ClusterAddress(url, "secret", "a test", certificate=pin))
            with client, pytest.raises(UntrustedMaster, match=words) as caught:
                client.whoami()
            assert "--fingerprint" in str(caught.value)
            assert isinstance(caught.value, ClusterUnreachable)
        assert peer.heard == []
        assert peer.met == 2  # no second try: the answer would be the same


def test_where_a_pin_is_found(tmp_path: Path) -> None:
    pem = {name: trust.read_certificate(make_pair(tmp_path, name)[0]) for name in ("env", "login")}
    logins = Logins(tmp_path / "auth.json")
    logins.store("https://a/services/detlab/", "t", pem["login"])

    def find(url: str, **environ: str) -> str | None:
        return Discovery(environ, tmp_path, tmp_path / "none", logins, tmp_path.stat().st_uid).find(url).certificate

    env = str(tmp_path / "env.pem")
    assert find("https://a") == pem["login"]
    assert find("https://b") is None
    assert find("https://b", DET_MASTER_CERT_FILE=env) == pem["env"]
    assert find("https://a", DET_MASTER="https://b", DET_MASTER_CERT_FILE=env) == pem["login"]
    assert find("https://b", DET_MASTER="https://b", DET_MASTER_CERT_FILE=env) == pem["env"]
    assert find("http://b", DET_MASTER_CERT_FILE=env) is None
    logins.store("https://a/services/detlab/", "t")
    assert find("https://a") is None
