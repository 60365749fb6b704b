"""The client and `det` against a real cluster: JupyterHub, proxy, master, agent."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from detlab import viz
from detlab.client.aclient import AsyncClient
from detlab.client.bundling.bundle import build_bundle
from detlab.client.client import Client
from detlab.client.resources import Experiment, Trial
from detlab.errors import AuthError, ConfigError, Conflict, Forbidden, NotFound, ResourcesError
from detlab.schemas.wire import CurvesView, Event, ExperimentState
from testbed.cluster import Cluster

pytestmark = [pytest.mark.hub, pytest.mark.timeout(300)]

FIGURES = Path(__file__).parents[3] / "docs/how-to/plot-a-search.md"
STEPS = 12
TRAIN = f"""
import time
import detlab as det

with det.core.init() as core:
    lr = det.get_cluster_info().trial.hparams["lr"]
    for step in range(1, {STEPS} + 1):
        core.train.report_training_metrics(steps_completed=step, metrics={{"loss": lr / step, "<img src=x>": 1.0}})
        core.train.report_validation_metrics(steps_completed=step, metrics={{"val_loss": lr / step}})
        if step % 6 == 0:
            with core.checkpoint.store_path({{"steps_completed": step}}) as (path, _):
                (path / "deep").mkdir()
                (path / "deep" / "step.txt").write_text(str(step))
        time.sleep(0.05)
print("the end \\x1b[31mred\\x1b[0m")
"""
SEARCH = """
name: from the client
entrypoint: python3 train.py
max_restarts: 0
hyperparameters: {lr: {type: categorical, vals: [0.5, 1.0]}}
searcher: {name: grid, metric: val_loss}
"""
SLEEPER = {
    "name": "sleeper",
    "entrypoint": ["sh", "-c", "echo begun; sleep 300"],
    "max_restarts": 0,
    "searcher": {"name": "single", "metric": "x"},
}


@pytest.fixture(scope="module", autouse=True)
def code(cluster: Cluster) -> None:
    """A script and its search, in the folder from which `det` is run."""
    (cluster.root / "code").mkdir()
    (cluster.root / "code" / "train.py").write_text(TRAIN)
    (cluster.root / "search.yaml").write_text(SEARCH)


def reported(events: list[Event]) -> dict[tuple[int | None, str], list[int]]:
    """The steps of every trial and group, in the order of arrival."""
    found: dict[tuple[int | None, str], list[int]] = {}
    for event in events:
        if event.kind == "metrics":
            found.setdefault((event.trial_id, event.data["group"]), []).append(event.data["steps_completed"])
    return found


def check_figures(client: Client, experiment: Experiment, trials: list[Trial]) -> None:
    """Figures are drawn of what the master says, and the example of the how-to page runs as printed."""
    figure = experiment.plot()
    assert [line.name for line in figure.data] == [f"trial {trials[1].id}", f"trial {trials[0].id}, best"]
    assert list(figure.data[1].y) == pytest.approx([0.5 / step for step in range(1, STEPS + 1)])
    assert len(experiment.plot(metric="loss", group="training").data) == 2
    [points] = experiment.plot("metric_by_hyperparameter").data
    assert list(points.y) == pytest.approx([trial.hparams["lr"] / STEPS for trial in experiment.list_trials()])
    assert [note.text for note in trials[0].plot().layout.annotations] == ["&lt;img src=x&gt;", "loss", "val_loss"]
    assert viz.trial_metrics(trials[0]).data == trials[0].plot().data
    assert viz.learning_curves(experiment).data == figure.data
    [example] = re.findall(r"^```python\n(.*?)^```$", FIGURES.read_text(), re.MULTILINE | re.DOTALL)[:1]
    names: dict[str, Any] = {"client": client}
    exec(example.replace("get_experiment(7)", f"get_experiment({experiment.id})"), names)
    assert names["figure"].data[0].type == "parcoords"


def test_a_search_from_submit_to_its_best_checkpoint(cluster: Cluster, client: Client, tmp_path: Path) -> None:
    experiment = client.create_experiment(cluster.root / "search.yaml", cluster.root / "code")
    events = list(experiment.stream(after=0))
    assert experiment.state is ExperimentState.COMPLETED, experiment.view
    trials = experiment.list_trials()
    assert sorted(trial.hparams["lr"] for trial in trials) == [0.5, 1.0]
    trials.sort(key=lambda trial: trial.hparams["lr"])
    wanted = list(range(1, STEPS + 1))
    assert reported(events) == {(trial.id, group): wanted for trial in trials for group in ("training", "validation")}
    assert [event.id for event in events] == sorted({event.id for event in events})
    best = experiment.top_checkpoint()
    assert (best.trial_id, best.steps_completed) == (trials[0].id, 12)
    for mode in ("auto", "direct", "master"):
        target = best.download(tmp_path / mode, mode)
        assert (target / "deep" / "step.txt").read_text() == "12"
    values = [item.metrics["val_loss"] for item in trials[1].iter_metrics("validation")]
    assert values == pytest.approx([1.0 / step for step in wanted])
    assert [line.text for line in trials[0].logs(tail=1)] == ["the end \x1b[31mred\x1b[0m"]
    assert [line.id for line in trials[0].iter_logs(follow=True)] == [line.id for line in trials[0].logs()]
    snapshot = experiment.curves(group="validation")
    assert {(curve.trial_id, curve.name): curve.steps for curve in snapshot.curves} == {
        (trial.id, "val_loss"): wanted for trial in trials
    }
    code = experiment.download_code(tmp_path)
    assert build_bundle(cluster.root / "code").data == code.read_bytes()
    assert experiment.wait(timeout=5) is ExperimentState.COMPLETED
    check_figures(client, client.get_experiment(experiment.id), trials)
    experiment.delete()
    with pytest.raises(NotFound):
        client.get_experiment(experiment.id)


@pytest.mark.soak
async def test_the_stream_and_the_wait_survive_a_killed_master(cluster: Cluster) -> None:
    async with AsyncClient(cluster.url, cluster.token) as client:
        experiment = await client.create_experiment(
            {**SLEEPER, "entrypoint": "python3 train.py", "hyperparameters": {"lr": 1.0}},
            files={"train.py": TRAIN.replace("sleep(0.05)", "sleep(0.5)")},
        )
        gaps: list[str] = []
        events: list[Event] = []
        killed = False
        # By name, as a view of several metrics does: the snapshot had the curves, the stream none of the reports.
        async for item in experiment.watch(name="loss,val_loss", notice=lambda error, _: gaps.append(str(error))):
            if isinstance(item, CurvesView):
                assert not events, "the cursor was lost"
                continue
            events.append(item)
            if item.kind == "metrics" and item.data["steps_completed"] == 2 and not killed:
                killed = True
                pid = cluster.pid("master")
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                waiter = asyncio.create_task(experiment.wait(timeout=200))
        assert gaps, "the stream never broke"
        assert await waiter is ExperimentState.COMPLETED
        [trial] = await experiment.list_trials()
        wanted = list(range(1, STEPS + 1))
        assert reported(events) == {(trial.id, "training"): wanted, (trial.id, "validation"): wanted}
        assert (await experiment.plot(metric="val_loss")).data[0].name == f"trial {trial.id}"
        assert len((await trial.plot(names=["val_loss"])).data) == 1
        stored = [item async for item in trial.iter_metrics("validation")]
        assert [item.steps_completed for item in stored] == wanted


def test_one_key_one_experiment(client: Client) -> None:
    first = client.submit(SLEEPER, idempotency_key="cell-7", activate=False)
    again = client.submit(SLEEPER, idempotency_key="cell-7", activate=False)
    assert first.experiment == again.experiment
    assert (first.created, again.created) == (True, False)
    assert first.experiment is not None
    first.experiment.kill()


def test_steering(client: Client) -> None:
    experiment = client.create_experiment(SLEEPER)
    trial = experiment.await_first_trial(timeout=60)
    assert next(iter(trial.iter_logs(follow=True))).text == "begun"
    with pytest.raises(TimeoutError):
        experiment.wait(timeout=0.2)
    with pytest.raises(Conflict):
        experiment.delete()
    experiment.kill()
    assert experiment.wait(timeout=60) is ExperimentState.CANCELED


def test_refusals(cluster: Cluster, client: Client) -> None:
    with pytest.raises(ConfigError) as caught:
        client.create_experiment({"name": "x", "nonsense": 1, "searcher": {"name": "single"}})
    assert {problem.path for problem in caught.value.problems} >= {"nonsense", "searcher.metric"}
    with pytest.raises(ResourcesError, match="64"):
        client.create_experiment({**SLEEPER, "resources": {"slots_per_trial": 64}})
    with pytest.raises(AuthError), Client(cluster.url, "wrong") as stranger:
        stranger.whoami()
    with Client(cluster.url, cluster.make_token("custom:detlab:read")) as reader:
        assert reader.list_experiments(limit=1) is not None
        with pytest.raises(Forbidden, match="write"):
            reader.create_experiment(SLEEPER)


def test_det_from_create_to_download(cluster: Cluster) -> None:
    made = cluster.det("e", "create", "search.yaml", "code", "--name", "by det", "-f")
    assert made.returncode == 0, made.stdout + made.stderr
    assert "Created experiment" in made.stdout
    assert "COMPLETED" in made.stdout
    newest = json.loads(cluster.det("e", "list", "--json", check=True).stdout)[0]
    assert (newest["name"], newest["state"]) == ("by det", "COMPLETED")
    number = str(newest["id"])
    told = cluster.det("e", "describe", number).stdout
    assert "grid on val_loss" in told
    assert "\x1b" not in cluster.det("e", "logs", number).stdout
    uuid = json.loads(cluster.det("e", "list-checkpoints", number, "--best", "1", "--json").stdout)[0]["uuid"]
    assert cluster.det("c", "download", uuid, "-o", "best").returncode == 0
    assert (cluster.root / "best" / "deep" / "step.txt").read_text() == "12"
    assert cluster.det("e", "delete", number, "--yes").returncode == 0


def test_det_says_how_work_failed(cluster: Cluster) -> None:
    (cluster.root / "fail.yaml").write_text(
        "name: fails\nentrypoint: python3 train.py\nmax_restarts: 0\nsearcher: {name: single, metric: x}\n"
    )
    (cluster.root / "broken").mkdir(exist_ok=True)
    (cluster.root / "broken" / "train.py").write_text("import no_such_module\n")
    failed = cluster.det("e", "create", "fail.yaml", "broken", "-f")
    assert failed.returncode == 4
    assert "no_such_module" in failed.stderr
    assert "det trial logs" in failed.stderr


def test_login_from_elsewhere(cluster: Cluster, tmp_path: Path) -> None:
    det = [os.fspath(Path(sys.executable).parent / "det")]
    environment = {key: value for key, value in cluster.environment.items() if not key.startswith("XDG_")} | {
        "HOME": str(tmp_path)
    }

    def run(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*det, *words], cwd=tmp_path, env=environment, input=text, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip

    assert "no cluster found" in run("e", "list").stderr
    logged_in = run("login", cluster.url, "--token-file", "-", text=cluster.token)
    assert logged_in.returncode == 0, logged_in.stderr
    assert json.loads(run("user", "whoami", "--json").stdout)["name"] == cluster.user
    assert run("agent", "list").returncode == 0
