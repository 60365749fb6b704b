"""Webhooks in the master's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from traitlets.config import Config

from detlab.errors import DetlabError
from detlab_hub.app import DetHub
from detlab_hub.services.base.settings import Webhook
from detlab_hub.services.notify.configuration import read_webhooks


def test_what_is_configured_is_the_services_own(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    given = [{"url": "https://a.example/x", "events": ["model.label"], "secret": "s"}, {"url": "http://b.example"}]
    settings = DetHub(config=Config({"DetHub": {"state_dir": str(tmp_path), "webhooks": given}})).settings()
    assert settings.webhooks == (Webhook("https://a.example/x", ("model.label",), "s"), Webhook("http://b.example"))
    assert "'s'" not in repr(settings)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": "ftp://a.example"}, "begins with https"),
        ({"url": "https://"}, "begins with https"),
        ({"url": "https://[::1"}, "begins with https"),
        ({}, "begins with https"),
        ({"url": "https://a.example", "event": []}, "there is no key 'event'"),
        (
            {"url": "https://a.example", "events": ["model.labels"]},
            "there is no event 'model.labels', only model.label",
        ),
        ({"url": "https://a.example", "events": "model.label"}, "no list of names"),
        ({"url": "https://a.example", "secret": 7}, "`secret` is no text"),
    ],
)
def test_mistakes_are_said(given, said) -> None:
    _, errors = read_webhooks([given])
    assert said in "; ".join(errors)


def test_all_mistakes_are_said_at_once_without_the_secrets(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    given = [{"url": "x", "secret": "s3cret"}, {"url": "https://a.example"}, {"url": "https://a.example", "y": 1}]
    with pytest.raises(DetlabError) as refused:
        DetHub(config=Config({"DetHub": {"state_dir": str(tmp_path), "webhooks": given}})).settings()
    assert "webhook 0" in refused.value.message
    assert "webhook 2" in refused.value.message
    assert "s3cret" not in refused.value.message


@pytest.mark.parametrize(
    ("names", "wanted"),
    [(("*",), True), (("model.*",), True), (("model.label",), True), (("model",), False), ((), False)],
)
def test_which_events_are_told(names, wanted) -> None:
    assert Webhook("https://a.example", names).wants("model.label") is wanted
