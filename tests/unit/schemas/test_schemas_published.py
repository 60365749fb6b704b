"""The committed JSON Schema and reference page are the generated ones, and the schema judges like the checker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.schemas import publish
from detlab.schemas.expconf import check, errors_of, resolve
from detlab.schemas.expconf.blocks.experiment import ExperimentConfig
from detlab.schemas.taskconf import TaskConfig

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
SCHEMA = publish.json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

GOOD: list[dict[str, Any]] = [
    {},
    {"name": None, "searcher": None, "resources": None},
    {"entrypoint": "python3 x.py", "searcher": {"name": "single", "metric": "x", "max_length": 1}},
    {"entrypoint": ["a", "b"], "searcher": {"name": "single", "max_length": {"epochs": 1}}},
    {"searcher": {"metric": "x"}},
    {"searcher": {"name": "grid", "max_concurrent_trials": 0}},
    {"searcher": {"name": "adaptive_asha", "mode": "aggressive", "divisor": 3, "stop_once": True}},
    {"searcher": {"name": "async_halving", "num_rungs": 2, "max_time": 1e3}},
    {"hyperparameters": {"a": 1, "b": None, "c": [1, {"x": 2}], "d": {"e": {"type": "const", "val": None}}}},
    {"hyperparameters": {"a": {"type": "int", "minval": 1, "maxval": 2, "count": None}}},
    {"hyperparameters": {"a": {"type": "categorical", "vals": [None, {"type": "adam"}]}, "type": "adam"}},
    {"hyperparameters": {"a": {"type": "log", "base": 10, "minval": -1, "maxval": 1}}},
    {"resources": {"shm_size": "1.5G", "devices": ["/a:/b", {"host_path": "/a", "container_path": "/b"}]}},
    {"environment": {"image": "x", "environment_variables": ["A=1"]}},
    {"environment": {"image": {"gpu": "x"}, "environment_variables": {"gpu": ["A=1"], "cpu": None}}},
    {"checkpoint_storage": {"save_trial_best": 1}},
    {"checkpoint_storage": {"type": "s3", "bucket": "b"}},
    {"checkpoint_storage": {"type": "shared_fs", "host_path": "/a", "checkpoint_path": "x"}},
    {"log_policies": [{"name": "a", "action": "exclude_node"}, {"pattern": "x", "action": {"type": "cancel_retries"}}]},
    {"min_validation_period": {"batches": 0}, "data_layer": {"x": 1}, "optimizations": {"mixed_precision": "O1"}},
    {"integrations": {"pachyderm": {"dataset": {"repo": "r"}}, "webhooks": {"webhook_id": [1]}}},
]

BAD: list[dict[str, Any]] = [
    {"unknown": 1},
    {"max_restarts": -1},
    {"max_restarts": "5"},
    {"debug": "yes"},
    {"entrypoint": []},
    {"searcher": {"name": "adaptive"}},
    {"searcher": {"name": "single", "max_trials": 1}},
    {"searcher": {"name": "random", "max_trials": 0}},
    {"searcher": {"name": "adaptive_asha", "divisor": 1}},
    {"hyperparameters": {"a": {"type": "wat"}}},
    {"hyperparameters": {"a": {"type": "int", "minval": 1}}},
    {"hyperparameters": {"a": {"type": "categorical", "vals": []}}},
    {"hyperparameters": {"a": [{"type": "const"}]}},
    {"resources": {"shm_size": "1Gi"}},
    {"resources": {"priority": 100}},
    {"resources": {"devices": ["/a"]}},
    {"checkpoint_storage": {"type": "hdfs"}},
    {"checkpoint_storage": {"type": "gcs", "container": "x"}},
    {"checkpoint_policy": "some"},
    {"bind_mounts": [{"host_path": "/a"}]},
    {"log_policies": [{"name": "a", "action": "explode"}]},
    {"environment": {"environment_variables": [1]}},
]


@pytest.mark.parametrize("name", [publish.SCHEMA_FILE, publish.PAGE_FILE])
def test_committed_file_is_the_generated_one(name: str) -> None:
    committed = (REFERENCE / name).read_text(encoding="utf-8")
    assert committed == publish.render_files()[name], "run `python -m detlab.schemas.publish`"


def test_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(SCHEMA["properties"]) == set(ExperimentConfig.model_fields)


@pytest.mark.parametrize("raw", GOOD)
def test_schema_and_checker_accept(raw: dict[str, Any]) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(raw)] == []
    assert errors_of(check(raw)) == []


@pytest.mark.parametrize("raw", GOOD)
def test_schema_accepts_resolved_configs(raw: dict[str, Any]) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(resolve(raw))] == []


@pytest.mark.parametrize("raw", BAD)
def test_schema_and_checker_refuse(raw: dict[str, Any]) -> None:
    assert list(VALIDATOR.iter_errors(raw))
    assert errors_of(check(raw))


@given(
    st.sampled_from(sorted(ExperimentConfig.model_fields)),
    st.recursive(
        st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "best", "/a"]),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(st.sampled_from(["name", "type", "metric", "x", "batches", "cpu"]), inner, max_size=2)
        ),
        max_leaves=4,
    ),
)
def test_law_what_the_checker_accepts_the_schema_accepts(key: str, value: Any) -> None:
    raw = {key: value}
    if not errors_of(check(raw)):
        assert [error.message for error in VALIDATOR.iter_errors(raw)] == []


def test_every_field_is_described() -> None:
    for name, model in publish._models().items():
        for key, field in model.model_fields.items():
            assert field.description or key in ("name", "type"), f"{name}.{key}"


def test_publish_writes_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert publish.main(["--check", str(tmp_path)]) == 1
    assert publish.main([str(tmp_path)]) == 0
    assert publish.main(["--check", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count(publish.PAGE_FILE) == 2


def test_an_installed_searcher_of_somebody_else_changes_no_page_of_ours(tmp_path: Path) -> None:
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[detlab.searchers]\ntheirs = theirs:Theirs\n")
    (tmp_path / "theirs.py").write_text(
        "from typing import Literal\n"
        "from detlab.schemas.expconf import SearcherBlock\n"
        "class TheirConfig(SearcherBlock):\n"
        "    name: Literal['theirs'] = 'theirs'\n"
        "class Theirs:\n"
        "    Config = TheirConfig\n"
    )
    program = (
        "import sys\n"
        "from detlab.schemas import publish\n"
        "from detlab.schemas.expconf.blocks.searchers import MEMBERS\n"
        "assert MEMBERS['theirs'].__name__ == 'TheirConfig'\n"
        f"sys.exit(publish.main(['--check', {str(REFERENCE)!r}]))\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("schema", [SCHEMA, TaskConfig.model_json_schema()])
def test_descriptions_are_sentences_of_a_form(schema):
    text = json.dumps(schema)
    for phrase in ("shows best", "one is drawn", "the cluster decides", "will do", "at the submit", "gets no more"):
        assert phrase not in text, phrase
