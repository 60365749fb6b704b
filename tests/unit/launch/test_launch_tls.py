"""Certificates are left unread only where there are none, however the address is written."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from detlab.core.session import TaskSession
from detlab.launch.delivery.sender import HttpTransport


@pytest.mark.parametrize(("scheme", "verified"), [("https", True), ("HTTPS", True), ("Https", True), ("http", False)])
def test_the_master_shows_a_certificate_wherever_there_is_tls(scheme: str, verified: bool, tmp_path: Path) -> None:
    transport = HttpTransport(f"{scheme}://hub.example/services/detlab/api/v1/")
    session = TaskSession(f"{scheme}://hub.example/services/detlab/api/v1/", tmp_path)
    for client in (transport._client, session._client()):
        context: ssl.SSLContext = client._transport._pool._ssl_context  # type: ignore[attr-defined]  # httpx tells it nowhere else
        assert (context.verify_mode is ssl.CERT_REQUIRED) is verified
        client.close()
