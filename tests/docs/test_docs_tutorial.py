"""The tutorial, run as printed: its cells in a real kernel, its files and commands in a folder, on a real cluster."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import nbclient
import nbformat
import pytest
from docs_snippets import DOCS, blocks

from testbed.cluster import Cluster

pytestmark = [pytest.mark.hub, pytest.mark.timeout(400)]

PAGE = DOCS / "tutorial" / "your-first-search.md"


@pytest.fixture(scope="module")
def folder(docs_cluster: Cluster) -> Path:
    """Where the reader of the tutorial works, with the file that they saved."""
    (search,) = blocks(PAGE, "yaml")
    (docs_cluster.root / "search.yaml").write_text(search.text, encoding="utf-8")
    return docs_cluster.root


@pytest.fixture(scope="module")
def notebook(docs_cluster: Cluster, folder: Path) -> nbformat.NotebookNode:
    """The tutorial's cells, executed headless in one kernel, in order."""
    cells = [nbformat.v4.new_code_cell(block.text.rstrip("\n")) for block in blocks(PAGE, "python")]
    made = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(
        made, timeout=150, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    return client.execute(env=docs_cluster.environment)


def outputs(notebook: nbformat.NotebookNode, start: str) -> list[nbformat.NotebookNode]:
    """The outputs of the cell that starts so."""
    (cell,) = [cell for cell in notebook.cells if cell.source.startswith(start)]
    found: list[nbformat.NotebookNode] = cell.outputs
    return found


def printed(notebook: nbformat.NotebookNode, start: str) -> str:
    """What the cell that starts so printed."""
    return "".join(output.text for output in outputs(notebook, start) if output.output_type == "stream")


def commands(start: str) -> list[list[str]]:
    """The commands of the page that start so."""
    lines = [line for block in blocks(PAGE, "sh") for line in block.text.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith(start)]


@pytest.mark.parametrize("start", ["det config check", "det preview-search"])
def test_the_commands_about_the_saved_file_do_what_the_page_says(
    docs_cluster: Cluster, folder: Path, start: str
) -> None:
    ((_, *arguments),) = commands(start)
    done = docs_cluster.det(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    if start == "det preview-search":
        lines = done.stdout.splitlines()
        assert sum("stopped at" in line and "│" in line for line in lines) == 8
        assert "of full training" in done.stdout


def test_det_names_the_cluster_the_slots_and_the_magics(docs_cluster: Cluster, notebook: nbformat.NotebookNode) -> None:
    (output,) = outputs(notebook, "%det")
    text = output.data["text/plain"]
    assert docs_cluster.url in text
    assert docs_cluster.user in text
    assert "of 2 slots in use" in text
    assert "%%det_module" in text


def test_the_cell_of_the_module_only_becomes_one(notebook: nbformat.NotebookNode) -> None:
    assert printed(notebook, "%%det_module train").startswith("module train: ")


def test_the_search_ends_as_a_still_picture_with_a_table(notebook: nbformat.NotebookNode) -> None:
    (view,) = [o for o in outputs(notebook, "%%det_experiment") if o.output_type == "display_data"]
    assert "8/8 trials · completed" in view.data["text/plain"]
    # The seed is drawn anew each time: nearly always some trials are stopped early, but nothing promises it.
    states = [line for line in view.data["text/plain"].splitlines() if "stopped early" in line or " completed" in line]
    assert len(states) == 9, "the progress line and 8 trials"
    assert view.data["image/svg+xml"].startswith("<svg")
    assert "<table" in view.data["text/html"]


def test_the_best_model_comes_back_and_is_good(notebook: nbformat.NotebookNode) -> None:
    assert "epochs, loss 0." in printed(notebook, "search.wait()")
    score = printed(notebook, "import joblib")
    assert float(score.rpartition(" ")[2]) >= 0.9, score


def test_the_papermill_command_names_a_notebook_with_that_parameter(folder: Path) -> None:
    ((_, path, _, *parameters),) = commands("papermill")
    notebook = nbformat.read(DOCS.parent / path, as_version=4)
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    assert parameters[0] == "-p"
    assert f"{parameters[1]} = " in cell.source


def test_set_up_is_a_target_that_there_is_and_pip_names_an_extra_that_there_is() -> None:
    ((_, target, *_),) = commands("make ")
    assert f"\n{target}:" in (DOCS.parent / "Makefile").read_text(encoding="utf-8")
    (requirement,) = re.findall(r"`pip install '([^']+)'`", PAGE.read_text(encoding="utf-8"))
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert requirement in [f"{project['name']}[{extra}]" for extra in project["optional-dependencies"]]
