"""Runs from anywhere beside trials and experiments in a comparison: metrics, settings, curves, and who sees what."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from detlab.client import Client
from detlab_hub.services.comparison.sides import placed, setting
from detlab_hub.services.views import pages
from detlab_magics import comparing as magic
from detlab_magics.errors import MagicError


@pytest.fixture
def db_url(sqlite_url: str) -> str:
    """One database: what of it differs between two is in the tests of the store."""
    return sqlite_url


DET = os.fspath(Path(sys.executable).with_name("det"))
METRICS = {"loss": [0.9, 0.5], "val_acc": [0.1, 0.8], "validation/f1": [0.2, 0.3], "system/cpu": [50.0, 60.0]}


async def logged(ask: Any, name: str, **params: str) -> str:
    """Return the id of a run that has logged two values of each metric."""
    _, made = await ask("POST", "runs/create", experiment_id="0", run_name=name, start_time=1_000_000)
    run_id: str = made["run"]["info"]["run_id"]
    points = [
        {"key": key, "value": value, "timestamp": 1_000_000 + 1000 * step, "step": step}
        for key, values in METRICS.items()
        for step, value in enumerate(values)
    ]
    tags = [{"key": "stage", "value": "test"}, {"key": "mlflow.note.content", "value": "long"}]
    said = [{"key": key, "value": value} for key, value in params.items()]
    status, reply = await ask("POST", "runs/log-batch", run_id=run_id, metrics=points, params=said, tags=tags)
    assert status == 200, reply
    return run_id


async def compared(ask: Any, path: str = "comparison", status: int = 200, **asked: Any) -> Any:
    reply = await ask.http.get(f"api/v1/{path}", params=asked)
    assert reply.status_code == status, reply.text
    return reply.json()


async def test_runs_stand_beside_trials_with_the_metrics_that_both_have(door: Any) -> None:
    alice = door.of("alice")
    trial = await door.trial()
    in_trial = door.of(trial.token)
    points = [{"key": "loss", "value": 0.7, "timestamp": 1_000_000, "step": 1}]
    status, reply = await in_trial("POST", "runs/log-batch", run_id=f"{trial.id:032x}", metrics=points)
    assert status == 200, reply
    run = await logged(alice, "on a laptop", lr="0.1", deep="True", optimizer="adam")
    found = await compared(alice, trials=trial.id, runs=run)
    assert [(one["kind"], one["id"], one["run_id"], one["name"]) for one in found["runs"]] == [
        ("trial", trial.id, "", found["runs"][0]["name"]),
        ("run", 0, run, "on a laptop"),
    ]
    side = found["runs"][1]
    assert side["hparams"] == {"deep": True, "lr": 0.1, "optimizer": "adam"}
    assert (side["state"], side["steps_completed"], side["started_at"], side["owner"]) == (
        "RUNNING",
        1,
        1000.0,
        "alice",
    )
    values = {(row["group"], row["name"]): row["values"] for row in found["metrics"]}
    mine, theirs = values["validation", "loss"]
    assert (mine["last"], theirs["last"], theirs["best"], theirs["min"]) == (0.7, 0.5, 0.5, None), "the searched metric"
    assert values["validation", "val_acc"][1]["last"] == 0.8
    assert values["validation", "f1"][1]["last"] == 0.3
    assert values["system", "cpu"][1]["last"] == 60.0
    tags = {row["name"]: row["values"] for row in found["config"] if row["name"].startswith("tags.")}
    assert tags == {"tags.stage": [None, "test"]}
    named = await compared(alice, runs=run, metric="f1")
    assert [(row["group"], row["name"]) for row in named["metrics"]] == [("validation", "f1")]


async def test_curves_of_runs_come_after_those_of_trials_and_in_parts(door: Any, monkeypatch: Any) -> None:
    alice = door.of("alice")
    trial = await door.trial()
    in_trial = door.of(trial.token)
    points = [{"key": "loss", "value": 0.7, "timestamp": 1_000_000, "step": 1}]
    await in_trial("POST", "runs/log-batch", run_id=f"{trial.id:032x}", metrics=points)
    runs = [await logged(alice, f"run {i}") for i in range(3)]
    asked = {"trials": trial.id, "runs": ",".join([*runs, "nowhere"]), "name": "loss", "group": "validation"}
    monkeypatch.setattr(pages, "PAGE_BYTES", 2000)  # of which a part holds one curve
    items: list[Any] = []
    skip, parts = 0, 0
    while skip is not None:
        part = await compared(alice, "comparison/curves", **asked, max_points=20, skip=skip)
        items += part["items"]
        skip, parts = part["next"], parts + 1
        assert part["absent_runs"] == ["nowhere"]
    assert parts > 2
    assert [(one["trial_id"], one["run_id"]) for one in items] == [(trial.id, ""), *((0, run) for run in runs)]
    assert (items[1]["steps"], items[1]["values"], items[1]["times"]) == ([0, 1], [0.9, 0.5], [1000.0, 1001.0])
    alone = await compared(alice, "comparison/curves", runs=runs[0], name="loss")
    assert [(one["group"], one["name"]) for one in alone["items"]] == [("training", "loss")], "no search says otherwise"
    monkeypatch.undo()
    every = await compared(alice, "comparison/curves", runs=runs[0])
    assert len(every["items"]) == len(METRICS)


async def test_i9_a_run_of_somebody_else_is_absent_like_one_that_is_not_there(door: Any) -> None:
    alice, bob = door.of("alice"), door.of("bob")
    run, absent = await logged(alice, "mine"), "f" * 32
    for path in ("comparison", "comparison/curves"):
        hidden = await compared(bob, path, runs=run)
        assert hidden["absent_runs"] == [run]
        assert str(hidden).replace(run, absent) == str(await compared(bob, path, runs=absent)), path
    own = await compared(alice, runs=f"{run},{run},{run[:8]}")
    assert [one["run_id"] for one in own["runs"]] == [run], "each once, and one's own by how its id begins"


async def test_a_run_that_is_a_trial_is_compared_as_the_trial_and_bounds_hold(door: Any) -> None:
    alice = door.of("alice")
    trial = await door.trial()
    found = await compared(alice, runs=f"{trial.id:032x}")
    assert [(one["kind"], one["id"]) for one in found["runs"]] == [("trial", trial.id)]
    for query in ({"runs": ""}, {"runs": "x" * 129}, {"runs": ",".join(f"run{i}" for i in range(51))}):
        await compared(alice, status=422, **query)


async def test_det_the_sdk_and_the_magic_name_runs(door: Any, tmp_path: Any) -> None:
    alice = door.of("alice")
    runs = [await logged(alice, "first", lr="0.1"), await logged(alice, "second", lr="0.2")]
    told = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DET_URL": door.base, "DET_TOKEN": "user:alice"}

    async def det(*words: str, code: int = 0) -> str:
        pipe = asyncio.subprocess.PIPE
        here = {"env": told, "cwd": tmp_path, "stdout": pipe, "stderr": pipe}
        process = await asyncio.create_subprocess_exec(DET, *words, **here)
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == code, err.decode() + out.decode()
        return out.decode() + err.decode()

    lines = [line.split() for line in (await det("run", "compare", runs[0], runs[1][:10], "nowhere")).splitlines()]
    assert ["Run", "run", runs[0][:8], "run", runs[1][:8]] in lines
    assert ["lr", "0.1", "0.2"] in lines
    assert ["validation.val_acc", "0.8", "0.8"] in lines
    assert ["run", "nowhere:", "not", "there,", "or", "not", "yours", "to", "see"] in lines
    said = json.loads(await det("experiment", "compare", "--run", runs[0], "--metric", "f1", "--json"))
    assert [row["name"] for row in said["metrics"]] == ["f1"]
    assert "name experiments" in await det("experiment", "compare", code=2)

    def in_a_notebook() -> tuple[Any, str]:
        with Client(door.base, "user:alice") as client:
            curves = client.compare_curves(runs=runs, metrics=["val_acc"])
            assert [(one.run_id, one.values) for one in curves] == [(run, [0.1, 0.8]) for run in runs]
            session: Any = SimpleNamespace(client=lambda: client)
            figure, tables = magic.compare(session, (), runs=[*runs, "nowhere"])
            with pytest.raises(MagicError, match="none of the runs nowhere is there"):
                magic.compare(session, (), runs=["nowhere"])
            with pytest.raises(MagicError, match="name what is to be compared"):
                magic.compare(session, ())
            return figure, repr(tables)

    figure, tables = await asyncio.to_thread(in_a_notebook)
    assert {trace.name for trace in figure.data} == {f"run {run[:8]}" for run in runs}
    assert "run nowhere: not there, or not yours to see" in tables


def test_params_are_what_they_were_before_they_became_texts() -> None:
    given = {
        "0.1": 0.1,
        "7": 7,
        "True": True,
        "None": None,
        "1e3": 1000.0,
        "adam": "adam",
        "NaN": "NaN",
        "[1, 2]": "[1, 2]",
    }
    assert {text: setting(text) for text in given} == given
    assert setting("9" * 5000) == "9" * 5000
    assert setting('"quoted"') == '"quoted"'
    assert placed("loss", ["loss"]) == ("validation", "loss")
    assert placed("loss", []) == ("training", "loss")
