"""`make demo`, smaller: the same script with four trials, on a cluster and folders of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from detlab.testing.ports import free_port

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

pytestmark = [pytest.mark.hub, pytest.mark.slow, pytest.mark.timeout(420)]


def demo(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DET_", "JUPYTERHUB_"))}
    command = [sys.executable, str(ROOT / "examples" / "run_demo.py"), "--out", str(tmp_path / "out"), *options]
    return subprocess.run(
        [*command, "--dir", str(tmp_path / "cluster"), "--slots", "2"],
        env={**env, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_demo_leaves_notebook_picture_table_and_checkpoint(tmp_path: Path) -> None:
    try:
        done = demo(tmp_path, "--trials", "4", "--port", str(free_port()))
    finally:
        subprocess.run([BIN / "det", "down", "--dir", tmp_path / "cluster"], check=False, capture_output=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    notebook = nbformat.read(tmp_path / "out" / "digits_search.ipynb", as_version=4)
    outputs = {cell["id"]: cell.get("outputs", []) for cell in notebook.cells}
    frozen = [out["data"] for out in outputs["search"] if "image/svg+xml" in out.get("data", {})]
    assert len(frozen) == 1
    assert "4/4 trials · completed" in frozen[0]["text/plain"]
    assert "<table" in frozen[0]["text/html"]
    score = "".join(out["text"] for out in outputs["score"])
    assert float(score.split("accuracy ")[1].split(",")[0]) >= 0.97
    assert (tmp_path / "out" / "best-checkpoint" / "model.safetensors").exists()
    for said in ("digits-search: COMPLETED", str(tmp_path / "out" / "digits_search.html"), "/services/detlab/", "lr="):
        assert said in done.stdout


def test_the_demo_says_honestly_that_it_could_not_start(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = demo(tmp_path, "--port", str(taken.getsockname()[1]))
    assert done.returncode != 0
    assert "taken" in done.stdout + done.stderr
    assert not (tmp_path / "out" / "digits_search.ipynb").exists()
