"""`det config import`: each leaf of a file is in the config, or is named with the reason why it is not."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detlab.errors import ConfigError
from detlab.schemas.expconf import check, errors_of, load_yaml
from detlab.schemas.expconf.raw.paths import render
from detlab.schemas.imports import FileLeaf, Imported, import_config, leaves

FILES = sorted(Path(__file__).parent.joinpath("files").glob("*.yaml"))
NAMES = [file.stem for file in FILES]


def raw_of(file: Path) -> dict[str, Any]:
    raw, problems = load_yaml(file.read_text(encoding="utf-8"))
    assert problems == []
    return raw


def holder(raw: Any, path: tuple[str | int, ...]) -> Any:
    for part in path[:-1]:
        raw = raw[part]
    return raw


def speaking_for(imported: Imported, leaf: FileLeaf) -> list[str]:
    """The outcomes of the notes that cover a leaf."""
    places = {render(leaf.path[:length]) for length in range(1, len(leaf.path) + 1)}
    return [note.outcome for note in imported.notes if note.path in places]


def other(value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value * 2 + 1
        case str():
            try:
                number = float(value)
            except ValueError:
                return f"x{value}"
            return str(int(number) * 2 + 1) if number.is_integer() else str(number * 0.5)
        case None:
            return 1
        case _:
            return [*value, "x"] if isinstance(value, list) else {**value, "x": 1}


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_the_result_passes_the_check(file):
    imported = import_config(raw_of(file))
    complete = "entrypoint" in imported.config
    assert errors_of(check(imported.config, complete=complete)) == []
    assert complete or any("entrypoint" in text for text in imported.to_do)


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_each_leaf_has_a_note_and_each_note_a_reason(file):
    raw = raw_of(file)
    imported = import_config(raw)
    unnamed = [render(leaf.path) for leaf in leaves(raw) if not speaking_for(imported, leaf)]
    assert unnamed == []
    assert [note for note in imported.notes if note.outcome != "kept" and not note.why] == []
    assert [note for note in imported.notes if note.outcome not in ("left_out", "not_needed") and not note.to] == []


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_what_is_said_to_be_kept_or_changed_is_in_the_config(file):
    """Proof: another value there makes another config, or a mistake."""
    raw = raw_of(file)
    imported = import_config(raw)
    without_effect = []
    places = {note.path for note in imported.notes if note.outcome in ("kept", "changed")}
    mapped = [leaf for leaf in leaves(raw) if render(leaf.path) in places]
    assert len(mapped) > 5
    for leaf in mapped:
        changed = copy.deepcopy(raw)
        holder(changed, leaf.path)[leaf.path[-1]] = other(leaf.value)
        try:
            if import_config(changed).config == imported.config:
                without_effect.append(render(leaf.path))
        except ConfigError:
            continue
    assert without_effect == []


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_a_key_that_nobody_knows_is_named_wherever_it_is(file):
    raw = raw_of(file)
    mappings = {leaf.path[:length] for leaf in leaves(raw) for length in range(len(leaf.path))}
    silent = []
    for path in mappings:
        changed = copy.deepcopy(raw)
        place = holder(changed, (*path, ""))
        if not isinstance(place, dict):
            continue
        place["unheard_of"] = {"inner": 1}
        try:
            notes = import_config(changed).notes
        except ConfigError as error:
            named = any("unheard_of" in problem.path for problem in error.problems)
        else:
            covers = {render((*path, "unheard_of", "inner")[:length]) for length in range(1, len(path) + 3)}
            named = any(note.path in covers and note.outcome != "kept" for note in notes)
        if not named:
            silent.append(render(path))
    # the value of a constant is the user's own, whatever is in it
    assert [path for path in silent if not path.endswith(".value")] == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=True) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_stands_in_a_file_is_converted_or_refused_by_name(data):
    raw = copy.deepcopy(raw_of(data.draw(st.sampled_from(FILES))))
    for _ in range(data.draw(st.integers(1, 2))):
        all_leaves = list(leaves(raw))
        leaf = data.draw(st.sampled_from(all_leaves))
        place = leaf.path[: data.draw(st.integers(1, len(leaf.path)))]
        holder(raw, place)[place[-1]] = data.draw(json_values)
    try:
        imported = import_config(raw)
    except ConfigError as error:
        named = [problem.message for problem in error.problems]
    else:
        named = ["converted"]
        assert [leaf for leaf in leaves(raw) if not speaking_for(imported, leaf)] == []
    assert named
