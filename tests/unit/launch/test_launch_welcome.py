"""What a newcomer's file browser gets, and who is none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from detlab.launch.welcome import FOLDER, NOTEBOOK, notebook_of, sources, welcome

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits_trial" / "train.py"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "state" / "welcomed"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


def test_an_empty_file_browser_gets_the_tutorial_and_the_examples_once(root: Path, notes: Path) -> None:
    (root / ".hidden").touch()
    (root / "venv").mkdir()
    (root / "venv" / "pyvenv.cfg").touch()
    target = welcome(root, notes)
    assert target == root / FOLDER
    assert {path.name for path in target.iterdir()} == {NOTEBOOK, "digits_search.ipynb", "digits_trial"}
    assert (target / "digits_trial" / "train.py").read_text() == (
        Path(__file__).parents[3] / "examples/digits_trial/train.py"
    ).read_text()
    assert not [path for path in root.iterdir() if path.name.startswith(".detlab")]
    shutil.rmtree(target)
    assert welcome(root, notes) is None, "what a user has removed does not come back"
    assert not target.exists()


def test_who_has_files_gets_none_and_loses_none(root: Path, notes: Path) -> None:
    (root / FOLDER).mkdir()
    (root / FOLDER / NOTEBOOK).write_text("mine")
    assert welcome(root, notes) is None
    assert (root / FOLDER / NOTEBOOK).read_text() == "mine"
    assert not notes.exists()


def test_each_folder_is_welcomed_by_itself(root: Path, notes: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert welcome(root, notes) is not None
    assert welcome(other, notes) is not None
    assert notes.read_text().splitlines() == [str(root), str(other)]


def test_the_tutorial_is_a_notebook_with_its_code_in_cells() -> None:
    found = sources()
    assert found is not None
    notebook: Any = notebook_of(found[0].read_text(encoding="utf-8"))
    nbformat.validate(nbformat.from_dict(json.loads(json.dumps(notebook))))
    code = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [text.split()[0] for text in code[:4]] == ["%load_ext", "%det", "%%det_module", "%%writefile"]
    assert code[3].startswith("%%writefile search.yaml\nname: first-search\n")
    prose = "\n".join(cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    assert "begin with step 2" in prose
    assert "](../" not in prose, "a link between pages leads nowhere here"
    assert "det up --slots 2" in prose


def test_a_notebook_names_the_pages_that_it_links_to_and_the_examples_beside_it() -> None:
    text = (
        "See [A page](../how-to/run-headless.md#top), [code](../../examples/core_api/README.md), [web](https://x.org)."
    )
    notebook = notebook_of(f"{text}\n\n```sh\npapermill examples/digits_search.ipynb out.ipynb\n```\n")
    [cell] = notebook["cells"]
    assert (
        "See A page (`docs/how-to/run-headless.md`), code (`examples/core_api/README.md`), [web](https://x.org)."
        in (cell["source"])
    )
    assert "\npapermill digits_search.ipynb out.ipynb\n" in cell["source"]


def test_without_the_sources_there_is_nothing_to_give(tmp_path: Path) -> None:
    assert sources(tmp_path / "site-packages" / "detlab") is None


def test_nothing_of_it_is_imported_by_an_ordinary_task() -> None:
    code = "import sys, detlab.launch.task; print('detlab.launch.welcome' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "False\n"
