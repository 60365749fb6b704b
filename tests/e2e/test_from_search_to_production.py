"""examples/from_search_to_production.ipynb runs headless: search, collection, registry, exports, a batch served."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from spine_lab import Lab

pytestmark = [pytest.mark.hub, pytest.mark.slow, pytest.mark.timeout(420)]

NOTEBOOK = Path(__file__).parents[2] / "examples" / "from_search_to_production.ipynb"
BIN = Path(sys.executable).parent


def run(lab: Lab, folder: Path) -> dict[str, str]:
    """Run the notebook; return what each cell has printed, by its id."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
    where = {"DET_URL": lab.cluster.url, "DET_TOKEN": lab.cluster.token, "HOME": str(folder)}
    command = [BIN / "papermill", NOTEBOOK, folder / "out.ipynb", "-p", "trials", "3", "-p", "epochs", "4"]
    done = subprocess.run(
        [*command, "--kernel", "python3", "--cwd", str(folder), "--no-progress-bar"],
        env={**kept, **where, "PATH": f"{BIN}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    cells = nbformat.read(folder / "out.ipynb", as_version=4).cells
    return {cell["id"]: "".join(out.get("text", "") for out in cell.get("outputs", [])) for cell in cells} | {
        "table": next(cell for cell in cells if cell["id"] == "compare")["outputs"][0]["data"]["text/markdown"]
    }


@pytest.mark.soak
def test_a_search_becomes_a_model_in_production(lab: Lab, tmp_path: Path) -> None:
    said = run(lab, tmp_path)
    assert "COMPLETED" in said["search"]
    assert "3 checkpoints of" in said["preview"], "of each trial one of two goes"
    assert said["preview"].count(": keep") == 3
    assert "3 checkpoints are in the trash now" in said["collect"]
    assert "digits-for-production" in said["collect"]
    assert "a model in the registry" in said["register"]
    assert "| metric | validation.accuracy |" in said["table"]
    assert "1 -> 2" in said["promote"]
    assert "None -> 1" in said["promote"]
    assert "the best by accuracy: digits 2" in said["promote"]
    assert "MLmodel" in said["export"]
    assert json.loads((tmp_path / "production" / "bom.json").read_text())["bomFormat"] == "CycloneDX"
    right = said["serve"].split("397 digits, ")[1]
    assert int(right.partition("%")[0]) > 50
