"""Reading config text: YAML 1.2 scalars, mistakes by line and column, hostile documents."""

from __future__ import annotations

import datetime
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.schemas.expconf import check_yaml, errors_of, load_yaml


def value(text: str) -> Any:
    raw, problems = load_yaml(f"x: {text}\n")
    assert problems == []
    return raw["x"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1e-4", 1e-4),
        ("1E3", 1000.0),
        ("1.5e-6", 1.5e-6),
        (".5", 0.5),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("+3", 3),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b11", 3),
        ("1_000", 1000),
        ("-7", -7),
        ("0", 0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
    ],
)
def test_scalars_as_determined_reads_them(text: str, meant: object) -> None:
    found = value(text)
    assert found == meant
    assert type(found) is type(meant)


@pytest.mark.parametrize(
    "text",
    ["yes", "no", "on", "off", "y", "n", "None", "none", "12:30", "2024-01-01", "1.2.3", "e5", "0.1.0", "=", "-x"],
)
def test_scalars_that_are_texts(text: str) -> None:
    assert value(text) == text


def test_dates_are_not_dates() -> None:
    assert not isinstance(value("2024-01-01"), datetime.date)


def test_scalar_keys_become_texts() -> None:
    raw, _ = load_yaml("1: a\ntrue: b\n2.5: c\nnull: d\n'1x': e\n")
    assert raw == {"1": "a", "true": "b", "2.5": "c", "null": "d", "1x": "e"}


def test_infinities_and_nan_reach_the_checker() -> None:
    for text in (".inf", "-.Inf", ".nan"):
        _, problems = check_yaml(f"hyperparameters: {{lr: {text}}}")
        assert [(problem.path, problem.level) for problem in problems] == [("hyperparameters.lr", "error")]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: 1\n  b: 2\n", "line 2, column 4"),
        ("a: [1, 2\nb: 3\n", "line 2, column 2"),
        ("a:\n\t- b\n", "line 2, column 1"),
        ("a: 'open\n", "line 2, column 1"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1"),
        ("a: *nowhere\n", "line 1, column 4"),
        ("a: !!python/object/apply:os.system [ls]\n", "line 1, column 4"),
        ("a: !custom 1\n", "line 1, column 4"),
        ('a: "\\ud800"\n', "line 1, column 4"),
    ],
)
def test_syntax_errors_name_line_and_column(text: str, place: str) -> None:
    raw, [problem] = load_yaml(text)
    assert raw is None
    assert place in problem.message
    assert problem.level == "error"


@pytest.mark.parametrize("text", ["a: \x00", "a: !!int foo", "a: !!float bar", "[" * 5000, "a: " + "9" * 5000])
def test_odd_text_is_a_problem_not_a_crash(text: str) -> None:
    raw, problems = load_yaml(text)
    assert raw is None
    assert [problem.level for problem in problems] == ["error"]


def test_hints_for_common_slips() -> None:
    assert load_yaml("a:\n\t- b\n")[1][0].hint == "indent with spaces, not with tabs"
    assert load_yaml("a: b: c\n")[1][0].hint


def test_duplicate_keys_are_problems_with_path_and_lines() -> None:
    text = "max_restarts: 1\nsearcher:\n  name: single\n  metric: x\n  name: random\nmax_restarts: 2\n"
    _, problems = load_yaml(text)
    assert {problem.path: problem.message for problem in problems} == {
        "max_restarts": "is given twice, in line 1 and in line 6",
        "searcher.name": "is given twice, in line 3 and in line 5",
    }


def test_duplicate_keys_in_lists_and_flow_maps() -> None:
    _, problems = load_yaml("bind_mounts:\n- {host_path: /a, host_path: /b}\n")
    assert [problem.path for problem in problems] == ["bind_mounts[0].host_path"]


def test_anchors_and_merge_keys() -> None:
    raw, problems = load_yaml("a: &a {p: 1, q: 2}\nb:\n  <<: *a\n  q: 3\nc: *a\n")
    assert problems == []
    assert raw == {"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}, "c": {"p": 1, "q": 2}}


def test_aliases_cannot_explode() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 9) + "]" for i in range(1, 12)]
    started = time.monotonic()
    _, problems = check_yaml("\n".join(lines))
    assert time.monotonic() - started < 10
    assert "more than" in problems[0].message


def test_merge_keys_cannot_explode() -> None:
    lines = ["a0: &a0 {x0: 0, x1: 0, x2: 0}"]
    lines += [f"a{i}: &a{i} {{<<: [" + ", ".join([f"*a{i - 1}"] * 30) + "]}" for i in range(1, 12)]
    started = time.monotonic()
    raw, problems = load_yaml("\n".join(lines))
    assert time.monotonic() - started < 10
    assert raw is None
    assert "merges" in problems[0].message


def test_recursive_alias_is_refused() -> None:
    _, problems = check_yaml("data: &x {again: *x}\n")
    assert "deep" in problems[0].message


def test_too_long_a_text() -> None:
    raw, [problem] = load_yaml("x: " + "a" * 1_100_000, "big.yaml")
    assert raw is None
    assert "big.yaml" in problem.message


def test_empty_text_is_not_a_config() -> None:
    for text in ("", "# only a comment\n", "---\n", "null\n"):
        _, problems = check_yaml(text)
        assert problems[0].message.startswith("is empty")


def test_unreadable_text_is_not_also_called_empty() -> None:
    _, problems = check_yaml("a: [")
    assert len(problems) == 1


def test_json_with_escaped_emoji_is_one_character() -> None:
    assert load_yaml(json.dumps({"name": "ok 🎉"}))[0] == {"name": "ok 🎉"}


def test_nul_and_half_characters_are_refused() -> None:
    for text in ('name: "a\\0b"', 'data: {"a\\0": 1}'):
        _, problems = check_yaml(text)
        assert problems[0].level == "error"


_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(_JSON)
def test_json_is_yaml(document: Any) -> None:
    raw, problems = load_yaml(json.dumps(document))
    assert problems == []
    assert raw == document


@given(st.text(max_size=60))
def test_any_text_is_judged_without_a_crash(text: str) -> None:
    raw, problems = check_yaml(text)
    assert raw is not None or problems


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        (
            "searcher:\n  name: random\n metric: loss\n",
            "line 3, column 2: 'metric: loss' is indented by 1 space, which fits no key above it",
            "indent it by 0 or 2 spaces",
        ),
        ("a:\n    b: 1\n  c: 2\n", "line 3, column 3: 'c: 2' is indented by 2 spaces", "indent it by 0 or 4 spaces"),
        ("- a\nb: 1\n", "line 2, column 1: 'b: 1' does not continue the block that begins in line 1", "`- `"),
        (
            "entrypoint: x\n  searcher:\n",
            "it is indented deeper than line 1, which has a value already",
            "indent line 2 like line 1, by 0 spaces",
        ),
        ("s:\n  name: a\n   metric: b\n", "indented deeper than line 2", "indent line 3 like line 2, by 2 spaces"),
        ("a: b: c\n", "mapping values are not allowed here", "quote texts that contain `: `"),
        ("h:\n  lr: [1,2\ns: x\n", "line 3", "the [ or { that begins in line 2 is not closed"),
        ("a: 'x\nb: 3\n", "line 3", "the quote that begins in line 1 is not closed"),
        ("lr: @x\n", "line 1, column 5", "put the value in quotes"),
        ("a:\n\tb: 1\n", "line 2", "indent with spaces, not with tabs"),
        ("a: 1\nname\nb: 2\n", "line", "has no colon after its key"),
    ],
)
def test_a_mistake_of_indentation_says_what_to_do(text: str, said: str, hint: str) -> None:
    """ "expected <block end>, but found '<block mapping start>'" came without a hint."""
    (problem,) = load_yaml(text)[1]
    assert said in problem.message
    assert hint in (problem.hint or "")


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize(
    "text",
    ["!!timestamp x", "!!bool x", "!!int ''", "!!int '-'", "!!float ''", "!!binary é", "!!set x", "!!omap [1]"],
)
def test_a_value_that_is_not_of_the_type_of_its_tag_is_a_mistake(text: str, older: bool) -> None:
    for document in (f"x: {text}", f"[{text}]", f"? {text}\n: 1"):
        raw, problems = load_yaml(document, older=older)
        assert raw is None
        assert problems


@pytest.mark.parametrize("text", ["!!timestamp 2001-01-01", "!!binary aGVsbG8=", "!!set {a}", "!!omap [a: 1]"])
def test_what_json_does_not_have_is_a_mistake_of_its_place(text: str) -> None:
    assert any("entrypoint" in problem.path for problem in errors_of(check_yaml(f"entrypoint: {text}\n")[1]))
