"""examples/governed_learning.ipynb runs headless: a plan, refusals, three trainings, evidence, a source taken out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from spine_lab import Lab

pytestmark = [pytest.mark.hub, pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(420)]

NOTEBOOK = Path(__file__).parents[2] / "examples" / "governed_learning.ipynb"
BIN = Path(sys.executable).parent


def test_a_policy_is_shown_broken_trained_under_verified_and_a_source_taken_out(lab: Lab, tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
    where = {"DET_URL": lab.cluster.url, "DET_TOKEN": lab.cluster.token, "HOME": str(tmp_path)}
    command = [BIN / "papermill", NOTEBOOK, tmp_path / "out.ipynb", "-p", "epochs", "3"]
    done = subprocess.run(
        [*command, "--kernel", "python3", "--cwd", str(tmp_path), "--no-progress-bar"],
        env={**kept, **where, "PATH": f"{BIN}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    outputs = {one["id"]: one.get("outputs", []) for one in nbformat.read(tmp_path / "out.ipynb", as_version=4).cells}
    said = {name: "".join(one.get("text", "") for one in found) for name, found in outputs.items()}
    picture = next(one["data"] for one in outputs["plan"] if "data" in one)
    assert "image/svg+xml" in picture
    assert "open, isolated" in picture["text/plain"]
    assert "LEVEL: 'partner' is isolated in a part of what it trains, and not in head.weight" in said["broken"]
    assert "LEAK: body.0.weight got a gradient that the router did not give it" in said["around"]
    results = next(one["data"]["text/plain"] for one in outputs["results"] if "data" in one)
    assert all(name in results for name in ("governed", "open", "placebo", "gov/canary_auc"))
    assert "the evidence is in order" in said["verify"]
    assert "adapter.1" in said["verify"]
    assert "are bit-equal, and so are the samples" in said["replay"]
    assert "warning" not in said["replay"]
    assert "4 tensors of partner are zeros now" in said["ablate"]
    assert "'web' cannot be taken out" in said["ablate"]
    assert "what it adds for a partner's image: 0.0" in said["without"]
