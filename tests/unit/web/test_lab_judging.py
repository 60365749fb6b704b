"""What JupyterLab's form says of a notebook that is to be run as a task."""

import json
from pathlib import Path
from typing import Any

from detlab.client import AsyncClient
from detlab_server.submission import JudgeBody, judge
from testbed.fake_master.api import FakeMaster


async def problems(root: Path, path: str | None, config: str = "resources: {slots: 1}\n") -> list[dict[str, str]]:
    body = JudgeBody(config=config, kind="notebook_run", notebook="run.ipynb", path=path)
    with FakeMaster() as master:
        async with AsyncClient(master.url, master.token) as client:
            return list((await judge(client, str(root), body))["problems"])


async def test_a_notebook_whose_cells_ask_the_cluster_has_no_mistakes(tmp_path: Path) -> None:
    """Its run has a token of its own for them; it is told that the run itself holds no slots."""
    cells = [{"cell_type": "code", "source": source} for source in ("x = 1", "%%det_experiment\nentrypoint: true")]
    (tmp_path / "run.ipynb").write_text(json.dumps({"nbformat": 4, "cells": cells}))
    [told] = await problems(tmp_path, "run.ipynb")
    assert (told["path"], told["level"]) == ("resources.slots", "warning")
    assert told["message"] == "code cell 2 asks the cluster for slots, so the run itself holds none"


async def test_a_file_that_is_no_notebook_any_more_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "run.ipynb").write_text("{")
    [broken] = await problems(tmp_path, "run.ipynb")
    assert broken["level"] == "error"
    [missing] = await problems(tmp_path, "gone.ipynb")
    assert "gone.ipynb" in missing["message"]


async def judged(root: Path, parameters: dict[str, object]) -> dict[str, Any]:
    body = JudgeBody(config="", kind="notebook_run", notebook="run.ipynb", path="run.ipynb", parameters=parameters)
    with FakeMaster() as master:
        async with AsyncClient(master.url, master.token) as client:
            return await judge(client, str(root), body)


async def test_names_and_types_of_parameters_are_judged_by_the_notebook(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": "lr = 0.1\nepochs = 3"}
    (tmp_path / "run.ipynb").write_text(json.dumps({"nbformat": 4, "cells": [cell]}))
    answer = await judged(tmp_path, {"lrr": 2, "epochs": "x"})
    assert [(one["path"], one["message"], one["hint"]) for one in answer["problems"]] == [
        ("parameters", "lrr: the notebook has no such parameter", "did you mean lr?"),
        ("parameters", "epochs: must be of type int, not str", "its default is 3"),
    ]
    assert answer["parameters"] == [
        {"name": "lr", "type": "float", "default": "0.1"},
        {"name": "epochs", "type": "int", "default": "3"},
    ]
    assert (await judged(tmp_path, {"lr": 2, "epochs": 5}))["problems"] == []


async def test_a_notebook_without_a_cell_of_parameters_takes_none(tmp_path: Path) -> None:
    (tmp_path / "run.ipynb").write_text(
        json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "source": "x = 1"}]})
    )
    answer = await judged(tmp_path, {"x": 2})
    assert [one["message"] for one in answer["problems"]] == ["no cell is tagged `parameters`"]
    assert answer["parameters"] is None
