"""`client.compare` and `det experiment compare` against a real master."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from detlab.client.client import Client
from detlab.errors import ConfigError
from detlab.viz.comparing import compared_curves
from testbed.cluster import Cluster

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]
NOTEBOOK = Path(__file__).parents[3] / "examples/compare_and_fork.ipynb"
Det = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def searches(cluster: Cluster) -> list[int]:
    """Two searches by hand of one trial each, which differ in `x` and have the loss that it is."""
    with Client(cluster.url, cluster.token) as client:
        return [made(client, value) for value in (1.0, 2.0)]


def made(client: Client, value: float) -> int:
    config = {
        "name": f"compared {value}",
        "searcher": {"name": "random", "metric": "loss", "max_trials": 1},
        "hyperparameters": {"x": {"type": "double", "minval": value, "maxval": value + 0.5}, "opt": "adam"},
    }
    search = client.create_search(config)
    for trial in search:
        search.tell(trial, value)
    return search.id


@pytest.fixture
def det(cluster: Cluster, tmp_path: Path) -> Det:
    """Run `det` as a user does."""
    here = {**cluster.environment, "DET_URL": cluster.url, "DET_TOKEN": cluster.token, "HOME": str(tmp_path)}

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [Path(sys.executable).with_name("det"), *map(str, words)]
        return subprocess.run(command, env=here, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_experiments_and_trials_by_the_sdk(client: Client, searches: list[int]) -> None:
    found = client.compare(*searches, 987_654)
    assert [run.id for run in found.runs] == searches
    assert found.absent_experiments == [987_654]
    assert {row.name: row.same for row in found.hyperparameters} == {"x": False, "opt": True}
    loss = next(row for row in found.metrics if row.name == "loss")
    assert [one and one.best for one in loss.values] == [1.0, 2.0]
    trials = [run.trial_ids[0] for run in found.runs]
    by_trials = client.compare(trials=trials, metrics="loss")
    assert [run.kind for run in by_trials.runs] == ["trial", "trial"]
    assert [row.name for row in by_trials.metrics] == ["loss"]
    curves = client.compare_curves([*trials, 987_654], metrics=["loss"], group="validation")
    assert [(one.trial_id, one.values) for one in curves] == [(trials[0], [1.0]), (trials[1], [2.0])]
    figure = compared_curves(found, curves)
    assert [trace.name for trace in figure.data] == [f"experiment {one}" for one in searches]
    assert client.compare_code(*searches).note == "no code was recorded"
    with pytest.raises(ConfigError, match="nothing to compare"):
        client.compare()


def test_det_prints_what_differs(det: Det, searches: list[int]) -> None:
    done = det("experiment", "compare", *searches)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["Run", "experiment", str(searches[0]), "experiment", str(searches[1])]
    assert any(line.split() == ["validation.loss", "1", "2"] for line in lines), done.stdout
    assert any(line.startswith("x ") for line in lines)
    assert not any(line.startswith("opt ") for line in lines), "what is the same is left out"
    assert any(line.startswith("opt ") for line in det("e", "compare", *searches, "--all").stdout.splitlines())
    rows = list(csv.reader(io.StringIO(det("e", "compare", *searches, "--csv").stdout)))
    assert ["validation.loss", "1.0", "2.0"] in rows


def test_det_says_json_takes_trials_and_names_what_is_absent(det: Det, client: Client, searches: list[int]) -> None:
    trials = [run.trial_ids[0] for run in client.compare(*searches).runs]
    said = json.loads(det("e", "compare", "--trials", *trials, "--metric", "loss", "--json").stdout)
    assert [run["id"] for run in said["runs"]] == trials
    assert [row["name"] for row in said["metrics"]] == ["loss"]
    some = det("e", "compare", searches[0], 987_654)
    assert (some.returncode, some.stderr) == (0, "experiment 987654: not there, or not yours to see\n")
    none = det("e", "compare", 987_654)
    assert (none.returncode, none.stdout) == (1, "")
    many = det("e", "compare", *range(1, 60))
    assert many.returncode != 0
    assert "name 1 to 50 trials, experiments and runs, not 59" in many.stderr


def test_the_notebook_finds_compares_and_forks(cluster: Cluster, tmp_path: Path) -> None:
    here = {**cluster.environment, "DET_URL": cluster.url, "DET_TOKEN": cluster.token, "HOME": str(tmp_path)}
    command = [Path(sys.executable).with_name("papermill"), NOTEBOOK, tmp_path / "out.ipynb", "-p", "epochs", "3"]
    done = subprocess.run(
        [*command, "--kernel", "python3", "--cwd", tmp_path, "--no-progress-bar"],
        env=here, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    outputs = {one["id"]: one.get("outputs", []) for one in nbformat.read(tmp_path / "out.ipynb", as_version=4).cells}
    assert "accuracy" in outputs["find"][0]["data"]["text/plain"]
    for cell in ("compare", "result"):
        picture, tables = (one["data"] for one in outputs[cell])
        assert "image/svg+xml" in picture, cell
        assert "validation.accuracy" in tables["text/plain"], cell
    assert "alpha [0.0001, 0.03]" in "".join(one["text"] for one in outputs["differences"])
    assert "is a fork of experiment" in "".join(one["text"] for one in outputs["fork"])
