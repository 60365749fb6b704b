"""Names, values and batches of an import, in the form that the master takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.importers.contents import RunContents
from detlab.importers.destination import FROM_TAG, SOURCE_TAG, ImportDestination, batches
from detlab.importers.foreign import ForeignExperiment, ForeignPoint, ForeignRun, digest_of
from detlab.importers.left_out import EXAMPLES, LeftOut
from detlab.importers.names import file_problem, key_of, label_of, project_name, registered_name
from detlab.schemas.wire.logged_names import BadKey, check_key
from detlab.schemas.wire.registry import model_name
from detlab.schemas.wire.workspaces import folder_name


@given(st.text(max_size=300))
def test_a_name_is_one_that_the_master_takes(text: str) -> None:
    assert folder_name(project_name(text, "7"))
    assert model_name(registered_name(text))
    if (found := key_of(text)) is not None:
        check_key(found, "metric")
    try:
        check_key(text, "metric")
    except BadKey:
        return
    assert found == text


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("digits", "digits"),
        ("/Users/ada@example.org/digits", "Users-ada-example.org-digits"),
        ("12", "experiment-7-12"),
        ("  ", "experiment-7"),
        ("a:b", "a-b"),
        ("x" * 400, "x" * 200),
    ],
)
def test_the_project_is_called_as_the_experiment_is(name: str, wanted: str) -> None:
    assert project_name(name, "7") == wanted


def test_two_experiments_of_one_name_have_two_projects() -> None:
    to = ImportDestination(None, None)  # type: ignore[arg-type]  # it is not asked
    those = [ForeignExperiment(str(n), name) for n, name in enumerate(["Digits", "digits", "a/b", "a:b", "Default"])]
    to.name_all(those)
    assert [to.project(one) for one in those] == ["Digits", "digits-1", "a-b", "a-b-3", "Default"]


@pytest.mark.parametrize("path", ["", "/a", "a/../b", "a//b", "a\n", "a\\b", "./a", "é" * 101, "/".join("a" * 31)])
def test_a_path_that_the_master_refuses_is_not_sent(path: str) -> None:
    assert file_problem(path)


@pytest.mark.parametrize(("alias", "label"), [("champion", "champion"), ("v1", "v1"), ("1", None), ("a b", None)])
def test_an_alias_is_a_label_or_none(alias: str, label: str | None) -> None:
    assert label_of(alias) == label


class _Source:
    kind, label = "mlflow", "somewhere"

    def __init__(self, *points: ForeignPoint) -> None:
        self._points = points

    def points(self, run: ForeignRun) -> list[ForeignPoint]:
        return list(self._points)


def contents(run: ForeignRun, *points: ForeignPoint) -> tuple[RunContents, LeftOut]:
    left_out = LeftOut()
    return RunContents(_Source(*points), run, f"mlflow:{run.id}", left_out), left_out  # type: ignore[arg-type]


def test_values_that_do_not_fit_are_counted() -> None:
    tags = {
        "long": "x" * 9000,
        "mlflow.note.content": "y" * 9000,
        "": "z",
        "mlflow.parentRunId": "p",
        "detlab.import.x": "y",
    }
    found, left_out = contents(ForeignRun("r", "1", tags=tags, params={"a/../b": "1", "é": "2"}))
    assert set(found.tags) == {SOURCE_TAG, FROM_TAG, "long", "mlflow.note.content"}
    assert (len(found.tags["long"]), len(found.tags["mlflow.note.content"])) == (8000, 9000)
    assert found.params == {"a/__/b": "1", "é": "2"}
    assert {why: one.count for why, one in left_out.items()} == {
        "ends of tags of over 8,000 characters": 1,
        "tags whose name cannot be one here": 1,
    }


def test_a_run_with_too_much_keeps_what_the_master_takes() -> None:
    found, left_out = contents(ForeignRun("r", "1", params={f"p{n}": "x" for n in range(6000)}))
    assert len(found.params) == 4900
    assert [one.count for _, one in left_out.items()] == [1100]
    found, _ = contents(ForeignRun("r", "1", params={f"p{n}": "x" * 8000 for n in range(1000)}))
    assert sum(len(value) for value in found.params.values()) < 2 * 1024**2


def test_values_of_metrics_that_cannot_be_kept_are_counted() -> None:
    points = [
        ForeignPoint("a b!", 1.0, 1, 1),
        ForeignPoint("a b?", 2.0, 1, 1),
        ForeignPoint("", 1.0, 1, 1),
        ForeignPoint("c", float("nan"), 1, 2**60),
        ForeignPoint("c", float("nan"), -1, 1),
        ForeignPoint("c", float("nan"), 1, -1),
    ]
    found, left_out = contents(ForeignRun("r", "1"), *points)
    entries = [entry for kind, entry in found.entries({}) if kind == "metrics"]
    assert [(one["key"], str(one["value"]), one["step"]) for one in entries] == [
        ("a b_", "1.0", 1),
        ("a b__2", "2.0", 1),
        ("c", "NaN", -1),
    ]
    assert {why: one.count for why, one in left_out.items()} == {
        "characters of names of metrics that are `_` here": 2,
        "metrics whose name cannot be one here": 1,
        "values whose step or time cannot be one": 2,
    }


def test_batches_are_those_that_the_master_takes() -> None:
    entries = (
        [("params", n) for n in range(250)] + [("tags", n) for n in range(150)] + [("metrics", n) for n in range(2500)]
    )
    found = list(batches(iter(entries)))
    for one in found:
        assert sum(map(len, one.values())) <= 1000
        assert len(one["params"]) <= 100
        assert len(one["tags"]) <= 100
    assert [entry for one in found for entry in one["metrics"]] == list(range(2500))
    assert len(found) < 8


def test_a_digest_is_another_one_once_something_was_logged() -> None:
    run = ForeignRun("r", "1", tags={"a": "b"}, state=[["loss", "1"]])
    same = digest_of(ForeignRun("r", "1", tags={"a": "b"}, state=[["loss", "1"]]), [], [])
    assert digest_of(run, [], []) == same
    assert digest_of(ForeignRun("r", "1", tags={"a": "b"}, state=[["loss", "2"]]), [], []) != same
    assert digest_of(ForeignRun("r", "1", tags={"a": "b"}, state=[["loss", "1"]], status="FAILED"), [], []) != same


def test_what_is_left_out_is_counted_with_few_examples() -> None:
    left_out = LeftOut()
    for number in range(1000):
        left_out.add("things", f"{number}" * 500)
    [(why, one)] = left_out.items()
    assert (why, one.count, len(one.examples)) == ("things", 1000, EXAMPLES)
    assert max(map(len, one.examples)) < 200
