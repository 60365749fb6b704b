"""`det model export`: options, files and messages; the version comes from a stand-in of the client."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from detlab.cli.commands.registry.export import export
from detlab.cli.invocation import Invocation
from detlab.errors import DetlabError
from detlab.schemas.wire.registry import Lineage, VersionView


class Version:
    """What the client returns for a version: its view, and files to download."""

    def __init__(self) -> None:
        self.view = VersionView(
            model_id=1, model="digits", version=3, created_at=1.0, lineage=Lineage(metrics={"accuracy": 0.5})
        )
        self.downloads: list[Path] = []

    def download(self, path: Path) -> Path:
        self.downloads.append(path)
        path.mkdir()
        (path / "weights.json").write_text("[1, 2]")
        return path


class Client:
    def __init__(self, version: Version) -> None:
        self.version = version
        self.asked: list[str] = []

    def get_model_version(self, reference: str) -> Version:
        self.asked.append(reference)
        return self.version


@pytest.fixture
def version() -> Version:
    return Version()


Run = Callable[..., Result]


@pytest.fixture
def run(version: Version) -> Run:
    def run(*words: object, text: str | None = None) -> Result:
        client: Any = Client(version)
        return CliRunner().invoke(export, [str(word) for word in words], obj=Invocation(_client=client), input=text)

    return run


def test_cards_and_bills_are_printed_or_written_and_nothing_stays(run: Run, version: Version, tmp_path: Path) -> None:
    done = run("digits@production", "--to", "card")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("---\n")
    assert "\n# digits version 3\n" in done.stdout
    assert "weights.json" in done.stdout
    done = run("digits@3", "--to", "bom", "-o", tmp_path / "bom.json")
    assert done.stdout == f"digits version 3 as bom: {tmp_path}/bom.json\n"
    assert json.loads((tmp_path / "bom.json").read_text())["bomFormat"] == "CycloneDX"
    assert len(version.downloads) == 2
    assert not any(path.exists() for path in version.downloads)
    again = run("digits@3", "--to", "card", "-o", tmp_path / "bom.json")
    assert isinstance(again.exception, DetlabError)
    assert "exists already" in str(again.exception)


def test_files_that_are_here_are_not_downloaded(run: Run, version: Version, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "other.json").write_text("{}")
    done = run("digits", "--to", "card", "--folder", tmp_path / "mine", "--json")
    assert "other.json" in json.loads(done.stdout)["text"]
    assert version.downloads == []
    assert (tmp_path / "mine" / "other.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "mlflow"], "needs a folder to create: -o FOLDER"),
        (["--to", "oci"], "needs a place to push to"),
        (["--to", "oci", "--registry", "h/a", "-o", "x"], "writes no file"),
        (["--to", "card", "--run-code"], "--run-code is for --to mlflow"),
        (["--to", "bom", "--model", "0"], "--model is for --to mlflow"),
        (["--to", "mlflow", "-o", "x", "--plain-http"], "--plain-http is for --to oci"),
        (["--to", "oci", "--registry", "h/a", "--username", "ada"], "go together"),
        (["--to", "oci", "--registry", "h/a", "--password-stdin"], "go together"),
    ],
)
def test_options_that_do_not_go_together_are_told_before_anything_is_fetched(
    words: list[str], message: str, run: Run, version: Version
) -> None:
    done = run("digits@3", *words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert version.downloads == []


def test_what_cannot_be_traced_says_why_and_leaves_nothing(run: Run, version: Version, tmp_path: Path) -> None:
    done = run("digits@3", "--to", "mlflow", "-o", tmp_path / "out")
    assert "the model cannot be traced" in str(done.exception)
    assert not any("out" in path.name for path in tmp_path.iterdir())
    assert not version.downloads[0].exists()


def test_an_empty_password_is_told_and_none_is_shown(run: Run) -> None:
    words = ("digits@3", "--to", "oci", "--registry", "127.0.0.1:1/a", "--username", "ada", "--password-stdin")
    assert "no password on standard input" in str(run(*words, text="\n").exception)


def test_the_commands_of_the_how_to_are_commands() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "export-a-model.md").read_text()
    lines = re.findall(r"^det model export (.+)$", page, re.MULTILINE)
    assert len(lines) == 5
    for line in lines:
        words = [word for word in shlex.split(line) if word != "batch.npy"]
        if "--example" in words:
            words.remove("--example")
        export.make_context("export", words)
