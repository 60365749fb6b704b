"""Names in any script, and what no name may have in it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from detlab.schemas.script_names import name_problem, normal
from detlab.schemas.wire.registry import CreateModel, CreateVersion
from detlab.visible import INVISIBLE

GOOD = (
    "digits",
    "a",
    "my model.v2",
    "Größe",
    "модель 2",
    "数字",
    "हिन्दी",
    "ไทย",
    "עברית",
    "العربية",
    "ნომერი",
    "모델",
    "7b",
    "x" * 256,
)
BAD = (
    *("", " ", "-a", "a-", "a ", "a/b", "a@b", "a:b", "a\\b", "..", "../x", "x" * 257, "<b>", "a\nb", "a\tb"),
    *("a&b", "a'b", 'a"b', "a\u202eb", "a\u200bb", "a\u00a0b", "a\u3000b", "a\u2044b", "a\u2215b", "a\uff0fb"),
    *("a\uff20b", "a\u29f8b", "a\ufe55b", "a\u02d0b", "a\u01c3b", "a\ua4fdb", "a\ua4f8b", "a\u3033b", "a\u3164b"),
    *("a\u115fb", "a\uffa0b", "a\ufe0fb", "a\u034fb", "\u0301a", "a \u0301b", "x" + 5 * "\u0336", "\u00bd"),
    *("\u2460", "\U0001f600", "a\x00b", "a\U000e0041b", "a\ue000b", "a\u0378b", "a\u2028b", "a\ufeffb", "a\u00adb"),
    "a\u061cb",
)  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_name_of_any_script_is_one(name: str) -> None:
    assert CreateModel(name=name).name == normal(name)
    assert CreateModel(name=unicodedata.normalize("NFD", name)).name == normal(name)


@pytest.mark.parametrize("name", BAD)
def test_what_is_unseen_or_looks_like_a_path_is_none(name: str) -> None:
    with pytest.raises(ValidationError, match="must begin and end with a letter or a digit"):
        CreateModel(name=name)


@given(st.text(max_size=20))
def test_no_name_has_what_means_something_elsewhere(text: str) -> None:
    name = normal(text)
    if name_problem(name, " ._-") is not None:
        return
    assert not set(name) & set("@/:\\<>&\"'`|*?$#%!~(){}[];,=+^\n\t\r\0")
    assert INVISIBLE.search(name) is None
    assert not set(unicodedata.normalize("NFKC", name)) & set("@/:\\<>")
    assert name == name.strip()
    assert normal(name) == name


def test_the_character_is_named() -> None:
    assert "not '/' U+002F SOLIDUS" in str(name_problem("a/b", " ._-"))
    assert "not U+202E RIGHT-TO-LEFT OVERRIDE" in str(name_problem("a\u202eb", " ._-"))


@pytest.mark.parametrize("label", ["production", "Größe", "生产", "продакшн", "v1-", "a_b.c"])
def test_labels_of_versions_too(label: str) -> None:
    assert CreateVersion(checkpoint="x", labels=[label]).labels == [normal(label)]


@pytest.mark.parametrize("label", ["", "1a", "१a", "a b", "a/b", "-a", "x" * 65, "a\u200bb"])
def test_a_label_begins_with_a_letter(label: str) -> None:
    with pytest.raises(ValidationError, match="a label begins with a letter"):
        CreateVersion(checkpoint="x", labels=[label])
