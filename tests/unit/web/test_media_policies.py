"""The content policies under which what users wrote is sent: never with the power of the page's own origin."""

from __future__ import annotations

import pytest

from detlab_hub.web.experiments.media import FILE_POLICY, document_policy, file_name
from detlab_hub.web.files import asked_range
from detlab_hub.web.pages import POLICY
from detlab_server.relay import DOWNLOAD_POLICY, _policy

POWERS = ("allow-same-origin", "allow-top-navigation", "allow-popups", "allow-forms", "allow-modals", "http:", "https:")


@pytest.mark.parametrize(
    "policy", [document_policy(scripts=False), document_policy(scripts=True), FILE_POLICY, DOWNLOAD_POLICY]
)
def test_what_users_wrote_has_an_origin_of_its_own_and_loads_nothing(policy: str) -> None:
    first, *rest = policy.split("; ")
    assert first in {"sandbox", "sandbox allow-scripts"}
    assert rest[0] == "default-src 'none'"
    assert not [power for power in POWERS if power in policy]
    assert "connect-src" not in policy


def test_scripts_run_only_if_asked_for() -> None:
    assert "script" not in document_policy(scripts=False)
    assert "script-src 'unsafe-inline'" in document_policy(scripts=True)


def test_the_page_frames_and_plays_its_own_addresses_alone() -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";") if " " in rule.strip())
    assert rules["frame-src"] == rules["media-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
    assert rules["img-src"] == "'self' data:"


@pytest.mark.parametrize(
    "said",
    [
        "",
        "default-src 'none'",
        "default-src 'none'; sandbox",
        "sandbox allow-same-origin",
        "sandbox allow-scripts allow-same-origin; default-src 'none'",
        "sandbox allow-top-navigation",
        "script-src *",
    ],
)
def test_the_relay_sets_its_own_policy_where_the_master_has_none_that_holds(said: str) -> None:
    assert _policy(said) == DOWNLOAD_POLICY


@pytest.mark.parametrize("scripts", [False, True])
def test_the_relay_passes_on_the_policy_of_a_document(scripts: bool) -> None:
    assert _policy(document_policy(scripts=scripts)) == document_policy(scripts=scripts)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("", range(10)),
        ("bytes=0-", range(10)),
        ("bytes=0-0", range(1)),
        ("bytes=2-4", range(2, 5)),
        ("bytes=9-999999", range(9, 10)),
        ("bytes=10-", range(10)),
        ("bytes=4-2", range(10)),
        ("bytes=-3", range(10)),
        ("bytes=0-1,3-4", range(10)),
        ("bytes=0-1\r\nX: y", range(10)),
        ("bytes=99999999999999999999-", range(10)),
        ("items=0-1", range(10)),
    ],
)
def test_a_range_is_what_can_be_sent_or_all(said: str, expected: range) -> None:
    assert asked_range(said, 10) == expected
    assert asked_range(said, 0) == range(0)


@pytest.mark.parametrize("key", ["../../x", "a\r\nb", '"; filename="x.exe', "ключ", "", "." * 50, "a" * 500])
def test_a_downloads_name_is_plain_whatever_the_key_is(key: str) -> None:
    from detlab.schemas.wire.media import MediaView

    view = MediaView(id=1, trial_id=7, step=3, key=key, kind="image", media_type="image/png", place=2)
    name = file_name(view)
    assert name.startswith("trial-7-")
    assert name.endswith("-step-3-2.png")
    assert name.replace("-", "").replace(".png", "").isalnum()
    assert len(name) < 120
