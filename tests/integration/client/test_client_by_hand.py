"""A notebook asks for trials and tells their values: a real master, killed in between, and no slots used."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from detlab.client.aclient import AsyncClient
from detlab.client.client import Client
from detlab.errors import ConfigError, Conflict, NotFound
from detlab.schemas.wire import ExperimentState
from testbed.cluster import Cluster

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]

GUIDE = Path(__file__).parents[3] / "docs/how-to/ask-and-tell.md"
NOTEBOOK = Path(__file__).parents[3] / "examples/ask_and_tell.ipynb"
SPACE = {"x": {"type": "double", "minval": -4.0, "maxval": 4.0}}


def config(name: str, trials: int) -> dict:
    searcher = {"name": name, "metric": "loss", "max_trials": trials}
    return {"name": "by hand", "searcher": searcher, "hyperparameters": SPACE}


@pytest.mark.soak
def test_a_notebook_searches_by_hand_while_its_master_is_killed(cluster: Cluster, client: Client) -> None:
    search = client.create_search(config("tpe", 14))
    search.enqueue({"x": 3.5})
    first = search.ask()
    assert first is not None
    assert first.hyperparameters == {"x": 3.5}
    os.kill(cluster.pid("master") or 0, signal.SIGKILL)  # between ask and tell
    assert not search.tell(first, step=1, value=12.5), "it continues: the reply is false"
    assert search.tell(first, 3.5**2), "it has ended: the reply is true"
    search = client.get_search(search.id)  # the notebook's kernel was restarted
    for trial in search:
        if trial.number == 6:
            os.kill(cluster.pid("master") or 0, signal.SIGKILL)
        search.tell(trial, trial.hyperparameters["x"] ** 2)
    assert search.state is ExperimentState.COMPLETED
    trials = search.list_trials()
    assert len(trials) == 15
    assert all(one.view.asked_by == cluster.user and not one.view.slots for one in trials)
    best = search.best_trial
    assert best is not None
    assert best.hparams["x"] ** 2 == search.best.value == min(one.hparams["x"] ** 2 for one in trials)
    assert search.describe().splitlines() == [
        f"Experiment {search.id} (tpe, COMPLETED): 15 of 15 trials ended",
        f"Best loss {search.best.value:.6g}, trial {best.id}: x={best.hparams['x']:.6g}",
    ]
    assert search.ask() is None


def test_the_example_notebook_finds_a_better_model_than_the_defaults(cluster: Cluster, tmp_path: Path) -> None:
    here = {**cluster.environment, "DET_URL": cluster.url, "DET_TOKEN": cluster.token, "HOME": str(tmp_path)}
    command = [Path(sys.executable).with_name("papermill"), NOTEBOOK, tmp_path / "out.ipynb", "-p", "trials", "12"]
    done = subprocess.run(
        [*command, "--kernel", "python3", "--cwd", tmp_path, "--no-progress-bar"],
        env=here, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    outputs = {one["id"]: one.get("outputs", []) for one in nbformat.read(tmp_path / "out.ipynb", as_version=4).cells}
    assert "(tpe, COMPLETED): 13 of 13 trials ended" in "".join(one["text"] for one in outputs["loop"])
    said = "".join(one["text"] for one in outputs["best"]).splitlines()
    before, after = (float(line.split(": ")[1].split()[0]) for line in said)
    assert 50 < after < 0.9 * before < 80
    for cell in ("picture", "progress"):
        assert {"application/vnd.plotly.v1+json", "image/svg+xml"} & set(outputs[cell][0]["data"]), cell


def test_the_loop_of_the_guide_runs_as_printed(cluster: Cluster) -> None:
    loop = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)[0]
    here = {**cluster.environment, "DET_URL": cluster.url, "DET_TOKEN": cluster.token}
    done = subprocess.run(
        [sys.executable, "-c", loop], env=here, capture_output=True, text=True, timeout=120, check=True
    )
    assert "15 of 15 trials ended" in done.stdout, done.stderr


def test_errors_say_what_is_expected(client: Client) -> None:
    search = client.create_search(config("random", 1))
    trial = search.ask()
    assert trial is not None
    with pytest.raises(ConfigError, match="lacks 'loss'; it has los"):
        search.tell(trial, {"los": 0.5})
    with pytest.raises(Conflict, match=f"knows the value of trial {trial.id}"):
        search.ask(timeout=0)
    with pytest.raises(NotFound):
        search.tell(2**40, 0.5)
    with pytest.raises(ConfigError, match=r"searcher\.metric"):
        client.create_search({"searcher": {"name": "random", "max_trials": 1}, "hyperparameters": SPACE})
    assert [one.id for one in search.open_trials()] == [trial.id]
    assert search.tell(trial, float("nan"))
    assert search.tell(trial, float("nan")), "told twice"
    assert search.best_trial is None


async def test_two_programs_share_a_search_and_a_loop_waits_for_the_other(cluster: Cluster) -> None:
    async with AsyncClient(cluster.url, cluster.token) as client:
        search = await client.create_search(config("random", 2))
        other = await client.get_search(search.id)
        held = await other.ask()
        assert held is not None

        async def loop() -> list[int]:
            numbers = []
            async for trial in search:
                numbers.append(trial.number)
                await search.tell(trial, 1.0)
            return numbers

        looping = asyncio.ensure_future(loop())
        while not (await search.list_trials())[-1].state.terminal:
            await asyncio.sleep(0.05)
        assert not looping.done(), "it waits for the trial of the other program"
        assert await other.tell(held, state="invalid")  # so that there is one more
        assert await looping == [1, 2]


def test_the_command_line_asks_and_tells(cluster: Cluster, tmp_path: Path) -> None:
    rungs = {"variant": "stopping", "time_metric": "epoch", "max_time": 4, "divisor": 2}
    asha = {"name": "asha", "metric": "loss", "max_trials": 2, **rungs}
    given = {**config("random", 2), "searcher": asha, "unmanaged": True}
    (tmp_path / "search.json").write_text(json.dumps(given))
    made = json.loads(cluster.det("experiment", "create", str(tmp_path / "search.json"), "--json", check=True).stdout)
    number = str(made["experiment"]["id"])
    asked = json.loads(cluster.det("search", "ask", number, "--json", check=True).stdout)
    trial = str(asked["trial"]["id"])
    told = cluster.det("search", "tell", number, trial, "loss=0.5", "--step", "1", check=True)
    assert told.stdout.strip() == f"Trial {trial} continues"
    wrong = cluster.det("search", "tell", number, trial, "los=0.5")
    assert wrong.returncode != 0
    assert "lacks 'loss'" in wrong.stderr
    last = ("search", "tell", number, trial, "loss=0.4", "--json")
    assert "how far it has trained" in cluster.det(*last).stdout
    reply = json.loads(cluster.det(*last, "--step", "4", check=True).stdout)
    assert (reply["stop"], reply["state"]) == (True, "COMPLETED")
    human = cluster.det("search", "ask", number, check=True).stdout
    assert "x=" in human
    failed = cluster.det("search", "tell", number, str(int(trial) + 1), "--state", "failed", "--message", "no memory")
    assert failed.stdout.strip() == f"Trial {int(trial) + 1} ended (ERROR)"
    over = cluster.det("search", "ask", number)
    assert "is COMPLETED" in over.stdout + over.stderr
