"""TensorBoards of a real cluster: what trials report is what TensorBoard answers, under the Hub's route and login."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from spine_lab import Lab, until

from detlab.client import Task
from detlab.schemas.taskwire import TaskKind
from testbed.front.kernels import Notebook

pytestmark = pytest.mark.hub

TRIAL = """
import pathlib, sys, time
import detlab as det

with det.core.init() as core:
    for step in range(1, 6):
        core.train.report_training_metrics(step, {"loss": 1 / step, "<b>odd</b>": step})
    core.train.report_validation_metrics(5, {"acc": 0.5, "nan": float("nan")})
    gate = pathlib.Path(GATE)
    while not gate.exists() and not core.preempt.should_preempt():
        time.sleep(0.05)
    core.train.report_training_metrics(6, {"loss": 0.125})
"""


@pytest.fixture
def submit(lab: Lab, meeting_place: Path, tmp_path: Path) -> Callable[[], tuple[Any, Path]]:
    """Submit a search of two trials that report, and report once more when its gate opens."""

    def go() -> tuple[Any, Path]:
        gate = meeting_place / f"tensorboard-{tmp_path.name}"
        code = tmp_path / "code"
        code.mkdir(exist_ok=True)
        (code / "trial.py").write_text(TRIAL.replace("GATE", repr(str(gate))))
        config = {
            "name": "board",
            "entrypoint": "python3 trial.py",
            "searcher": {"name": "random", "metric": "acc", "max_trials": 2},
            "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}, "kind": "sgd"},
            "max_restarts": 0,
        }
        return lab.client.create_experiment(config, code), gate

    return go


@pytest.fixture
def boards() -> Iterator[list[Task]]:
    """TensorBoards to be ended after the test."""
    made: list[Task] = []
    yield made
    for task in made:
        task.kill()


def browser(token: str) -> httpx.Client:
    return httpx.Client(headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=20)


def scalars(web: httpx.Client, task: Task, run: str, tag: str) -> list[tuple[int, float]]:
    reply = web.get(f"{task.url}data/plugin/scalars/scalars", params={"run": run, "tag": tag})
    if reply.status_code != 200:
        return []
    return [(int(step), float(str(value).lower())) for _, step, value in reply.json()]


def test_a_tensorboard_answers_the_reported_values_live(cluster, lab, submit, boards):
    experiment, gate = submit()
    task = lab.client.create_task(TaskKind.TENSORBOARD, experiment_ids=[experiment.id])
    boards.append(task)
    assert task.await_up(90)
    trials = experiment.list_trials()
    with browser(cluster.token) as web:
        runs = [f"exp{experiment.id}/trial{trial.id}" for trial in trials]
        want = [(step, pytest.approx(1 / step)) for step in range(1, 6)]
        until(
            "the curve of each trial", lambda: all(scalars(web, task, run, "training/loss") == want for run in runs), 60
        )
        assert not experiment.reload().state.terminal, "while it runs"
        assert scalars(web, task, runs[0], "training/<b>odd</b>") == [(step, float(step)) for step in range(1, 6)]
        assert math.isnan(scalars(web, task, runs[0], "validation/nan")[0][1])
        hparams = web.post(f"{task.url}data/plugin/hparams/experiment", json={"experimentName": "", "hparamsLimit": 9})
        assert {found["name"] for found in hparams.json()["hparamInfos"]} == {"lr", "kind"}
        gate.touch()
        experiment.wait(60)
        until("the last point", lambda: (6, 0.125) in scalars(web, task, runs[0], "training/loss"), 60)
    with httpx.Client(trust_env=False, timeout=20) as stranger:
        reply = stranger.get(f"{task.url}data/runs")
        assert reply.status_code in {302, 401, 403}, "nobody without a login"
        assert runs[0] not in reply.text


def test_a_tensorboard_of_one_trial_shows_that_one(cluster, lab, submit, boards):
    experiment, gate = submit()
    gate.touch()
    experiment.wait(60)
    trial = experiment.list_trials()[1]
    task = lab.client.create_task(TaskKind.TENSORBOARD, trial_ids=[trial.id])
    boards.append(task)
    assert task.await_up(90)
    with browser(cluster.token) as web:
        run = f"exp{experiment.id}/trial{trial.id}"
        until("its curve", lambda: len(scalars(web, task, run, "training/loss")) == 6, 60)
        assert web.get(f"{task.url}data/runs").json() == [run]


def test_the_command_shows_the_runs_of_two_experiments_on_one_board(cluster, lab, submit, boards):
    (first, gate), (second, _) = submit(), submit()
    gate.touch()
    done = cluster.det("tensorboard", "start", str(first.id), str(second.id), "--no-open")
    boards += [t for t in lab.client.list_tasks(kind=TaskKind.TENSORBOARD, limit=5) if not t.state.terminal]
    assert done.returncode == 0, done.stderr
    said = re.fullmatch(r"TensorBoard (\S+): (\S+)\n", done.stdout)
    assert said, done.stdout
    task = lab.client.get_task(said[1])
    assert (task.url, task.view.experiment_ids) == (said[2], [first.id, second.id])
    of = [[f"exp{one.id}/trial{trial.id}" for trial in one.list_trials()] for one in (first, second)]
    assert [len(runs) for runs in of] == [2, 2]
    with browser(cluster.token) as web:
        until("the runs of both", lambda: set(web.get(f"{task.url}data/runs").json()) == {*of[0], *of[1]}, 60)
        for runs in of:
            until("a curve of each", lambda runs=runs: len(scalars(web, task, runs[0], "training/loss")) == 6, 60)


def test_the_magic_shows_a_link_and_finds_the_same_board_again(cluster, lab, submit, boards, tmp_path):
    experiment, gate = submit()
    gate.touch()
    experiment.wait(60)
    env = {**cluster.environment, "DET_URL": cluster.url, "DET_TOKEN": cluster.token}
    notebook = Notebook(tmp_path, env)
    try:
        notebook.run("%load_ext detlab_magics")
        cell = notebook.run(f"%det_tensorboard {experiment.id}", timeout=90)
        boards += [t for t in lab.client.list_tasks(kind=TaskKind.TENSORBOARD, limit=5) if not t.state.terminal]
        assert cell.status == "ok", cell.traceback
        bundle = notebook.shown[cell.displays[0]]
        url = re.search(r'href="([^"]+)"', bundle["text/html"]).group(1)
        assert url.startswith(f"{cluster.url}/user/")
        with browser(cluster.token) as web:
            until("the Hub's route", lambda: web.get(f"{url}data/environment").status_code == 200, 30)
        again = notebook.run(f"%det_tensorboard {experiment.id}", headless=False, timeout=90)
        assert url in notebook.shown[again.displays[0]]["text/html"], "no second one"
        assert "application/javascript" not in notebook.shown[again.displays[0]], "nothing stays that opens windows"
        assert "there is no experiment" in notebook.run("%det_tensorboard 999999").traceback
    finally:
        notebook.close()
