"""Where the embedded cluster listens, and with which certificate: decided before anything is started."""

from __future__ import annotations

import asyncio
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from traitlets.config import Config

from detlab.errors import DetlabError
from detlab.trust import fingerprint_of, read_certificate
from detlab_agent.endpoints import Endpoints
from detlab_hub.app import DetHub
from detlab_hub.embedded import parts
from detlab_hub.embedded.front import AddressOptions, PublicFront, choose_front
from detlab_hub.embedded.settings import EmbeddedCluster, subdomain_host_of
from detlab_hub.embedded.state import StartPlan, StateFolder
from detlab_hub.services.base.server_certificates import ServerAuthority
from testbed.network.tls_peers import make_pair


@pytest.fixture(autouse=True)
def proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about arguments: they need neither node nor the proxy's program."""
    monkeypatch.setattr(parts, "find_proxy", lambda: ["node", parts.PROXY_PROGRAM])


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    found = StateFolder(tmp_path / "state")
    found.create()
    return found


def wishes(**said: object) -> EmbeddedCluster:
    return EmbeddedCluster(config=Config(EmbeddedCluster=said))


def plan(front: PublicFront) -> StartPlan:
    return StartPlan(8642, 1, 2, 3, "ann", **vars(front))


def test_loopback_needs_no_certificate(folder: StateFolder) -> None:
    found = plan(choose_front(folder, wishes(), AddressOptions()))
    assert (found.url, found.public_url, found.certificate) == ("http://127.0.0.1:8642",) * 2 + (None,)
    assert not folder.certificate_file.exists()


@pytest.mark.parametrize("ip", ["0.0.0.0", "::", "192.0.2.7"])
def test_beyond_loopback_plain_http_is_refused(folder: StateFolder, ip: str) -> None:
    with pytest.raises(DetlabError, match="can be reached from other machines") as caught:
        choose_front(folder, wishes(), AddressOptions(ip=ip))
    assert "--tls" in str(caught.value.hint)
    assert choose_front(folder, wishes(), AddressOptions(ip=ip, behind_tls_proxy=True)).certificate_file == ""
    assert choose_front(folder, wishes(ip=ip, behind_tls_proxy=True), AddressOptions()).ip == ip


def test_nonsense_is_no_address(folder: StateFolder) -> None:
    with pytest.raises(DetlabError, match="not an address to listen on"):
        choose_front(folder, wishes(), AddressOptions(ip="the-hub", tls=True))


def test_with_tls_it_is_https_everywhere(folder: StateFolder) -> None:
    found = plan(choose_front(folder, wishes(public_host="hub.example.org"), AddressOptions(ip="0.0.0.0", tls=True)))
    assert found.url == "https://127.0.0.1:8642"
    assert found.public_url == "https://hub.example.org:8642"
    proxy = parts._proxy(folder, found)
    assert proxy.argv[proxy.argv.index("--ip") + 1] == "0.0.0.0"
    assert proxy.argv[proxy.argv.index("--ssl-cert") + 1] == str(folder.certificate_file)
    inside = parts._master(folder, found).argv
    assert f"--DetHub.service_url={found.master_url}" in inside
    assert found.master_url.startswith("http://127.0.0.1:")  # nobody beyond this machine reaches that one


@pytest.mark.parametrize(
    ("said", "ip", "found"),
    [
        ({"public_host": "hub.example.org"}, "0.0.0.0", "https://hub.example.org"),
        ({"public_host": "hub.example.org"}, None, "https://hub.example.org"),
        ({"public_host": "2001:db8::7"}, "::", "https://[2001:db8::7]"),
        ({"public_url": "https://hub.example.org:8443/"}, "0.0.0.0", "https://hub.example.org:8443"),
        ({"public_url": "https://a", "public_host": "b"}, "0.0.0.0", "https://a"),
        ({}, None, "http://127.0.0.1:8642"),
    ],
)
def test_behind_a_server_that_speaks_tls_its_address_is_handed_out(
    folder: StateFolder, said: dict[str, str], ip: str | None, found: str
) -> None:
    """http and the port behind it were: passwords and tokens in the clear, past the server with TLS."""
    here = plan(choose_front(folder, wishes(**said), AddressOptions(ip=ip, behind_tls_proxy=True)))
    assert here.public_url == found
    assert f"--DetHub.public_url={found}" in parts._master(folder, here).argv
    assert here.bind_url.startswith("http://")
    assert here.bind_url.endswith(":8642")
    tasks = Endpoints(f"{found}/services/detlab/").as_reached(here.master_url)
    assert tasks == (f"{found}/services/detlab/" if found.startswith("https:") else here.master_url)


def test_with_tls_of_its_own_a_server_in_front_may_have_another_address(folder: StateFolder) -> None:
    said = wishes(public_url="https://hub.example.org", tls=True)
    found = plan(choose_front(folder, said, AddressOptions(behind_tls_proxy=True)))
    assert (found.public_url, found.bind_url) == ("https://hub.example.org", "https://127.0.0.1:8642")
    alone = plan(choose_front(folder, wishes(public_host="a", tls=True), AddressOptions(behind_tls_proxy=True)))
    assert alone.public_url == "https://a:8642"


@pytest.mark.parametrize(
    "url", ["hub.example.org", "https://", "ftp://a", "https://a/hub", "https://a:b", "https://u:p@a"]
)
def test_a_public_address_that_is_none_is_refused(folder: StateFolder, url: str) -> None:
    with pytest.raises(DetlabError, match="public_url is"):
        choose_front(folder, wishes(public_url=url), AddressOptions(behind_tls_proxy=True))


@pytest.mark.parametrize(
    ("ip", "found"),
    [
        ("0.0.0.0", "http://127.0.0.1:8643/"),
        ("::", "http://[::1]:8643/"),
        ("::1", "http://[::1]:8643/"),
        ("192.0.2.7", "http://192.0.2.7:8643/"),
    ],
)
def test_tasks_are_not_told_to_dial_everywhere(ip: str, found: str) -> None:
    """Whoever listens on 0.0.0.0 had its tasks dial that; agents elsewhere give theirs their own way."""
    said = DetHub(ip=ip, base_path="/").service_url
    assert said == found
    far = Endpoints("http://hub:8643/").as_reached(said)
    assert far == ("http://hub:8643/" if ip != "192.0.2.7" else found)


def test_the_certificate_is_made_once_and_its_key_is_nobodys(folder: StateFolder) -> None:
    first = choose_front(folder, wishes(tls=True), AddressOptions())
    assert stat.S_IMODE(folder.key_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.key_file.parent.stat().st_mode) == 0o700
    assert choose_front(folder, wishes(), AddressOptions(ip="::1", tls=True)).fingerprint == first.fingerprint
    renewed = choose_front(folder, wishes(tls=True), AddressOptions(renew_certificate=True))
    assert renewed.fingerprint != first.fingerprint
    assert renewed.fingerprint == fingerprint_of(read_certificate(folder.certificate_file))
    old, new = (parts._proxy(folder, plan(front)) for front in (first, renewed))
    assert old.argv == new.argv
    assert old.digest != new.digest, "a proxy that still shows the old one is started anew"


def test_ones_own_certificate_is_taken_and_needs_its_key(folder: StateFolder, tmp_path: Path) -> None:
    certificate, key = make_pair(tmp_path, "own")
    own = {"certificate_file": str(certificate), "key_file": str(key)}
    found = choose_front(folder, wishes(**own), AddressOptions())
    assert (found.certificate_file, found.key_file) == (str(certificate), str(key))
    assert not folder.certificate_file.exists()
    for missing in own:
        with pytest.raises(DetlabError, match="go together"):
            choose_front(folder, wishes(**{**own, missing: ""}), AddressOptions())


def test_a_master_refuses_to_listen_for_the_network_unless_tls_stands_before_it(tmp_path: Path) -> None:
    master = DetHub(ip="192.0.2.7", state_dir=str(tmp_path))
    with pytest.raises(DetlabError, match="speaks plain HTTP"):
        asyncio.run(master.serve(asyncio.Event()))
    assert list(tmp_path.iterdir()) == []
    behind = DetHub(ip="192.0.2.7", state_dir=str(tmp_path), behind_tls_proxy=True)
    with pytest.raises(DetlabError, match="no token for the Hub"):
        asyncio.run(behind.serve(asyncio.Event()))


def test_servers_on_other_nodes_have_an_authority_of_their_own(folder: StateFolder) -> None:
    assert choose_front(folder, wishes(), AddressOptions()).servers_certificate_file == ""
    found = plan(choose_front(folder, wishes(), AddressOptions(tls=True)))
    proxy, master = parts._proxy(folder, found), parts._master(folder, found)
    assert proxy.argv[proxy.argv.index("--client-ssl-ca") + 1] == str(folder.servers_certificate_file)
    assert "server_names.cjs" in proxy.extra_env["NODE_OPTIONS"]
    assert f"--DetHub.servers_key_file={folder.servers_key_file}" in master.argv
    assert stat.S_IMODE(folder.servers_key_file.stat().st_mode) == 0o600
    kept = folder.servers_certificate_file.read_text()
    choose_front(folder, wishes(), AddressOptions(tls=True, renew_certificate=True))
    assert folder.servers_certificate_file.read_text() == kept, "servers that run have what it signed"


@pytest.mark.parametrize("address", ["10.0.0.7", "2001:db8::7", "node-7.example.org"])
def test_a_servers_certificate_is_for_its_agents_address_alone(folder: StateFolder, address: str) -> None:
    choose_front(folder, wishes(), AddressOptions(tls=True))
    authority = ServerAuthority(folder.servers_certificate_file, folder.servers_key_file)
    assert authority.covers(address)
    texts = authority.issue(address)
    pair = folder.root / "one.pem", folder.root / "one_key.pem"
    for path, text in zip(pair, texts, strict=True):
        path.write_text(text)
    believing = ssl.create_default_context(cafile=str(folder.servers_certificate_file))
    assert shakes_hands(believing, pair, address)
    for another in ("10.0.0.8", "node-8.example.org"):
        assert not shakes_hands(believing, pair, another)
    assert not shakes_hands(believing, make_pair(folder.root, "own", address), address)


@pytest.mark.parametrize("address", [None, "", "127.0.0.1", "::1", "localhost"])
def test_a_server_on_the_masters_node_needs_none(folder: StateFolder, address: str | None) -> None:
    assert not ServerAuthority(folder.servers_certificate_file, folder.servers_key_file).covers(address)


def shakes_hands(believing: ssl.SSLContext, pair: tuple[Path, Path], name: str) -> bool:
    """Whether somebody with this pair is believed under a name; in memory."""
    showing = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    showing.load_cert_chain(*pair)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        believing.wrap_bio(to_client, to_server, server_hostname=name),
        showing.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return True


# --- a host name for each user ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("https://hub.example.org", "https://hub.example.org"),
        ("hub.example.org:8443", "https://hub.example.org:8443"),
        ("http://hub.test:8642/", "http://hub.test:8642"),
        ("", ""),
    ],
)
def test_the_address_below_which_users_have_names(said: str, found: str) -> None:
    assert subdomain_host_of(Config(JupyterHub={"subdomain_host": said})) == found
    assert subdomain_host_of(Config()) == ""


@pytest.mark.parametrize("said", ["https://127.0.0.1:8642", "https://[::1]", "https://localhost"])
def test_below_an_address_in_numbers_there_are_no_names(said: str) -> None:
    with pytest.raises(DetlabError, match="there can be no names") as caught:
        subdomain_host_of(Config(JupyterHub={"subdomain_host": said}))
    assert "hub.example.org" in str(caught.value.hint)


@pytest.mark.parametrize("said", ["https://hub.example.org/prefix", "ftp://hub.example.org", "https://a:b@hub.test"])
def test_what_is_no_address_of_a_hub_is_refused_with_the_name_of_the_setting(said: str) -> None:
    with pytest.raises(DetlabError, match=r"JupyterHub\.subdomain_host"):
        subdomain_host_of(Config(JupyterHub={"subdomain_host": said}))


def test_with_names_for_users_the_proxy_looks_at_host_and_the_service_stays_with_the_hub(folder: StateFolder) -> None:
    found = plan(choose_front(folder, wishes(), AddressOptions(tls=True), "https://hub.example.org"))
    assert found.public_url == "https://hub.example.org"
    assert "--host-routing" in parts._proxy(folder, found).argv
    assert "--host-routing" not in parts._proxy(folder, plan(choose_front(folder, wishes(), AddressOptions()))).argv
    assert {"hub.example.org", "127.0.0.1", "localhost"} <= set(found.hosts)
    names = x509.load_pem_x509_certificate(folder.certificate_file.read_bytes()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert {"hub.example.org", "*.hub.example.org"} <= set(names.value.get_values_for_type(x509.DNSName))


def test_another_public_address_than_that_of_the_names_is_kept(folder: StateFolder) -> None:
    found = plan(
        choose_front(folder, wishes(public_url="https://in.example.org"), AddressOptions(), "https://hub.example.org")
    )
    assert found.public_url == "https://in.example.org"
    assert {"in.example.org", "hub.example.org"} <= set(found.hosts)
