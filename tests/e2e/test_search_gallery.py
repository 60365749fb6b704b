"""examples/search_gallery.ipynb runs headless: every search method of the cluster, its picture, and what it cost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from spine_lab import Lab

from detlab.schemas.expconf.blocks.searchers import BUILT_IN

pytestmark = [pytest.mark.hub, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(420)]

NOTEBOOK = Path(__file__).parents[2] / "examples" / "search_gallery.ipynb"
BIN = Path(sys.executable).parent


def run(lab: Lab, folder: Path) -> nbformat.NotebookNode:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
    where = {"DET_URL": lab.cluster.url, "DET_TOKEN": lab.cluster.token, "HOME": str(folder)}
    command = [BIN / "papermill", NOTEBOOK, folder / "out.ipynb", "-p", "trials", "3", "-p", "epochs", "3"]
    done = subprocess.run(
        [*command, "--kernel", "python3", "--cwd", str(folder), "--no-progress-bar"],
        env={**kept, **where, "PATH": f"{BIN}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return nbformat.read(folder / "out.ipynb", as_version=4)


def test_every_method_of_the_cluster_has_a_picture_and_a_line_in_the_table(lab: Lab, tmp_path: Path) -> None:
    notebook = run(lab, tmp_path)
    outputs = {cell["id"]: cell.get("outputs", []) for cell in notebook.cells}
    methods = sorted(set(BUILT_IN) - {"single", "custom"})
    said = "".join(out["text"] for out in outputs["run"])
    assert [name for name in methods if f"{name:14} experiment" not in said] == []
    assert said.count(": COMPLETED") == len(methods)
    drawn = [
        out for out in outputs["pictures"] if {"application/vnd.plotly.v1+json", "image/svg+xml"} & set(out["data"])
    ]
    assert len(drawn) == len(methods)
    table = outputs["table"][0]["data"]["text/markdown"].splitlines()[2:]
    assert sorted(line.split(" | ")[0].removeprefix("| ") for line in table) == methods
