"""Which sources a withdrawal is about, and what it says."""

from __future__ import annotations

import pytest

from detlab.governance.withdrawals import Withdrawal, declared_in, matches, refusals_of

ONE, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64
DAY = 1_790_000_000.0


@pytest.mark.parametrize(
    ("manifest", "name", "declared", "covered"),
    [
        ("", "web", [], True),
        ("", "web", [ONE], True),
        ("", "other", [ONE], False),
        (ONE, "web", [ONE], True),
        (ONE, "web", [OTHER], False),
        (ONE, "web", [None], True),  # whoever does not say which data it is cannot show that it is not this
        (ONE, "web", [], True),
        (ONE, "web", [OTHER, None], True),
        (ONE, "renamed", [ONE], True),
        (ONE, "renamed", [None], False),
        (ONE, "renamed", [OTHER], False),
    ],
)
def test_a_name_or_a_manifest_is_withdrawn(manifest: str, name: str, declared: list[str | None], covered: bool) -> None:
    assert Withdrawal("web", manifest).covers(name, declared) is covered


def test_what_a_block_declares_is_read_whatever_it_is() -> None:
    block = {"sources": [{"name": "a", "manifest": ONE}, {"name": "b"}, {"name": 3}, "c"]}
    assert declared_in(block) == {"a": [ONE], "b": [None]}
    assert declared_in(None) == declared_in({"sources": "x"}) == declared_in([]) == {}


def test_a_refusal_says_who_when_and_why_once_for_each_source() -> None:
    held = [
        Withdrawal("web", "", "", "a takedown", "root", DAY),
        Withdrawal("web", "", "ada/vision", "another", "ada", DAY),
    ]
    (one,) = refusals_of(matches(["web", "own"], {}, held), "the weights were trained on it")
    said = "the source 'web' was withdrawn in the cluster on 2026-09-21 by root: a takedown"
    assert (one.code, one.message) == ("REVOKED", f"{said}; the weights were trained on it")
    (hidden,) = refusals_of(matches(["web"], {}, held[1:]), "x")
    assert "vision" not in hidden.message  # who may read a checkpoint may not know of the workspace
