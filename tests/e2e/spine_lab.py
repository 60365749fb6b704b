"""What the tests of the spine share: submit a named trial, wait with deadlines, read back by the API."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from detlab.client import Client
from detlab.client.resources import Experiment, Trial
from detlab.schemas.wire import ExperimentState
from testbed import waiting
from testbed.cluster import Cluster

T = TypeVar("T")
TRIALS = Path(__file__).parent / "trials"
WRITE = ("custom:detlab:write", "access:services!service=detlab")


def until(what: str, look: Callable[[], T | None], seconds: float = 30.0, every: float | None = None) -> T:
    """Return the first true answer of `look`; fail with what was waited for after `seconds`."""
    found = waiting.until(look, what, seconds, every)
    assert found is not None
    return found


def single(script: str, **more: Any) -> dict[str, Any]:
    """A config of one trial of a script in `trials/`."""
    return _config(script, {"name": "single", "metric": "error", "smaller_is_better": True}, more)


def asha(script: str, trials: int, max_time: int, *, at_once: int = 2, rungs: int = 2, **more: Any) -> dict[str, Any]:
    """A config of a stopping ASHA search over `x`."""
    searcher = {
        "name": "async_halving",
        "metric": "error",
        "smaller_is_better": True,
        "time_metric": "step",
        "max_time": max_time,
        "max_trials": trials,
        "max_concurrent_trials": at_once,
        "num_rungs": rungs,
        "divisor": 2,
    }
    return _config(script, searcher, more)


def _config(script: str, searcher: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    hparams = {"x": {"type": "double", "minval": 0.1, "maxval": 1.0}, **more.pop("hparams", {})}
    config = {
        "name": script.removesuffix(".py"),
        "entrypoint": ["python3", script],
        "searcher": searcher,
        "hyperparameters": hparams,
        "max_restarts": 0,
        "reproducibility": {"experiment_seed": 11},
    }
    return config | more


@dataclass
class Lab:
    """One user at one cluster."""

    cluster: Cluster
    client: Client

    def submit(self, config: dict[str, Any], **more: Any) -> Experiment:
        """Submit with the scripts in `trials/` as the code."""
        return self.client.create_experiment(config, TRIALS, **more)

    def run(self, config: dict[str, Any], seconds: float = 40.0) -> Experiment:
        """Submit and wait for the end, however it ends."""
        return self.finish(self.submit(config), seconds)

    def finish(self, experiment: Experiment, seconds: float = 40.0) -> Experiment:
        """Wait for the end of an experiment, through restarts of the cluster; return it fresh."""
        try:
            experiment.wait(seconds)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.tell(experiment)}") from error
        return experiment.reload()

    def completed(self, experiment: Experiment, seconds: float = 40.0) -> Experiment:
        """Wait for the end and insist on COMPLETED."""
        ended = self.finish(experiment, seconds)
        assert ended.state is ExperimentState.COMPLETED, self.tell(ended)
        return ended

    def tell(self, experiment: Experiment) -> str:
        """Everything about an experiment, for a failing test's message."""
        fresh = self.client.get_experiment(experiment.id)
        parts = [fresh.view.model_dump_json(indent=1, exclude={"config"})]
        for trial in fresh.list_trials():
            parts += [trial.view.model_dump_json(), *(line.text for line in trial.logs(tail=30))]
        return "\n".join(parts)

    def first_trial(self, experiment: Experiment) -> Trial:
        """The first trial, once it exists."""
        return experiment.await_first_trial(20)

    def trial(self, trial: Trial) -> Trial:
        """The same trial, as it is now, with its summary."""
        return self.client.get_trial(trial.id)

    def at_step(self, trial: Trial, step: int, seconds: float = 30.0) -> Trial:
        """Wait until a trial's reports have reached a step."""

        def reached() -> Trial | None:
            now = self.trial(trial)
            assert not now.state.terminal or now.view.steps_completed >= step, now.view
            return now if now.view.steps_completed >= step else None

        return until(f"step {step} of trial {trial.id}", reached, seconds)

    def steps(self, trial: Trial, group: str = "training", name: str = "loss") -> list[int]:
        """The steps of a curve as the API gives them, every point."""
        return list(self.curve(trial, group, name))

    def curve(self, trial: Trial, group: str = "training", name: str = "loss") -> dict[int, float]:
        """Each step of a curve and its value as the API gives them, every point.

        Raises:
            AssertionError: Points are missing, or there are two of one step.
        """
        with self.api() as api:
            found = api.get(f"trials/{trial.id}/metrics", params={"group": group, "name": name, "max_points": 10000})
            found.raise_for_status()
            (series,) = found.json()["items"]
        assert series["total"] == len(series["steps"])
        points = {int(step): float(value) for step, value in zip(series["steps"], series["values"], strict=True)}
        assert len(points) == len(series["steps"]), f"a step is there twice: {series['steps']}"
        return points

    def journal(self, trial: Trial, what: str | None = None) -> list[tuple[str, float, list[str]]]:
        """What a trial of this folder said it did: (what, when, more)."""
        lines = [line.text.split() for line in trial.logs() if line.text.startswith("TOY ")]
        return [(word[1], float(word[2]), word[3:]) for word in lines if what in (None, word[1])]

    def rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        """What the master's own database says: times of orders and the searcher's journal are in no view."""
        path = self.cluster.folder / "db" / "detlab.sqlite"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as database:
            database.row_factory = sqlite3.Row
            return database.execute(query, values).fetchall()

    def slots_of(self, experiment: Experiment) -> list[str]:
        """The slots that this experiment's tasks hold."""
        held = [slot for agent in self.client.list_agents() for slot in agent.slots if slot.allocation_id]
        return [slot.id for slot in held if (slot.allocation_id or "").startswith(f"{experiment.id}.")]

    def api(self) -> httpx.Client:
        """The raw API with this user's token."""
        return self.cluster.client(self.client.address.token)


@contextmanager
def following(cluster: Cluster, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run `det` beside the test; kill it if the test fails."""
    with subprocess.Popen(
        cluster.command(*arguments),
        cwd=cluster.root,
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def lab_of(cluster: Cluster, user: str | None = None) -> Iterator[Lab]:
    """A lab of the operator, or of another user with a token that can do what users can."""
    token = cluster.token if user is None else cluster.make_token(*WRITE, user=user)
    with Client(cluster.url, token) as client:
        yield Lab(cluster, client)


def landing_page(cluster: Cluster, user: str) -> str:
    """The service's page for browsers without scripts, as a user gets it: through the Hub's login form and OAuth."""
    secrets = cluster.folder / "secrets"
    password = cluster.password if user == cluster.user else (secrets / f"password-{user}").read_text().strip()
    with httpx.Client(base_url=cluster.url, trust_env=False, follow_redirects=True, timeout=30) as browser:
        form = browser.get("/services/detlab/plain")
        assert "/hub/login" in str(form.url)
        found = re.search(r'name="_xsrf"\s+value="([^"]+)"', form.text)
        assert found is not None
        data = {"username": user, "password": password, "_xsrf": found[1]}
        page = browser.post(str(form.url), data=data)
        assert str(page.url).endswith("/services/detlab/plain"), page.url
        page.raise_for_status()
        return page.text


def task_dir(cluster: Cluster, trial: Trial) -> Path:
    """The directory of a trial's live task on this machine."""
    request = trial.view.request_id
    (found,) = [
        path
        for path in (cluster.folder / "agent" / "tasks").iterdir()
        if path.is_dir() and path.name.startswith(f"{trial.experiment_id}.{request}.")
    ]
    return found


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_root() -> bool:
    """Whether each user's tasks get a uid of their own here."""
    return os.getuid() == 0
