"""What can be imported are plug-ins: each in a package of its own; another distribution's is found like ours."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from detlab.cli.commands.config import config
from detlab.schemas.expconf import load_yaml
from detlab.schemas.imports import KINDS, ImportKind, kinds

ROOT = Path(__file__).resolve().parents[4]
THEIRS = """
from detlab.schemas.imports import ImportKind, Ledger

def convert(ledger):
    ledger.kept(("study",))
    config = {"name": ledger.text(("study",)), "entrypoint": "python3 t.py"}
    return {**config, "searcher": {"name": "single", "metric": "loss"}}

def recognises(raw):
    return "study" in raw or "method" in raw

SHAPE = lambda path: ".".join(map(str, path))
STUDY = ImportKind("study", "`study`", recognises, lambda raw: Ledger(raw, {"study": "name"}, {}, SHAPE), convert)
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with an import of its own, whose name comes before all of ours."""
    (tmp_path / "their_studies.py").write_text(THEIRS)
    info = tmp_path / "their_studies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-studies\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{KINDS.group}]\na_study = their_studies:STUDY\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        KINDS.forget()
        yield
    KINDS.forget()
    sys.modules.pop("their_studies", None)


def test_the_names_of_detlab_itself_are_its_entry_points() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"][KINDS.group] == KINDS.built_in
    for name in KINDS.built_in:
        assert isinstance(KINDS.load(name), ImportKind)
        assert KINDS.built_in[name].startswith(f"detlab.schemas.imports.{name}.")


@pytest.mark.parametrize(("one", "other"), [("katib", "wandb"), ("wandb", "katib")])
def test_no_import_needs_another(one: str, other: str) -> None:
    code = f"""
import sys
from detlab.schemas.imports import KINDS
assert not any(name in str(sys.modules) for name in ("imports.katib", "imports.wandb"))
KINDS.load({one!r})
assert "detlab.schemas.imports.{other}" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.usefixtures("theirs")
def test_a_file_of_another_package_s_kind_is_imported() -> None:
    done = CliRunner().invoke(config, ["import", "-"], input="study: s\nseed: 1\n")
    assert done.exit_code == 0, done.stderr
    assert load_yaml(done.stdout)[0]["name"] == "s"
    assert "a study" in done.stdout
    assert "seed: unknown here: it has no counterpart" in done.stdout
    refused = CliRunner().invoke(config, ["import", "-"], input="a: 1\n")
    assert "neither a Katib Experiment nor a W&B sweep nor a study" in refused.stderr


@pytest.mark.usefixtures("theirs")
def test_no_package_takes_a_file_that_detlab_itself_recognises() -> None:
    assert list(kinds()) == ["katib", "wandb", "a_study"]
    done = CliRunner().invoke(config, ["import", "-", "--json"], input="method: random\nparameters: {x: {value: 1}}\n")
    assert '"kind": "wandb"' in done.stdout, done.stderr
