"""What JupyterLab's form says of a notebook that is to be run as a task."""

import json
from pathlib import Path

from detlab.client import AsyncClient
from detlab.testing.api import FakeMaster
from detlab_server.submission import JudgeBody, judge


async def problems(root: Path, path: str | None, config: str = "resources: {slots: 1}\n") -> list[dict[str, str]]:
    body = JudgeBody(config=config, kind="notebook_run", notebook="run.ipynb", path=path)
    with FakeMaster() as master:
        async with AsyncClient(master.url, master.token) as client:
            return list((await judge(client, str(root), body))["problems"])


async def test_a_notebook_whose_cells_ask_the_cluster_has_no_mistakes(tmp_path: Path) -> None:
    """Its run has a token of its own for them."""
    cells = [{"cell_type": "code", "source": source} for source in ("x = 1", "%%det_experiment\nentrypoint: true")]
    (tmp_path / "run.ipynb").write_text(json.dumps({"nbformat": 4, "cells": cells}))
    assert await problems(tmp_path, "run.ipynb") == []


async def test_a_file_that_is_no_notebook_any_more_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "run.ipynb").write_text("{")
    [broken] = await problems(tmp_path, "run.ipynb")
    assert broken["level"] == "error"
    [missing] = await problems(tmp_path, "gone.ipynb")
    assert "gone.ipynb" in missing["message"]
