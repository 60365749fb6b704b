"""A framework that is missing, or older or newer than what was tested, is named before anything else fails."""

from __future__ import annotations

from importlib import metadata

import pytest

from detlab.frameworks import FrameworkVersionError
from detlab.frameworks.versions import require


@pytest.mark.parametrize("found", ["5.0", "5.0.0", "5.24.1", "5.99", "5.3.0rc1", "5.1+cpu"])
def test_what_was_tested_is_taken(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: found)
    assert require("transformers", extra="transformers", at_least="5.0", below="6") == found


@pytest.mark.parametrize(
    ("found", "is_what"),
    [("4.57.3", "older"), ("3", "older"), ("6.0.0", "newer"), ("6.0.0.dev0", "newer"), ("10.1", "newer")],
)
def test_others_are_named(found: str, is_what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: found)
    with pytest.raises(FrameworkVersionError) as caught:
        require("transformers", extra="transformers", at_least="5.0", below="6")
    assert f"transformers {found} is {is_what} than detlab.transformers was tested with" in str(caught.value)
    assert "from 5.0 to below 6" in str(caught.value)
    assert "pip install 'detlab[transformers]'" in str(caught.value)


def test_a_missing_one_says_which_extra_brings_it() -> None:
    with pytest.raises(ImportError, match=r"detlab\.keras needs no-such-framework.*\n.*detlab\[keras\]"):
        require("no-such-framework", extra="keras", at_least="3", below="4")
