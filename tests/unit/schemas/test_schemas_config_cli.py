"""`det config`: exit statuses, streams, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from detlab.cli.commands.config import config

GOOD = "entrypoint: python3 t.py\nsearcher: {name: single, metric: loss}\n"


def det(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(config, list(arguments), input=stdin, catch_exceptions=False)


@pytest.fixture
def write(tmp_path: Path) -> object:
    def write_file(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write_file


def test_good_file(write) -> None:
    result = det("check", write("a.yaml", GOOD), "--complete")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "good" in result.stderr


def test_every_mistake_is_a_line(write) -> None:
    path = write("a.yaml", "foo: 1\nmax_restarts: -1\nscheduling_unit: 3\nsearcher: {name: adaptive}\n")
    result = det("check", path)
    assert result.exit_code == 2
    lines = dict(line.split(": ", 1) for line in result.stdout.splitlines())
    assert set(lines) == {"foo", "max_restarts", "searcher.name"}
    assert result.stderr.startswith("warning: scheduling_unit: ")


def test_json_output(write) -> None:
    result = det("check", write("a.yaml", "foo: 1\nscheduling_unit: 3\n"), "--json")
    assert result.exit_code == 2
    problems = json.loads(result.stdout)
    assert [(problem["path"], problem["level"]) for problem in problems] == [
        ("foo", "error"),
        ("scheduling_unit", "warning"),
    ]
    assert all(set(problem) == {"path", "message", "hint", "level"} for problem in problems)
    assert result.stderr == ""


def test_warnings_alone_exit_zero(write) -> None:
    path = write("a.yaml", "scheduling_unit: 3\n")
    assert det("check", path).exit_code == 0
    assert det("check", path, "--json").exit_code == 0
    assert json.loads(det("check", write("b.yaml", GOOD), "--json").stdout) == []


def test_complete_asks_for_more(write) -> None:
    path = write("a.yaml", "name: x\n")
    assert det("check", path).exit_code == 0
    result = det("check", path, "--complete")
    assert result.exit_code == 2
    assert {line.split(":")[0] for line in result.stdout.splitlines()} == {"entrypoint", "searcher"}


def test_standard_input() -> None:
    assert det("check", "-", stdin=GOOD).exit_code == 0
    result = det("check", "-", stdin="a: [\n")
    assert result.exit_code == 2
    assert result.stdout.startswith("standard input: line 2, column 1: ")


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_unreadable_file(name: str, tmp_path: Path) -> None:
    path = str(tmp_path / name)
    result = det("check", path)
    assert result.exit_code == 2
    assert path in result.stdout
    [problem] = json.loads(det("check", path, "--json").stdout)
    assert problem["level"] == "error"
    assert det("resolve", path).exit_code == 2


def test_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00a")
    result = det("check", str(path))
    assert result.exit_code == 2
    assert "UTF-8" in result.stdout


def test_resolve_with_a_template(write) -> None:
    user = write("a.yaml", GOOD + "labels: [u]\n")
    template = write("t.yaml", "labels: [t]\nresources: {slots_per_trial: 2}\nhyperparameters: {lr: 1e-4}\n")
    result = det("resolve", user, "--template", template)
    assert result.exit_code == 0
    full = json.loads(result.stdout)
    assert full["labels"] == ["t", "u"]
    assert full["resources"]["slots_per_trial"] == 2
    assert full["hyperparameters"] == {"lr": {"type": "const", "val": 1e-4}}
    assert full["name"] is None
    assert full["reproducibility"] == {"experiment_seed": None}


def test_resolve_refuses_mistakes_of_either_file(write) -> None:
    good, bad = write("a.yaml", GOOD), write("b.yaml", "foo: 1\n")
    result = det("resolve", bad)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("foo: unknown key")
    result = det("resolve", good, "--template", bad)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "in the template" in result.stderr
    assert "foo: unknown key" in result.stderr


def test_resolve_refuses_mistakes_of_the_merge(write) -> None:
    user = write("a.yaml", "hyperparameters: {a: {type: int, minval: 0, maxval: 9}}\n")
    template = write("t.yaml", "searcher: {name: grid, metric: x}\n")
    result = det("resolve", user, "--template", template)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("hyperparameters.a: ")


def test_resolving_its_own_output_changes_nothing(write) -> None:
    first = det("resolve", write("a.yaml", GOOD)).stdout
    assert det("resolve", "-", stdin=first).stdout == first


def test_schema_is_printed() -> None:
    result = det("schema")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["$schema"].endswith("2020-12/schema")


@pytest.mark.parametrize("command", ["check", "resolve", "schema"])
def test_help_has_examples(command: str) -> None:
    result = det(command, "--help")
    assert result.exit_code == 0
    assert "det config " + command in result.stdout
