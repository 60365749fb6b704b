"""What an agent believes, and by which address its tasks reach the master."""

from __future__ import annotations

import asyncio
import json
import ssl
import stat
from pathlib import Path
from typing import Any, NoReturn, cast

import httpx
import pytest
from tornado.httpclient import HTTPClientError

from detlab import trust
from detlab.backoff import Backoff
from detlab.errors import DetlabError, UntrustedMaster
from detlab_agent.connection import Connector
from detlab_agent.endpoints import PIN_FILE, Endpoints, UnsafeMaster, find_endpoints
from detlab_agent.enrolment import KeyRing, MasterAway, NotEnrolled
from detlab_agent.tasks import TaskTable
from testbed.network.tls_peers import make_pair, tls_peer

REPLY = b'{"agent_id": "node-1", "token": "dtagent_new"}'
ENROLLED = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(REPLY), REPLY)


def pinned(folder: Path, base: str) -> Endpoints:
    certificate, _ = make_pair(folder, "pin")
    return Endpoints(base, certificate)


@pytest.mark.parametrize(
    ("base", "said", "found"),
    [
        ("https://hub:8642/s/", "http://127.0.0.1:9/s/", "https://hub:8642/s/"),
        ("https://hub:8642/s/", "http://hub:8643/s/", "https://hub:8642/s/"),
        ("https://hub:8642/s/", "https://other/s/", "https://hub:8642/s/"),
        ("https://127.0.0.1:8642/s/", "http://127.0.0.1:8643/s/", "https://127.0.0.1:8642/s/"),
        ("http://hub:8643/s/", "http://127.0.0.1:9/s/", "http://hub:8643/s/"),
        ("http://127.0.0.1:8/s/", "http://127.0.0.1:9/s/", "http://127.0.0.1:9/s/"),
        ("http://127.0.0.1:8/s/", "https://hub:8642/s/", "https://hub:8642/s/"),
    ],
)
def test_tasks_reach_the_master_as_it_says_unless_by_its_own_loopback_or_without_their_agents_tls(
    base: str, said: str, found: str
) -> None:
    assert Endpoints(base).as_reached(said) == found


def test_tasks_of_a_pinned_agent_reach_it_where_the_pin_is_good(tmp_path: Path) -> None:
    assert pinned(tmp_path, "https://hub:8642/s/").as_reached("https://other/s/") == "https://hub:8642/s/"


def test_the_certificate_of_an_agents_environment_is_its_tasks_pin_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such an agent was connected, and its tasks were not."""
    named, _ = make_pair(tmp_path, "named")
    monkeypatch.setenv(trust.VARIABLE, str(named))
    agent = Endpoints("https://hub:8642/s/", tmp_path / PIN_FILE)
    assert agent.pinned == trust.read_certificate(named)
    monkeypatch.setenv("DET_URL", "https://another")
    assert agent.pinned is None
    monkeypatch.delenv("DET_URL")
    own, _ = make_pair(tmp_path, "own")
    own.rename(tmp_path / PIN_FILE)
    assert agent.pinned == trust.read_certificate(tmp_path / PIN_FILE) != trust.read_certificate(named)


def test_the_certificate_of_the_environment_stands_in_no_enrolments_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(trust.VARIABLE, str(make_pair(tmp_path, "named")[0]))
    with tls_peer(tmp_path) as peer:
        agent = find_endpoints(peer.url, pin_file=tmp_path / PIN_FILE)
        agent.pin(peer.fingerprint)
        assert agent.pinned == peer.certificate


def test_the_clusters_own_agent_has_a_pin_for_its_tasks_and_dials_plainly(tmp_path: Path) -> None:
    own = pinned(tmp_path, "http://127.0.0.1:8/s/")
    assert own.trust() is False
    assert own.context() is None
    assert own.as_reached("http://127.0.0.1:8/s/") == "http://127.0.0.1:8/s/"


def test_plain_http_to_another_machine_stays_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafeMaster):
        find_endpoints("http://hub:8642", pin_file=tmp_path / PIN_FILE)
    assert find_endpoints("http://127.0.0.1:8642").pinned is None


def ring(folder: Path, url: str, enrolment: str) -> KeyRing:
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(f"{enrolment}\n")
    return KeyRing(folder / "key.json", "node-1", find_endpoints(url, pin_file=folder / PIN_FILE), token)


async def test_the_pin_is_kept_before_the_token_is_sent_and_the_token_goes_without_it(tmp_path: Path) -> None:
    with tls_peer(tmp_path, "master", answer=ENROLLED) as peer:
        keys = ring(tmp_path, peer.url, f"dtenrol_abc@{peer.fingerprint}")
        assert await keys.ensure() == "dtagent_new"
        assert any(b"Bearer dtenrol_abc\r\n" in heard for heard in peer.heard)
    kept = tmp_path / PIN_FILE
    assert trust.read_certificate(kept) == peer.certificate
    assert stat.S_IMODE(kept.stat().st_mode) == 0o644, "tasks of every user read a copy; it is no secret"


async def test_another_certificate_at_enrolment_ends_it_before_the_token_is_sent(tmp_path: Path) -> None:
    with tls_peer(tmp_path) as peer:
        keys = ring(tmp_path, peer.url, "dtenrol_abc@sha256:" + "1" * 64)
        with pytest.raises(NotEnrolled, match="connection is intercepted"):
            await keys.ensure()
        assert peer.heard == []
    assert not (tmp_path / PIN_FILE).exists()


async def test_an_enrolment_token_does_not_replace_a_pin(tmp_path: Path) -> None:
    """Else whoever makes the master refuse a key could have another certificate believed."""
    kept, _ = make_pair(tmp_path, "kept")
    kept.rename(tmp_path / PIN_FILE)
    with tls_peer(tmp_path) as peer:
        keys = ring(tmp_path, peer.url, f"dtenrol_abc@{peer.fingerprint}")
        with pytest.raises(NotEnrolled, match="det agent pin"):
            await keys.enrol()
        assert peer.heard == []


async def test_a_pin_is_not_for_plain_http_and_an_absent_master_is_away(tmp_path: Path) -> None:
    fingerprint = "sha256:" + "1" * 64
    with pytest.raises(NotEnrolled, match="plain http"):
        await ring(tmp_path, "http://127.0.0.1:9", f"dtenrol_abc@{fingerprint}").ensure()
    with pytest.raises(MasterAway):
        await ring(tmp_path, "https://127.0.0.1:9", f"dtenrol_abc@{fingerprint}").ensure()
    with pytest.raises(NotEnrolled, match="not a fingerprint"):
        await ring(tmp_path, "https://127.0.0.1:9", "dtenrol_abc@sha256:12").ensure()


async def test_without_a_pin_an_unknown_authority_is_no_master(tmp_path: Path) -> None:
    with tls_peer(tmp_path) as peer:
        with pytest.raises(NotEnrolled, match="no authority that this machine trusts"):
            await ring(tmp_path, peer.url, "dtenrol_abc").ensure()
        assert peer.heard == []


def test_a_damaged_pin_is_no_reason_to_trust_anybody(tmp_path: Path) -> None:
    (tmp_path / PIN_FILE).write_text("")
    endpoints = Endpoints("https://hub/s/", tmp_path / PIN_FILE)
    for ask in (endpoints.trust, endpoints.context, lambda: endpoints.pin("sha256:" + "1" * 64)):
        with pytest.raises(DetlabError, match="not a certificate"):
            ask()


@pytest.mark.soak
def test_who_speaks_no_tls_shows_no_certificate(tmp_path: Path) -> None:
    from detlab.testing.master import MasterDouble

    with MasterDouble() as master:
        url = master.url.replace("http:", "https:")
        with pytest.raises((UntrustedMaster, OSError)):
            trust.accept(url, "sha256:" + "1" * 64)
        assert httpx.get(master.url, trust_env=False).status_code < 500  # it serves on, in its own way


@pytest.mark.parametrize("refusal", [HTTPClientError(401), ssl.SSLCertVerificationError("unknown")])
async def test_a_pin_that_is_damaged_while_the_master_refuses_us_does_not_end_the_agent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, refusal: Exception
) -> None:
    """What was raised while another error was seen to passed the handlers beside it by."""
    kept, _ = make_pair(tmp_path, "kept")
    kept.rename(tmp_path / PIN_FILE)
    keys = ring(tmp_path, "https://127.0.0.1:9", "dtenrol_abc")
    keys.path.write_text(json.dumps({"agent_id": "node-1", "token": "old"}))

    async def refused(*_: object) -> NoReturn:
        (tmp_path / PIN_FILE).write_text("")
        raise refusal

    connector = Connector(keys.endpoints, keys, cast(TaskTable, None), cast(Any, None), Backoff(first=0.0, cap=0.01))
    connector.dial = refused
    running = asyncio.create_task(connector.run())
    try:
        async with asyncio.timeout(20):
            while "not a certificate" not in caplog.text and not running.done():
                await asyncio.sleep(0.01)
        assert not running.done()
        assert "not connected" in caplog.text
    finally:
        running.cancel()
        await asyncio.wait([running])
