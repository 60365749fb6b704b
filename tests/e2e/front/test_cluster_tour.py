"""The tour of the cluster, executed anew; and what of it is kept in the project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "examples" / "cluster_tour.ipynb"


def code(path: Path) -> list[Any]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def said(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def test_the_kept_notebook_is_an_executed_one_that_names_no_place_of_a_machine() -> None:
    cells = code(KEPT)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [cell.id for cell in cells if any(output.output_type == "error" for output in cell.outputs)]
    told = "\n".join(map(said, cells))
    for word in (
        "preempted",
        "no_free_slots",
        "at_quota",
        "fair_share",
        "would start now",
        "drained",
        "Failed",
        "elastic",
        "log policy 'exploded'",
        "no agent has the labels",
        "5000 CPUs",
        "1/2 of cpu0",
        "was lost with agent node-2",
        "round_robin",
        "preferred: node-2  required: node-1",
        "no agent has label rack in {r8, r9}",
        "group students holds 2 of a quota of 2 slots",
        "Failed (hang): rank 1",
        "attempt 1, 0 restarts",
        "removed by retention",
        "Created experiment 10, a fork of experiment 9",
        "undo: det experiment unarchive 9",
    ):
        assert word in told
    text = KEPT.read_text(encoding="utf-8")
    for place in ("/tmp/", "/root/", "/home/", "/usr/", str(ROOT)):
        assert place not in text


@pytest.mark.hub
@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.skipif(os.geteuid() != 0, reason="tasks of two users need root")
def test_the_tour_is_executed_anew(tmp_path: Path, meeting_place: Path) -> None:
    """Every cell asserts what it shows. In a folder that everybody may enter: checkpoints go from node to node."""
    out = meeting_place / "tour"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DET_", "JUPYTERHUB_"))}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "run_tour.py"), "--out", str(out)],
        env={**env, "HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    again = code(out / KEPT.name)
    assert [cell.source for cell in again] == [cell.source for cell in code(KEPT)]
    assert all(cell.execution_count for cell in again)
