"""The page on headless runs: its notebook through plain papermill, once well and once with a failure."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from docs_snippets import DOCS, blocks

from testbed.cluster import Cluster

pytestmark = pytest.mark.hub

PAGE = DOCS / "how-to" / "run-headless.md"


def write_notebook(path: Path, *, last_words: str = "") -> None:
    """The page's cells as a notebook, its first one tagged; `last_words` end the training code."""
    texts = [block.text.rstrip("\n") for block in blocks(PAGE, "python")]
    texts = [f"{text}\n{last_words}" if text.startswith("%%det_module") else text for text in texts]
    cells = [nbformat.v4.new_code_cell(text) for text in texts]
    cells[0].metadata["tags"] = ["parameters"]
    made = nbformat.v4.new_notebook(cells=cells)
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(made, path)


def papermill(cluster: Cluster, folder: Path) -> subprocess.CompletedProcess[str]:
    """The page's command in `folder`, with the two variables that it names and no `.detlab` near."""
    ((_, *arguments),) = [
        shlex.split(line)
        for block in blocks(PAGE, "sh")
        for line in block.text.splitlines()
        if line.startswith("papermill")
    ]
    return subprocess.run(
        [sys.executable, "-m", "papermill", *arguments, "--no-progress-bar"],
        cwd=folder,
        env={**cluster.environment, "DET_URL": cluster.url, "DET_TOKEN": cluster.token},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_notebook_of_the_page_runs_and_keeps_its_picture(docs_cluster: Cluster, tmp_path: Path) -> None:
    write_notebook(tmp_path / "notebook.ipynb")
    done = papermill(docs_cluster, tmp_path)
    assert done.returncode == 0, done.stderr
    cells = nbformat.read(tmp_path / "out.ipynb", as_version=4).cells
    (view,) = [output for output in cells[-1].outputs if output.output_type == "display_data"]
    assert "2/2 trials · completed" in view.data["text/plain"]


def test_a_search_that_fails_is_papermills_exit_status_and_a_card(docs_cluster: Cluster, tmp_path: Path) -> None:
    write_notebook(tmp_path / "notebook.ipynb", last_words='raise RuntimeError("no luck")')
    done = papermill(docs_cluster, tmp_path)
    assert done.returncode != 0
    executed = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    shown = "".join(str(output.get("data", "")) for cell in executed.cells for output in cell.get("outputs", []))
    assert "failed (exception) at cell 4, line 7" in shown
    assert "RuntimeError: no luck" in shown
