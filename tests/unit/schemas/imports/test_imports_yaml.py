"""`det config import` reads a W&B sweep as W&B does: YAML 1.1, by PyYAML."""

from __future__ import annotations

import time
from typing import Any

import pytest
import yaml

from detlab.errors import ConfigError
from detlab.schemas.expconf import load_yaml
from detlab.schemas.imports import Imported, import_config, load_import

SCALARS = (
    *("on", "off", "yes", "no", "Yes", "NO", "On", "y", "n", "true", "False", "null", "~", "''"),
    *("017", "-017", "0o17", "0x1F", "0b101", "1_000", "089", "12:30:45", "1:30", "190:20:30.15", "-1:30"),
    *("1e3", "1e-5", "1.0e-5", "1.0e+3", "1.5e3", "+1.5", ".5", "1_0.5", "!!float 1e-5", "!!str on", "'on'", '"017"'),
)


def imported(text: str) -> Imported:
    raw, problems = load_import(text)
    assert problems == []
    return import_config(raw)


@pytest.mark.parametrize("scalar", SCALARS)
def test_a_scalar_of_a_sweep_is_what_pyyaml_makes_of_it(scalar: str) -> None:
    text = f"method: grid\nparameters: {{x: {{values: [{scalar}, other]}}}}\n"
    (found, _) = load_import(text)[0]["parameters"]["x"]["values"]
    wanted = yaml.safe_load(text)["parameters"]["x"]["values"][0]
    assert (type(found), found) == (type(wanted), wanted)


def test_the_issue_s_three() -> None:
    config = imported("method: grid\nparameters: {x: {values: [on, 017, 12:30:45]}}\n").config
    assert config["hyperparameters"]["x"]["vals"] == [True, 15, 45045]


def test_keys_are_texts_and_dates_stay_texts() -> None:
    raw, problems = load_import("method: grid\nparameters:\n  on: {value: 2001-01-01}\n  017: {value: 1}\n")
    assert problems == []
    assert raw["parameters"] == {"true": {"value": "2001-01-01"}, "15": {"value": 1}}


def test_other_files_are_read_as_ever() -> None:
    text = "apiVersion: kubeflow.org/v1beta1\nkind: Experiment\nx: [on, 017, 12:30:45, 1e-5]\n"
    assert load_import(text)[0]["x"] == ["on", 17, "12:30:45", 1e-5]
    assert load_yaml("[on, 017, 1e-5]")[0] == ["on", 17, 1e-5]


def test_a_power_of_ten_is_the_number_at_the_ends_of_a_range_and_a_text_among_values() -> None:
    text = "method: random\nmetric: {name: a}\nparameters: {x: {min: 1e-5, max: 0.1}, y: {values: [1e-5, 2e3]}}\n"
    result = imported(text)
    assert result.config["hyperparameters"]["x"] == {"type": "double", "minval": 1e-5, "maxval": 0.1}
    (note,) = (note for note in result.notes if note.path == "parameters.x.min")
    assert (note.outcome, "1e-5 is a text in YAML 1.1" in note.why) == ("changed", True)
    assert result.config["hyperparameters"]["y"]["vals"] == ["1e-5", "2e3"]
    (line,) = (line for line in result.to_do if line.startswith("hyperparameters.y"))
    assert line.endswith("write 1.0e-05, 2000.0")


def test_a_grid_keeps_its_cap() -> None:
    result = imported("method: grid\nmetric: {name: a}\nrun_cap: 3\nparameters: {x: {values: [1, 2, 3, 4]}}\n")
    assert result.config["searcher"]["max_trials"] == 3


def test_workers_of_a_launch_scheduler_are_the_trials_at_a_time() -> None:
    text = (
        "description: by launch\nmethod: grid\njob: lab/jobs/hello:latest\n"
        "scheduler: {num_workers: 8, settings: {a: b}}\n"
        "parameters: {x: {values: [0, 0.1]}, epochs: {min: 0, max: 20, distribution: int_uniform}}\n"
    )
    result = imported(text)
    assert result.config["searcher"]["max_concurrent_trials"] == 8
    assert any("entrypoint" in line for line in result.to_do)


@pytest.mark.parametrize(
    ("raw", "path", "says"),
    [
        ({"program": "t.py", "tune": {"num_samples": 3}}, "tune", "Ray Tune"),
        ({"job": None, "metric": {"name": None}, "scheduler": {"job": "a"}, "run_cap": 5}, "scheduler", "scheduler"),
    ],
)
def test_a_sweep_whose_points_another_program_draws_is_refused_by_name(raw: Any, path: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        import_config(raw)
    (problem,) = refused.value.problems
    assert (problem.path, says in problem.message, bool(problem.hint)) == (path, True, True)


def test_names_with_dots_and_words_for_hydra_stay() -> None:
    text = """
program: main.py
method: bayes
metric: {name: test/accuracy, goal: maximize}
parameters:
  model.groups: {values: [2, 4]}
  data: {values: [digits]}
  data.batch: {values: [8, 16]}
  optimizer.config.rate: {min: !!float 1e-5, max: 0.1}
command: ["${env}", "${interpreter}", "${program}", "${args_no_hyphens}", +num_gpus=1]
"""
    config = imported(text).config
    assert config["entrypoint"][-4:] == ["python3", "main.py", "${args_no_hyphens}", "+num_gpus=1"]
    assert set(config["hyperparameters"]) == {"model.groups", "data", "data.batch", "optimizer.config.rate"}


@pytest.mark.parametrize(
    "number", [":".join(["1"] * 190_000), "1:" * 100_000 + "1.5", "0x" + "f" * 300_000, "0" + "7" * 300_000]
)
@pytest.mark.parametrize("older", [True, False])
def test_a_number_of_any_length_is_not_read(number: str, older: bool) -> None:
    """Base 60 took minutes, with the square of its length; others could not be written again."""
    begun = time.process_time()
    raw, problems = load_yaml(f"a: {number}", older=older)
    assert time.process_time() - begun < 20
    if older or ":" not in number:
        assert raw is None
        assert "characters; at most 1,000" in problems[0].message
    else:
        assert raw == {"a": number}, "YAML 1.2 has no base 60: it is a text"


def test_a_number_of_base_60_that_is_too_large_is_named() -> None:
    """It was a traceback: OverflowError."""
    raw, (problem,) = load_yaml("a: " + ":".join(["1"] * 400) + ".5", older=True)
    assert raw is None
    assert "is a number that is too large" in problem.message
