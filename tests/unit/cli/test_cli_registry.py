"""`det model …` to people: what there is none of, what is said twice, what cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from detlab.cli.commands.registry import printing
from detlab.cli.commands.registry.versions import register
from detlab.cli.invocation import Invocation
from detlab.cli.output import failures
from detlab.client.operations import registry
from detlab.errors import ConfigError, Problem
from detlab.schemas.wire.governance.evidence import EvidenceSummary, SourceSummary
from detlab.schemas.wire.registry import Comparison, Difference, Lineage, VersionView

METRICS = {"accuracy": 0.5, "validation.accuracy": 0.5, "training.loss": 1.0, "validation.f1": 0.25}


def version(number: int = 1) -> VersionView:
    return VersionView(model_id=1, model="digits", version=number, lineage=Lineage(metrics=METRICS))


def test_a_list_of_nothing_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    printing.print_models([])
    printing.print_models([], filtered=True)
    printing.print_versions([])
    printing.print_found([])
    printing.print_found([], "accuracy")
    assert capsys.readouterr().out.splitlines() == [
        "No models yet. Try: det model create NAME",
        "No models match.",
        "No versions yet. Try: det model register-version --help",
        "No version matches.",
        "No version that matches has the metric accuracy.",
    ]


def test_a_governed_version_says_what_it_was_trained_on(capsys: pytest.CaptureFixture[str]) -> None:
    sources = [
        SourceSummary(name="own", license="MIT", samples=9, level="isolated"),
        SourceSummary(name="web", samples=3, reached=False),
    ]
    one = version().model_copy(update={"lineage": Lineage(governed=EvidenceSummary(sources=sources))})
    printing.print_version(one)
    said = capsys.readouterr().out
    assert "own: 9 samples, MIT, isolated; web: 3 samples, unknown, seen, but closed to all layers" in " ".join(
        said.split()
    )


def test_the_best_have_a_column_of_their_metric_and_fit_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"checkpoint": "3f2b0c1e-0000-4000-8000-000000000000", "labels": ["production", "staging"], "owner": "ada"}
    best = version(12).model_copy(update=facts)
    printing.print_found([best], "accuracy")
    head, _, row = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "Model",
        "Version",
        "accuracy",
        "Semver",
        "Labels",
        "Experiment",
        "Step",
        "Registered",
        "By",
    ]
    assert row.split()[:3] == ["digits", "12", "0.5"]
    assert max(len(head.rstrip()), len(row.rstrip())) <= 120


def test_a_metric_of_the_validation_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    printing.print_version(version())
    shown = capsys.readouterr().out.partition("Metric")[2].splitlines()[2:]
    names = [line.split()[0] for line in shown]
    assert names == ["accuracy", "training.loss", "validation.f1"]
    rows = [Difference(name=name, values=[value, value], same=True) for name, value in METRICS.items()]
    printing.print_comparison(Comparison(versions=[version(1), version(2)], metrics=rows))
    compared = capsys.readouterr().out
    assert "validation.accuracy" not in compared
    assert "validation.f1" in compared


def test_one_version_alone_is_not_compared_with_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """As where `staging` is the newest version, too."""
    rows = [Difference(name="accuracy", values=[0.5, 0.5], same=True)]
    printing.print_comparison(Comparison(versions=[version(3), version(3)], metrics=rows))
    assert capsys.readouterr().out == "There is nothing to compare: this is version 3 of digits alone.\n"


@pytest.mark.parametrize("name", ["../x", "a@b", "", "x" * 300])
def test_a_name_that_no_model_can_have_is_explained(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        registry.create_model(name=name)
    (problem,) = caught.value.problems
    assert problem.path == "name"
    assert "letters, digits, spaces" in problem.message
    assert "pydantic" not in str(caught.value)


def test_each_field_that_cannot_be_written_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        registry.edit_model("digits", name="a/b", notes="x" * 10_000_000)
    assert {problem.path for problem in caught.value.problems} == {"name", "notes"}


def test_a_folder_without_a_file_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "exported" / "below").mkdir(parents=True)
    words = ["digits", "--folder", str(tmp_path / "exported")]
    refused = CliRunner().invoke(register, words, obj=Invocation(_client=None))
    assert refused.exit_code == 2
    assert "there is no file in the folder" in refused.output


def test_a_problem_that_the_headline_tells_is_not_told_again(capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem("semver", "'1.2' is no semantic version")
    failures.show(ConfigError([problem], "'1.2' is no semantic version"))
    failures.show(ConfigError([problem], "this cannot be written about a version"))
    assert capsys.readouterr().err.splitlines() == [
        "Error: '1.2' is no semantic version",
        "Error: this cannot be written about a version",
        "  semver: '1.2' is no semantic version",
    ]
