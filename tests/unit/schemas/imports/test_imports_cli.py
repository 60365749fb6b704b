"""`det config import`: streams, exit statuses, files; and the YAML that it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from detlab.cli.commands.config import config
from detlab.schemas.expconf import load_yaml
from detlab.schemas.expconf.raw.dumping import dump_yaml
from detlab.schemas.imports import import_config

FILES = sorted(Path(__file__).parent.joinpath("files").glob("*.yaml"))
SWEEP = FILES[-1].parent / "wandb_bayes.yaml"


def det(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(config, list(arguments), input=stdin, catch_exceptions=False)


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_what_is_printed_is_the_config_and_passes_the_check(file):
    result = det("import", str(file))
    assert result.exit_code == 0, result.stderr
    wanted = import_config(load_yaml(file.read_text(encoding="utf-8"))[0])
    assert load_yaml(result.stdout) == (wanted.config, [])
    assert det("check", "-", stdin=result.stdout).exit_code == 0
    comments = [line for line in result.stdout.splitlines() if line.startswith("#")]
    told = ("changed", "left_out", "added")
    assert [note for note in wanted.notes if note.outcome in told and f"#   {note}" not in comments] == []
    needless = [note.path for note in wanted.with_outcome("not_needed")]
    assert [path for path in needless if not any(path in line for line in comments)] == []
    assert f"{len(wanted.with_outcome('left_out'))} left out" in result.stderr


def test_a_file_is_written(tmp_path):
    result = det("import", str(SWEEP), "-o", str(tmp_path / "search.yaml"))
    assert (result.exit_code, result.stdout) == (0, "")
    assert det("check", str(tmp_path / "search.yaml"), "--complete").exit_code == 0
    refused = det("import", str(SWEEP), "-o", str(tmp_path / "none" / "search.yaml"))
    assert refused.exit_code == 2
    assert "cannot be written" in refused.stderr


def test_json_has_every_note():
    result = det("import", str(SWEEP), "--json")
    said = json.loads(result.stdout)
    assert set(said) == {"kind", "config", "notes", "to_do", "problems"}
    assert said["kind"] == "wandb"
    assert {note["outcome"] for note in said["notes"]} == {"kept", "changed", "left_out", "added"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1", "neither a Katib Experiment nor a W&B sweep"),
        ("a: [", "line 1"),
        ("method: bayes\nparameters: {x: {min: 1}}\n", "parameters.x.max: is missing"),
        ("---\na: 1\n---\nb: 1\n", "several documents"),
    ],
)
def test_what_cannot_be_converted_exits_2_and_says_why(text, says):
    result = det("import", "-", stdin=text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_a_name_that_would_break_out_of_its_comment_stays_in_it():
    hostile = '"x\\nmax_restarts: 0\\u2028y"'
    result = det(
        "import", "-", stdin=f"method: random\nmetric: {{name: a}}\nparameters: {{a: {{value: 1, {hostile}: 1}}}}"
    )
    assert result.exit_code == 0
    assert "max_restarts" not in load_yaml(result.stdout)[0]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"))
    | st.sampled_from(["1e-4", "0o17", "on", "010", "12:30", "true", "null", "~", ".5e3", "<<", "2001-01-01", "-"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["a", "1e-4", "on"]), inner),
)  # fmt: skip


@given(values)
def test_yaml_that_is_written_is_read_back_alike(value):
    assert load_yaml(dump_yaml({"x": value}))[0] == {"x": value}
