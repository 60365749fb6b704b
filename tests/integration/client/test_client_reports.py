"""`client.report` and `det report` against a real master: a project with a search by hand, a run and an artifact."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

import detlab as det
from detlab.client.client import Client
from detlab.errors import ConfigError, NotFound
from testbed.cluster import Cluster

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]
Command = Callable[..., subprocess.CompletedProcess[str]]
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def search_id(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> int:
    """A project `reported` of a workspace `reporting`, with one of each."""
    folder = tmp_path_factory.mktemp("artifact")
    (folder / "a.csv").write_text("1,2\n")
    with Client(cluster.url, cluster.token) as client:
        client.create_workspace("reporting").create_project("reported", "What is reported", f"It *is*. {HOSTILE}")
        config = {
            "name": f"by hand {HOSTILE}",
            "workspace": "reporting",
            "project": "reported",
            "searcher": {"name": "random", "metric": "loss", "max_trials": 2},
            "hyperparameters": {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}},
            "environment": {"environment_variables": ["SERVICE_TOKEN=planted-secret"]},
        }
        search = client.create_search(config)
        for number, trial in enumerate(search, 1):
            search.tell(trial, float(number))
        artifact = det.Artifact("reported-data", type="dataset")
        artifact.add_dir(folder)
        client.log_artifact(artifact, run=_run(cluster, tmp_path_factory.mktemp("run")))
        return search.id


def _run(cluster: Cluster, home: Path) -> str:
    """A run of a script, with a metric and a picture; return its id."""
    code = (
        "import detlab as det\n"
        "with det.init(project='reporting/reported', name='baseline', config={'lr': 0.1}) as run:\n"
        "    for step in range(5):\n"
        "        run.log({'loss': 1 / (step + 1)}, step=step)\n"
        "    run.log({'picture': det.Image([[0, 255], [255, 0]])}, step=5)\n"
        "print(run.id)\n"
    )
    here = {**cluster.environment, "DET_URL": cluster.url, "DET_TOKEN": cluster.token, "HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=here, cwd=home, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


@pytest.fixture
def command(cluster: Cluster, tmp_path: Path) -> Command:
    here = {**cluster.environment, "DET_URL": cluster.url, "DET_TOKEN": cluster.token, "HOME": str(tmp_path)}

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        line = [str(Path(sys.executable).with_name("det")), *map(str, words)]
        return subprocess.run(line, env=here, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_a_project_by_the_sdk_as_a_page(client: Client, search_id: int, tmp_path: Path) -> None:
    made = client.report(tmp_path / "r.html", project="reporting/reported", notes="Mine: **good**")
    page = made.path.read_text()
    assert (made.experiments, made.runs, made.left_out) == (1, 1, ())
    assert made.size < 200_000
    for said in (
        f"Experiment {search_id}: by hand &lt;img",
        "Run baseline",
        "<strong>good</strong>",
        "It <em>is</em>. &lt;img",
        "What is reported",
        f"det experiment fork {search_id}",
        "reported-data:v1",
        "det artifact download reported-data:v1",
        'src="data:image/png;base64,',
        'alt="loss of experiment',
        client.whoami().name,
    ):
        assert said in page, said
    assert HOSTILE not in page
    assert "planted-secret" not in page


def test_a_search_by_two_objectives_under_a_constraint(client: Client, tmp_path: Path) -> None:
    searcher = {
        "name": "random",
        "metrics": [{"name": "loss"}, {"name": "size"}],
        "constraints": {"latency": {"max": 1.0}},
        "max_trials": 3,
    }
    space = {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}}
    search = client.create_search({"name": "two", "searcher": searcher, "hyperparameters": space})
    for trial, latency in zip(search, (0.5, 0.5, 2.0), strict=False):
        search.tell(trial, {"loss": 1.0 / latency, "size": latency, "latency": latency})
    page = client.report(tmp_path / "two.html", experiments=[search.id]).path.read_text()
    for said in ("Pareto front", "latency at most 1", ">kept<", ">broken<", "loss 2, size 0.5, latency 0.5"):
        assert said in page, said


def test_a_notebook_by_the_command_line(command: Command, search_id: int, tmp_path: Path) -> None:
    (tmp_path / "why.md").write_text("# Why\n\nBecause.")
    done = command("report", "--experiment", search_id, "-o", "r.ipynb", "--title", "A & B", "--notes", "why.md")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("r.ipynb: 1 experiment, 0 runs, ")
    book = nbformat.read(tmp_path / "r.ipynb", as_version=4)
    nbformat.validate(book)
    assert book.metadata.title == "A & B"
    assert f"client.get_experiment({search_id}).plot()" in "".join(cell.source for cell in book.cells)
    again = f"det report --experiment {search_id} --title 'A &amp; B' --notes why.md -o r.ipynb"
    assert again.replace("'", "&#x27;") in "".join(
        map(str, (one.data for cell in book.cells for one in cell.get("outputs", [])))
    )


def test_by_a_filter_and_json(command: Command, search_id: int) -> None:
    done = command("report", "--filter", "project = reported and best < 2", "--json")
    said = json.loads(done.stdout)
    assert (said["file"], said["experiments"], said["runs"], said["left_out"]) == ("report.html", 1, 0, [])


def test_what_cannot_be_reported_leaves_no_file(client: Client, command: Command, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        client.report(tmp_path / "r.html", experiments=[987_654])
    with pytest.raises(NotFound):
        client.report(tmp_path / "r.html", project="no such project")
    with pytest.raises(ConfigError, match="lable"):
        client.report(tmp_path / "r.html", filter="lable = paper")
    with pytest.raises(ConfigError):
        client.report(tmp_path / "r.html")
    assert command("report").returncode == 2
    assert "ends in .html or .ipynb" in command("report", "--experiment", 1, "-o", "r.pdf").stderr
    assert list(tmp_path.glob("r*")) == []
