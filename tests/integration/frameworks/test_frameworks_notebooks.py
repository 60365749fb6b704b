"""The notebooks of examples/frameworks, run without a page in the environment that has their framework."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from framework_task import EXAMPLES, PYTHON, ROOT

PYTHONS = {
    "deepspeed": ROOT / ".venv-deepspeed" / "bin" / "python",
    "keras": PYTHON,
    "lightning": PYTHON,
    "sklearn": Path(sys.executable),
    "transformers": PYTHON,
}


def test_each_framework_has_a_notebook_without_outputs() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == set(PYTHONS)
    for path in EXAMPLES.glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")], path


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", ["sklearn", *(pytest.param(name, marks=pytest.mark.soak) for name in PYTHONS if name != "sklearn")]
)
def test_a_notebook_runs_to_its_end(name: str, tmp_path: Path) -> None:
    if not PYTHONS[name].exists():
        assert "CI" not in os.environ, "make setup-test makes the environments of the frameworks"
        pytest.skip("no environment with this framework: make setup-test")
    folder = tmp_path / "frameworks"
    shutil.copytree(EXAMPLES, folder)
    base = {key: value for key, value in os.environ.items() if not key.startswith(("DET_", "JUPYTER_", "KERAS_"))}
    done = subprocess.run(
        [PYTHONS[name], "-m", "nbconvert", "--to", "notebook", "--execute", "--output", "done", f"{name}.ipynb"],
        cwd=folder,
        env={
            **base,
            "HF_HUB_OFFLINE": "1",
            "HOME": str(tmp_path),
            "IPYTHONDIR": str(tmp_path / "ipython"),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT / "harness"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert "accuracy " in (folder / "done.ipynb").read_text() or name == "deepspeed"
