"""References of versions, hostile names in what notebooks and terminals show, and the packages of a checkpoint."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from detlab import client as sdk
from detlab.cli.commands.registry import printing
from detlab.client.operations import registry
from detlab.client.registry.facts import (
    EVALUATED_GROUPS,
    ModelFacts,
    VersionFacts,
    check_used,
    evaluation_of,
    used_checkpoints,
)
from detlab.core.checkpoint import environment
from detlab.errors import ConfigError
from detlab.run import register_folder
from detlab.schemas.wire import SummaryView, TrialView
from detlab.schemas.wire.registry import (
    Comparison,
    Difference,
    FileDifference,
    LabelMove,
    Lineage,
    LineageEdge,
    LineageGraph,
    LineageNode,
    ModelView,
    VersionView,
)

HOSTILE = "<script>alert(1)</script>\x1b[31m\x1b]0;x\x07$x$"
MODEL = ModelView(
    id=1,
    name="digits",
    owner=HOSTILE,
    description=HOSTILE,
    notes=f"# {HOSTILE}",
    metadata={HOSTILE: HOSTILE},
    labels=[HOSTILE],
    moving={"production": 2},
)
VERSION = VersionView(
    model_id=1,
    model="digits",
    version=2,
    comment=HOSTILE,
    notes=HOSTILE,
    metadata={HOSTILE: HOSTILE},
    owner=HOSTILE,
    checkpoint="3f2b0c1e",
    lineage=Lineage(
        experiment_name=HOSTILE, hyperparameters={HOSTILE: HOSTILE}, metrics={HOSTILE: float("nan"), "a": 1.0}
    ),
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("digits", ("digits", "latest")),
        ("digits@3", ("digits", "3")),
        ("digits@1.2.0-rc.1", ("digits", "1.2.0-rc.1")),
        ("alice/my model@production", ("alice/my model", "production")),
        ("7@2", ("7", "2")),
        ("ada@lab.org/digits", ("ada@lab.org/digits", "latest")),
        ("ada@lab.org/digits@production", ("ada@lab.org/digits", "production")),
    ],
)
def test_references(text, wanted):
    assert registry.split_reference(text) == wanted
    assert registry.names_version(text) is (wanted[1] != "latest")


@pytest.mark.parametrize("text", ["digits@", "@production", "@"])
def test_an_empty_variable_in_a_reference_is_no_version(text):
    with pytest.raises(ConfigError, match="the @"):
        registry.split_reference(text)


@pytest.mark.parametrize("name", ["a b", "alice/x", "ä", "../..", "a?b#c", "%2F"])
def test_names_stay_one_part_of_the_path(name):
    call = next(registry.get_version(name, name))
    assert re.fullmatch(r"models/[^/?#]+/versions/[^/?#]+", call.path)


def test_an_edit_may_rename():
    assert next(registry.edit_model("a", name="b")).json.name == "b"
    assert next(registry.edit_version("a", 1, name="b")).json.name == "b"


def test_what_a_notebook_shows_is_text():
    for shown in (ModelFacts(MODEL)._repr_html_(), VersionFacts(VERSION)._repr_html_()):
        assert "<script" not in shown
        assert "\x1b" not in shown
        assert "mathjax_ignore" in shown


def test_what_a_terminal_shows_is_text(capsys):
    printing.print_models([MODEL])
    printing.print_model(MODEL)
    printing.print_found([VERSION], HOSTILE)
    printing.print_version(VERSION)
    printing.print_moves([LabelMove(label="x", by=HOSTILE, reason=HOSTILE, from_version=1)])
    printing.print_comparison(
        Comparison(
            versions=[VERSION, VERSION],
            metrics=[Difference(name=HOSTILE, values=[1.0, HOSTILE])],
            code=[FileDifference(path=HOSTILE, digests=["sha256:aa", None], diff=f"-{HOSTILE}\n")],
        )
    )
    nodes = [
        LineageNode(id="a", kind="data", label=HOSTILE, detail=HOSTILE),
        LineageNode(id="b", kind="data", label="b"),
    ]
    edges = [LineageEdge(source="a", target="b", label=HOSTILE), LineageEdge(source="b", target="a")]
    printing.print_graph(LineageGraph(nodes=nodes, edges=edges))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "production → 2" in out


@pytest.mark.parametrize(
    ("words", "wanted"), [(["a=1", "b=x y", 'c={"d": [1]}'], {"a": 1, "b": "x y", "c": {"d": [1]}})]
)
def test_metadata_of_words(words, wanted):
    assert printing.metadata_of(words) == wanted


def test_the_sdk_has_determineds_names():
    for name in ("Model", "ModelVersion", "create_model", "get_model", "list_models", "get_model_labels", "load_model"):
        assert getattr(sdk, name) is not None


def test_the_packages_that_are_imported_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for folder, name in (
        ("one", "My_Package-1.0.dist-info"),
        ("two", "my.package-2.0.dist-info"),
        ("two", "x-3.egg-info"),
    ):
        (tmp_path / folder / name).mkdir(parents=True)
    (tmp_path / "two" / "notes-1.txt").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "one"), str(tmp_path / "two"), str(tmp_path / "none")])
    environment.installed.cache_clear()
    try:
        found = environment.installed()
    finally:
        environment.installed.cache_clear()
    assert {name: found[name] for name in found if name not in {"python", "platform"}} == {
        "my-package": "1.0",
        "x": "3",
    }
    assert found["python"].startswith("3.")


def test_noting_the_packages_starts_no_process():
    """In the thread that writes checkpoints its pipe went to a data loader's worker too, and the checkpoint hung."""
    program = """
import os, subprocess
def refuse(*arguments, **named):
    raise AssertionError(f"a process is started: {arguments}")
subprocess.Popen = os.fork = os.posix_spawn = os.popen = refuse
from detlab.core.checkpoint.environment import installed
print(installed()["platform"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Linux-")


def test_a_folder_that_is_not_there_is_said(capsys):
    assert register_folder.main(["/no/such"]) == 2
    assert "name one folder" in capsys.readouterr().err


def test_an_evaluation_has_the_last_values_of_its_groups_and_where_its_output_is():
    summary = {
        "validation": {"accuracy": SummaryView(last=0.9), "nothing": SummaryView()},
        "inference": {"seconds": SummaryView(last=3.0)},
        "training": {"loss": SummaryView(last=1.0)},
    }
    trial = TrialView(
        id=12, index=0, experiment_id=4, request_id="r", state="COMPLETED", latest_checkpoint="out", summary=summary
    )
    noted = evaluation_of(trial, "test set", EVALUATED_GROUPS, 5.0)
    assert noted["metrics"] == {"accuracy": 0.9, "inference.seconds": 3.0}
    assert (noted["name"], noted["experiment"], noted["output"], noted["at"]) == ("test set", 4, "out", 5.0)
    with pytest.raises(ConfigError, match="trial 12 has reported no metric in other"):
        evaluation_of(trial, "", ["other"], 5.0)


def test_a_trial_that_used_another_checkpoint_is_no_evaluation():
    check_used(VERSION, 12, used_checkpoints({"uses_checkpoints": ["3f2b0c1e"]}))
    check_used(VERSION, 12, used_checkpoints({"batch_process": {"source": "3f2b0c1e"}}))
    hostile = {"uses_checkpoints": {"3f2b0c1e": 1}, "batch_process": ["3f2b0c1e"]}
    for metadata, words in (({}, "no checkpoint"), ({"uses_checkpoints": ["b", 7]}, "used b"), (hostile, "no check")):
        with pytest.raises(ConfigError, match=words):
            check_used(VERSION, 12, used_checkpoints(metadata))


def test_evaluations_are_told_from_other_metadata(capsys):
    noted = {"name": HOSTILE, "metrics": {HOSTILE: 0.5}}
    metadata = {"evaluation/12": noted, "evaluation/x": noted, "evaluation/13": "text", "other": 1}
    version = VERSION.model_copy(update={"metadata": metadata})
    assert VersionFacts(version).evaluations == {12: noted}
    printing.print_version(version)
    out = capsys.readouterr().out
    assert "Evaluated by trial" in out
    assert "\x1b" not in out
