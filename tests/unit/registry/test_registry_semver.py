"""Semantic versions order as semver.org 2.0.0 says, and formats are told by names."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab_hub.core.registry.formats import format_of
from detlab_hub.core.registry.semver import SemanticVersion, is_semver
from detlab_hub.services.registry.facts import MOST_CHARS, MOST_FACTS, facts_of, version_facts

ORDER = (
    *("0.0.0", "0.0.1", "0.9.0", "0.10.0", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta"),
    *("1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.0.1", "2.0.0-0", "2.0.0-1", "2.0.0-a", "2.0.0"),
    "10.0.0",
)


def test_the_order_of_semver_org():
    for lower, higher in itertools.combinations(ORDER, 2):
        assert SemanticVersion(lower) < SemanticVersion(higher)
        assert SemanticVersion(higher) > SemanticVersion(lower)


def test_a_build_adds_nothing():
    assert SemanticVersion("1.0.0+a") == SemanticVersion("1.0.0+b") == SemanticVersion("1.0.0")
    assert not SemanticVersion("1.0.0+a") < SemanticVersion("1.0.0+b")


@pytest.mark.parametrize(
    "text",
    [
        "1",
        "1.2",
        "v1.2.3",
        "1.2.3.4",
        "01.2.3",
        "1.2.3-",
        "1.2.3-01",
        "1.2.3+",
        "1.2.3-a..b",
        " 1.2.3",
        "1.2.3\n",
        "٣.1.1",
    ],
)
def test_what_is_none(text):
    assert not is_semver(text)
    with pytest.raises(ValueError, match="is no semantic version, such as"):
        SemanticVersion(text)


numbers = st.integers(0, 10**6)


@given(st.tuples(numbers, numbers, numbers), st.tuples(numbers, numbers, numbers))
def test_numbers_order_by_value(one, other):
    left, right = (SemanticVersion(".".join(map(str, parts))) for parts in (one, other))
    assert (left < right) == (one < other)
    assert (left == right) == (one == other)


@pytest.mark.parametrize(
    ("paths", "wanted"),
    [
        (["model.safetensors", "trial_state.pkl"], "safetensors"),
        (["MODEL.PT"], "pickle"),
        (["a/b/state_dict.pth", "metadata.json"], "pickle"),
        (["model.onnx"], "other"),
        ([], "other"),
    ],
)
def test_formats(paths, wanted):
    assert format_of(paths) == wanted


def test_facts_are_flat_short_and_few():
    found = facts_of(["a"], {"n": 1, "t": "x", "deep": {"b": True, "list": [1, "y", None, {"z": 1}]}, "none": None})
    assert found == [
        ("label", "a", None),
        ("n", "1", 1.0),
        ("t", "x", None),
        ("deep.b", "true", None),
        ("deep.list", "1", 1.0),
        ("deep.list", "y", None),
    ]
    assert version_facts({}, {"lr": 0.5, "nested": {"x": float("nan")}}) == [
        ("hp.lr", "0.5", 0.5),
        ("hp.nested.x", "nan", None),
    ]
    assert facts_of([], {"long": "x" * (MOST_CHARS + 1), "y" * 999: 1, "huge": 10**400}) == [
        ("huge", ("1" + "0" * 400)[:MOST_CHARS], None)
    ]
    assert len(facts_of([], {str(n): n for n in range(MOST_FACTS + 9)})) == MOST_FACTS
    assert facts_of([], {"\x00": "\ud800"}) == [("�", "�", None)]
